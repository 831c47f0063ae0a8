"""The floor: held to gravity and near ground, unknown rather than guessed."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import numpy as np
import pytest
from synthetic_depth import Box, Eye, Stereo, floor_to, pose_of

from handrail.runtime.reflex.ground import Floor, GroundFilter
from handrail.runtime.reflex.rays import LevelRays

WALL = Box((8.0, -9.0, 0.0), (9.0, 9.0, 3.0))


def floors(
    boxes: list[Box], eye_at: Callable[[float], Eye] = lambda _: Eye(),
    seconds: float = 0.6, stereo: Stereo | None = None,
    tilt_error_deg: tuple[float, float] = (0.0, 0.0), source: str = "vio", gravity_after_s: float = 0.0,
) -> list[Floor]:
    """What the filter says, frame by frame at 10 Hz. Before ``gravity_after_s`` gravity is off, and known to be."""
    stereo, ground = stereo or Stereo(), GroundFilter()
    out = []
    for i in range(round(seconds * 10)):
        t = i * 0.1
        eye = eye_at(t)
        pose = pose_of(eye, t, tilt_error_deg=tilt_error_deg, source=source)
        if t < gravity_after_s:
            off = pose_of(eye, t, tilt_error_deg=(0.0, -5.0), source=source)
            pose = dataclasses.replace(off, tilt_sd_rad=math.radians(2.0))
        out.append(ground.update(LevelRays.of(stereo.look(boxes, eye, t), pose), pose))
    return out


def height_at(floor: Floor, x_m: float, y_m: float = 0.0) -> float:
    """Above the true floor, whose height in the level frame is -1.6."""
    return float(floor.z_at(np.array([x_m], np.float32), np.array([y_m], np.float32))[0]) + 1.6


@pytest.mark.parametrize(("eye_height_m", "pitch_deg"), [(1.25, -5.0), (1.6, -20.0), (1.6, 10.0), (1.85, -10.0)])
def test_the_floor_is_known_from_the_second_frame_on_to_two_centimetres(eye_height_m: float, pitch_deg: float) -> None:
    first, *rest = floors([floor_to(), WALL], lambda _: Eye(z_m=eye_height_m, pitch_deg=pitch_deg))
    assert not first.known, "one frame alone isn't believed"
    assert all(f.known for f in rest)
    assert abs(height_at(rest[-1], 0.0)) < 0.02
    assert abs(height_at(rest[-1], 4.0)) < 0.06


def test_the_noisier_depth_of_dusk_hides_no_floor() -> None:
    for seed in range(3):
        found = floors([floor_to(), WALL], seconds=1.0, stereo=Stereo(seed, disparity_sd_px=0.8, holes=0.3))
        assert all(f.known for f in found[3:])
        assert abs(height_at(found[-1], 0.0)) < 0.05


def test_a_floor_is_not_believed_before_gravity_is() -> None:
    found = floors([floor_to(), WALL], seconds=1.2, gravity_after_s=0.5)
    assert not any(f.known for f in found[:5])
    assert found[-1].known
    assert abs(height_at(found[-1], 0.0)) < 0.02


def test_a_tilted_gravity_moves_the_plane_and_not_far_floor() -> None:
    floor = floors([floor_to(), WALL], tilt_error_deg=(0.0, 1.5))[-1]
    # The level frame itself is tilted: in it the floor drops by 1.5 degrees, and the slope has to say so.
    assert math.degrees(floor.slope_x) == pytest.approx(-1.5, abs=0.6)


def test_a_textured_wall_two_metres_ahead_does_not_tilt_the_floor() -> None:
    floor = floors([floor_to(), Box((2.0, -5.0, 0.0), (3.0, 5.0, 3.0))])[-1]
    assert floor.known
    assert abs(math.degrees(floor.slope_x)) < 1.0
    assert abs(height_at(floor, 0.0)) < 0.03


def test_little_floor_and_much_wall_is_not_worth_a_tilt() -> None:
    stereo = Stereo(down_deg=-32.0)  # looking ahead: floor from 2.6 m on only, a wall at 3 m
    scene = [floor_to(), Box((3.0, -5.0, 0.0), (4.0, 5.0, 3.0))]
    floor = floors(scene, lambda _: Eye(pitch_deg=5.0), seconds=1.5, stereo=stereo)[-1]
    assert not floor.known or (abs(math.degrees(floor.slope_x)) < 2.5 and abs(height_at(floor, 3.0)) < 0.1)


def test_a_table_top_is_not_the_floor() -> None:
    table = Box((0.2, -3.0, 0.70), (8.0, 3.0, 0.75))
    assert not any(f.known for f in floors([floor_to(), table]))
    beside = floors([floor_to(), Box((0.6, -1.0, 0.70), (2.0, 1.0, 0.75)), WALL])[-1]
    assert beside.known
    assert abs(height_at(beside, 2.0)) < 0.05


def test_a_floor_without_texture_is_unknown() -> None:
    scene = [floor_to(textured=False), Box((1.5, -5.0, 0.0), (3.0, 5.0, 3.0))]
    floor = floors(scene)[-1]
    assert not floor.known
    assert math.sqrt(floor.cov[0, 0]) > 0.1, "a guess has to say that it is one"


@pytest.mark.parametrize("edge_m", [1.5, 2.0, 2.5, 3.5])
def test_a_lower_floor_ahead_does_not_pull_the_floor_down(edge_m: float) -> None:
    floor = floors([floor_to(edge_m), floor_to(30.0, -0.17, edge_m)])[-1]
    assert abs(height_at(floor, 0.0)) < (0.05 if edge_m >= 2.0 else 0.08), "of 1.5 m, half a metre is in view"
    assert abs(height_at(floor, edge_m)) < 0.06


def test_a_head_that_bobs_without_measured_translation_is_followed() -> None:
    def bobbing(t: float) -> Eye:
        return Eye(z_m=1.6 + 0.02 * math.sin(11.0 * t))

    stereo, ground = Stereo(), GroundFilter()
    for i in range(20):
        t = i * 0.1
        eye = bobbing(t)
        pose = pose_of(Eye(z_m=1.6), t, source="imu")  # what an odometry without translation says
        floor = ground.update(LevelRays.of(stereo.look([floor_to(), WALL], eye, t), pose), pose)
        if i > 5:
            assert float(pose.device_in_level_m[2]) - floor.z_m == pytest.approx(eye.z_m, abs=0.025)


def test_a_floor_that_is_no_longer_seen_becomes_unknown() -> None:
    stereo, ground = Stereo(), GroundFilter()
    known = []
    for i in range(60):
        t = i * 0.1
        scene = [floor_to(textured=t < 1.0), WALL]
        pose = pose_of(Eye(), t)
        known.append(ground.update(LevelRays.of(stereo.look(scene, Eye(), t), pose), pose).known)
    assert known[20], "a second without floor is bridged"
    assert not known[-1]


def test_after_stepping_down_the_new_floor_is_found_within_a_second() -> None:
    def down_the_step(t: float) -> Eye:
        return Eye(x_m=1.0 * t, z_m=1.6 if t < 2.0 else 1.43)

    floor = floors([floor_to(2.0), floor_to(30.0, -0.17, 2.0)], down_the_step, seconds=3.2)[-1]
    assert floor.known
    assert height_at(floor, 3.2) == pytest.approx(-0.17, abs=0.04)


def test_at_the_edge_of_a_platform_the_lower_floor_is_not_taken_for_ones_own() -> None:
    scene = [floor_to(2.5), floor_to(30.0, -0.45, 2.5)]
    seen = floors(scene, lambda t: Eye(x_m=min(t, 2.3)), seconds=4.0)
    assert all(abs(height_at(f, f.x_m)) < 0.06 for f in seen[1:] if f.known)


def test_uncertainty_of_height_grows_with_distance() -> None:
    floor = floors([floor_to(), WALL])[-1]
    near, far, farther = (
        float(floor.variance_at(np.array([d], np.float32), np.zeros(1, np.float32))[0]) for d in (0.0, 3.0, 6.0)
    )
    assert near < far < farther
    assert farther - near == pytest.approx(4.0 * (far - near), rel=0.3)


def test_reset_forgets_the_floor() -> None:
    stereo, ground = Stereo(), GroundFilter()
    for i in range(3):
        pose = pose_of(Eye(), i * 0.1)
        floor = ground.update(LevelRays.of(stereo.look([floor_to(), WALL], Eye(), i * 0.1), pose), pose)
    assert floor.known
    ground.reset()
    pose = pose_of(Eye(), 0.3)
    assert not ground.update(LevelRays.of(stereo.look([floor_to(), WALL], Eye(), 0.3), pose), pose).known
