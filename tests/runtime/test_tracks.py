"""Things over time: confirmed, kept while out of view, forgotten when they aren't there, moving only when they do."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import numpy as np
import pytest
from synthetic_depth import EYE_IN_DEVICE_M, Box, Eye, Stereo, floor_to, pose_of

from handrail.runtime.reflex.heading import NECK_IN_CPF_M, Travel
from handrail.runtime.reflex.motion import Motion
from handrail.runtime.reflex.surroundings import Surroundings
from handrail.runtime.scene import Band, FrameQuality, Obstacle, Scene, Thing

USABLE = FrameQuality(100.0, 40.0, 1.0, True, None)
FAR_WALL = Box((9.0, -9.0, 0.0), (10.0, 9.0, 3.0))
LITTLE_M = 0.18  # high: too little to be told at 3 m
T_DEVICE_CPF = np.eye(4)
T_DEVICE_CPF[:3, :3] = np.diag([-1.0, -1.0, 1.0])  # cpf: x left, y up, z forward; device here: x right, y down
T_DEVICE_CPF[:3, 3] = EYE_IN_DEVICE_M


def walk(
    scene_at: Callable[[float], list[Box]], eye_at: Callable[[float], Eye], seconds: float, hz: float = 10.0,
    surroundings: Surroundings | None = None, from_s: float = 0.0, seed: int = 0,
) -> list[Scene]:
    stereo, around = Stereo(seed), surroundings or Surroundings(T_DEVICE_CPF)
    scenes = []
    for i in range(round(seconds * hz)):
        t = from_s + i / hz
        eye = eye_at(t)
        view = stereo.look([floor_to(), FAR_WALL, *scene_at(t)], eye, t)
        scenes.append(around.see(view, pose_of(eye, t), USABLE))
    return scenes


def near(scene: Scene, reach_m: float = 6.0) -> list[Obstacle]:
    return [o for o in scene.obstacles if o.confirmed and o.seen_from(scene.wearer)[0] < reach_m]


def turned_about_the_neck(x_m: float, heading_deg: float) -> Eye:
    """Eyes of a head at ``x_m`` that looks aside: they are 10 cm before the neck."""
    h = math.radians(heading_deg)
    return Eye(x_m=x_m - 0.1 + 0.1 * math.cos(h), y_m=0.1 * math.sin(h), heading_deg=heading_deg)


def test_a_thing_is_confirmed_by_its_second_look_and_keeps_its_id_on_the_way_to_it() -> None:
    box = Box((5.0, -0.25, 0.0), (5.3, 0.25, 0.9))
    scenes = walk(lambda _: [box], lambda t: Eye(x_m=1.2 * t), 3.0)
    assert not near(scenes[0])
    ids = {near(s)[0].id for s in scenes[2:]}
    assert len(ids) == 1
    last = near(scenes[-1])[0]
    assert last.x_m == pytest.approx(5.0, abs=0.1), "it stays put in the level frame while the wearer walks"
    assert not last.moving


def test_what_is_very_near_and_solid_needs_no_second_look() -> None:
    assert near(walk(lambda _: [Box((1.2, -0.4, 0.0), (1.6, 0.4, 1.6))], lambda _: Eye(), 0.1)[0])


def test_half_the_evidence_in_the_look_before_saves_the_second_look() -> None:
    def hinted(before: list[Box], pause_s: float = 0.1) -> list[Obstacle]:
        around = Surroundings(T_DEVICE_CPF)
        walk(lambda _: [], lambda _: Eye(), 1.0, surroundings=around)
        walk(lambda _: before, lambda _: Eye(), 0.1, surroundings=around, from_s=1.0)
        box = Box((3.0, -0.25, 0.0), (3.3, 0.25, 0.3))
        return near(walk(lambda _: [box], lambda _: Eye(), 0.1, surroundings=around, from_s=1.0 + pause_s)[0], 4.0)

    hint = Box((3.0, -0.25, 0.0), (3.3, 0.25, LITTLE_M))
    assert hinted([hint])
    assert not hinted([]), "nothing was there"
    assert not hinted([Box((4.2, -0.25, 0.0), (4.5, 0.25, LITTLE_M))]), "it was elsewhere"
    assert not hinted([hint], pause_s=0.6), "too long ago"


def test_some_evidence_in_the_look_after_confirms_too() -> None:
    def seen_then(after: list[Box]) -> list[Obstacle]:
        around = Surroundings(T_DEVICE_CPF)
        walk(lambda _: [], lambda _: Eye(), 1.0, surroundings=around)
        box = Box((3.0, -0.25, 0.0), (3.3, 0.25, 0.3))
        assert not near(walk(lambda _: [box], lambda _: Eye(), 0.1, surroundings=around, from_s=1.0)[0], 4.0)
        return near(walk(lambda _: after, lambda _: Eye(), 0.1, surroundings=around, from_s=1.1)[0], 4.0)

    assert seen_then([Box((3.0, -0.25, 0.0), (3.3, 0.25, LITTLE_M))])
    assert not seen_then([])


@pytest.mark.parametrize(("by_ends", "confirmed"), [(True, True), (False, False)])
def test_a_plain_bar_measured_by_its_ends_needs_no_second_look(by_ends: bool, confirmed: bool) -> None:
    around, bar = Surroundings(T_DEVICE_CPF), Box((3.0, -0.6, 1.6), (3.1, 0.6, 1.68))
    walk(lambda _: [], lambda _: Eye(), 1.0, surroundings=around)
    view = Stereo().look([floor_to(), FAR_WALL, bar], Eye(), 1.0)
    ends = (view.rho_m < 4.0) & (view.phi_rad + math.radians(Eye().pitch_deg) > 0.0)[:, None]
    scene = around.see(dataclasses.replace(view, by_ends=ends & by_ends), pose_of(Eye(), 1.0), USABLE)
    (seen,) = [o for o in scene.obstacles if o.band is Band.HEAD and o.seen_from(scene.wearer)[0] < 4.0]
    assert seen.confirmed is confirmed


def test_what_is_twice_as_solid_needs_no_second_look_farther_off() -> None:
    around = Surroundings(T_DEVICE_CPF)
    walk(lambda _: [], lambda _: Eye(), 1.0, surroundings=around)
    (seen,) = near(walk(lambda _: [Box((3.0, -0.4, 0.0), (3.4, 0.4, 1.2))], lambda _: Eye(), 0.1,
                        surroundings=around, from_s=1.0)[0], 4.0)  # fmt: skip
    assert seen.looks == 1


def test_two_looks_of_three_confirm_though_the_one_between_failed() -> None:
    box = Box((3.0, -0.15, 0.0), (3.3, 0.15, 0.5))
    no_match = Box((2.9, -0.8, 0.0), (3.5, 0.8, 1.5), textured=False)
    frames = [[], [], [], [box], [no_match], [box]]
    scenes = walk(lambda t: frames[round(t * 10)], lambda _: Eye(), 0.6)
    assert not near(scenes[3], 4.0), "one look"
    assert [o.looks for o in near(scenes[5], 4.0)] == [2]


def test_what_leaves_the_view_stays_with_growing_uncertainty_and_is_forgotten_in_the_end() -> None:
    box = Box((2.5, -0.25, 0.0), (2.8, 0.25, 1.2))
    around = Surroundings(T_DEVICE_CPF)
    seen = walk(lambda _: [box], lambda _: Eye(), 2.5, surroundings=around)[-1]
    away = walk(lambda _: [box], lambda _: Eye(heading_deg=80.0), 9.0, 2.0, around, from_s=2.5)
    (before,) = near(seen)
    kept = [o for o in away[4].obstacles if o.id == before.id]
    assert len(kept) == 1, "two seconds out of view"
    assert kept[0].last_device_ns == before.last_device_ns
    assert kept[0].distance_sd_m > before.distance_sd_m
    assert not [o for o in away[-1].obstacles if o.id == before.id], "nine seconds out of view"


def test_what_was_taken_away_is_forgotten_within_half_a_second() -> None:
    box = Box((2.5, -0.25, 0.0), (2.8, 0.25, 1.2))
    scenes = walk(lambda t: [box] if t < 1.0 else [], lambda _: Eye(), 1.6)
    assert near(scenes[9])
    assert not near(scenes[-1])


def test_what_is_hidden_behind_something_nearer_is_kept() -> None:
    box, curtain = Box((3.5, -0.2, 0.0), (3.8, 0.2, 1.2)), Box((1.8, -3.0, 0.0), (1.85, 3.0, 3.0))
    scenes = walk(lambda t: [box] if t < 1.0 else [box, curtain], lambda _: Eye(), 2.0)
    hidden = next(o for o in scenes[9].obstacles if o.confirmed and 3.0 < o.x_m < 4.0)
    assert any(o.id == hidden.id for o in scenes[-1].obstacles)


def test_someone_coming_nearer_is_seen_to_move_within_a_second_and_a_half() -> None:
    def person(t: float) -> list[Box]:
        return [Box((6.0 - 1.2 * t, -0.25, 0.0), (6.3 - 1.2 * t, 0.25, 1.7))]

    scenes = walk(person, lambda _: Eye(), 2.5)
    (coming,) = near(scenes[-1])
    assert coming.moving
    assert coming.vx_msec == pytest.approx(-1.2, abs=0.3)
    assert abs(coming.vy_msec) < 0.25
    assert any(o.moving for o in scenes[15].obstacles)


def test_someone_crossing_moves_sideways() -> None:
    scenes = walk(lambda t: [Box((3.0, -1.8 + t, 0.0), (3.3, -1.3 + t, 1.7))], lambda _: Eye(), 2.2)
    (crossing,) = near(scenes[-1])
    assert crossing.moving
    assert crossing.vy_msec == pytest.approx(1.0, abs=0.3)


def test_what_stands_still_does_not_move_though_odometry_errs() -> None:
    noise = np.random.default_rng(3)
    box = Box((4.5, -0.25, 0.0), (4.8, 0.25, 1.7))
    stereo, around = Stereo(1), Surroundings(T_DEVICE_CPF)
    drift = np.zeros(2)
    for i in range(30):
        t = i * 0.1
        drift += noise.normal(0.0, 0.006, 2)  # 6 cm/s of wrong velocity, as the pose says of itself
        told = Eye(x_m=1.0 * t + drift[0], y_m=drift[1])
        view = stereo.look([floor_to(), FAR_WALL, box], Eye(x_m=1.0 * t), t)
        scene = around.see(view, pose_of(told, t), USABLE)
        assert not [o for o in scene.obstacles if o.moving], f"frame {i}"


def test_a_drop_off_is_kept_while_its_edge_sinks_below_the_view() -> None:
    stereo, around = Stereo(), Surroundings(T_DEVICE_CPF)
    for i in range(30):
        eye = Eye(x_m=1.0 * i * 0.1)
        view = stereo.look([floor_to(3.5), floor_to(30.0, -0.5, 3.5), FAR_WALL], eye, i * 0.1)
        scene = around.see(view, pose_of(eye, i * 0.1), USABLE)
    (edge,) = [o for o in scene.obstacles if o.thing is Thing.DROP_OFF]
    assert edge.confirmed
    assert edge.seen_from(scene.wearer)[0] == pytest.approx(0.6, abs=0.2)


def test_the_same_frame_twice_and_time_going_back_change_nothing() -> None:
    box = Box((2.5, -0.25, 0.0), (2.8, 0.25, 0.9))
    stereo, around = Stereo(), Surroundings(T_DEVICE_CPF)
    view = stereo.look([floor_to(), FAR_WALL, box], Eye(), 1.0)
    first = around.see(view, pose_of(Eye(), 1.0), USABLE)
    again = around.see(view, pose_of(Eye(), 1.0), USABLE)
    back = around.see(view, pose_of(Eye(), 0.4), USABLE)
    assert [o.looks for o in first.obstacles] == [1]
    assert again.obstacles == back.obstacles == first.obstacles


def test_an_unusable_frame_keeps_what_was_seen_and_knows_nothing_new() -> None:
    box = Box((2.5, -0.25, 0.0), (2.8, 0.25, 0.9))
    around = Surroundings(T_DEVICE_CPF)
    before = walk(lambda _: [box], lambda _: Eye(), 1.0, surroundings=around)[-1]
    dark = FrameQuality(3.0, 1.0, 0.0, False, "dark")
    blind = around.see(None, pose_of(Eye(), 1.0), dark)
    assert blind.coverage is None
    assert blind.quality.reason == "dark"
    assert blind.wearer.eye_height_m is None
    assert [o.id for o in blind.obstacles] == [o.id for o in before.obstacles]
    assert blind.obstacles[0].last_device_ns == before.obstacles[0].last_device_ns


def test_the_same_walk_gives_the_same_scenes_and_ids() -> None:
    boxes = [Box((3.0, -0.7, 0.0), (3.3, -0.2, 0.9)), Box((4.0, 0.3, 0.0), (4.3, 0.8, 1.5))]
    one, two = (walk(lambda _: boxes, lambda t: Eye(x_m=t), 1.0) for _ in range(2))
    assert one == two
    assert sorted({o.id for s in one for o in s.obstacles})[:2] == [1, 2]


def test_turning_the_head_by_60_degrees_while_walking_straight_changes_no_side() -> None:
    left_box, right_box = Box((6.0, 0.7, 0.0), (6.4, 1.1, 1.4)), Box((6.5, -1.2, 0.0), (6.9, -0.8, 1.4))

    def head(t: float) -> Eye:
        return turned_about_the_neck(1.2 * t, 60.0 * math.sin(2.2 * max(t - 1.0, 0.0)))

    scenes = walk(lambda _: [left_box, right_box], head, 4.0)
    sides: dict[int, set[bool]] = {}
    for s in scenes[12:]:
        assert s.wearer.travel_rad == pytest.approx(0.0, abs=0.03)
        for o in near(s, 4.5):
            bearing = o.seen_from(s.wearer)[1]
            if abs(bearing) > 3.0:  # the far wall straight ahead has no side
                sides.setdefault(o.id, set()).add(bearing < 0)
    assert len(sides) >= 2
    assert all(len(told) == 1 for told in sides.values()), sides


def test_travel_has_a_heading_while_walking_and_none_while_standing() -> None:
    travel = Travel()
    for i in range(60):
        t = i * 0.1
        along = 1.2 * min(t, 3.0)
        sway = 0.02 * math.sin(2 * math.pi * 0.88 * t) if t < 3.0 else 0.0
        travel.update(round(t * 1e9), np.array([along, sway, 0.0]), 0.03)
        if 1.5 < t < 3.0:
            assert travel.heading_rad == pytest.approx(0.0, abs=0.02), "sway cancels over a stride"
            assert travel.speed_msec == pytest.approx(1.2, abs=0.05)
    assert travel.heading_rad is None


def test_without_a_known_translation_there_is_no_heading_of_travel() -> None:
    travel = Travel()
    for i in range(30):
        travel.update(i * 100_000_000, np.array([0.05 * i, 0.0, 0.0]), 0.7)
    assert travel.heading_rad is None


def test_the_neck_stays_while_the_head_turns() -> None:
    necks = []
    for heading in (0.0, 40.0, -70.0):
        eye = turned_about_the_neck(1.0, heading)
        R = eye.rotation @ T_DEVICE_CPF[:3, :3]
        necks.append(np.array([eye.x_m, eye.y_m]) + (R @ NECK_IN_CPF_M)[:2])
    spread = np.ptp(np.array(necks), axis=0)
    assert spread.max() < 0.03, "the nod of 10 degrees that the test's eyes have adds a little"


def test_motion_needs_a_way_not_just_a_speed_and_stops_with_hysteresis() -> None:
    noise = np.random.default_rng(0)
    cov = np.eye(2) * 0.05**2
    shaking, walking = Motion(np.zeros(2), cov), Motion(np.zeros(2), cov)
    for i in range(1, 40):
        for motion, speed in ((shaking, 0.0), (walking, 1.0 if i < 20 else 0.0)):
            motion.predict(0.1, 0.03**2)
            way = speed * 0.1 * min(i, 19) if motion is shaking else 0.1 * min(i, 19)
            motion.see(np.array([way, 0.0]) + noise.normal(0.0, 0.05, 2), cov)
        assert not shaking.moving
        if i == 18:
            assert walking.moving
            assert walking.velocity[0] == pytest.approx(1.0, abs=0.35)
    assert not walking.moving
