"""One frame's obstacles, drop-offs and coverage, on views cast from boxes and spoilt as stereo spoils them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic_depth import Box, Eye, Stereo, floor_to, pose_of

from handrail.runtime.reflex.coverage import coverage
from handrail.runtime.reflex.drops import find_drop_off, floor_seen_to_m, look_at_floor
from handrail.runtime.reflex.field import Field, Here
from handrail.runtime.reflex.front import lay_front
from handrail.runtime.reflex.ground import GroundFilter
from handrail.runtime.reflex.obstacles import Sighting, band_of, find_obstacles
from handrail.runtime.reflex.rays import LevelRays
from handrail.runtime.scene import CORRIDOR_HALF_WIDTH_M, Band, Coverage, Thing

FAR_WALL = Box((9.0, -9.0, 0.0), (10.0, 9.0, 3.0))


@dataclass(frozen=True)
class Seen:
    obstacles: list[Sighting]
    drop_off: Sighting | None
    coverage: Coverage
    floor_to_m: float


def see(boxes: list[Box], eye: Eye | None = None, seed: int = 0, stereo: Stereo | None = None, frames: int = 3) -> Seen:
    """The last of a few frames of a wearer who stands still and whose reference heading is x."""
    eye, stereo, ground = eye or Eye(), stereo or Stereo(seed), GroundFilter()
    here = Here(eye.x_m, eye.y_m, 0.0)
    for i in range(frames):
        pose = pose_of(eye, i * 0.1)
        rays = LevelRays.of(stereo.look([*boxes, FAR_WALL], eye, i * 0.1), pose)
        floor = ground.update(rays, pose)
    strip = look_at_floor(rays, floor, here)
    return Seen(
        find_obstacles(Field.of(rays, floor, here), here).sightings, find_drop_off(strip, floor, here, rays.sd_inverse),
        coverage(rays, floor, here, strip), floor_seen_to_m(strip),
    )


def in_corridor(s: Sighting, to_m: float = 4.5) -> bool:
    return abs(s.y_m) <= CORRIDOR_HALF_WIDTH_M and 0 < s.x_m < to_m


@pytest.mark.parametrize("distance_m", [1.2, 2.5, 4.0])
@pytest.mark.parametrize(
    ("bottom_m", "top_m", "band"),
    [
        (0.0, 0.30, Band.GROUND), (0.0, 1.7, Band.GROUND), (0.45, 0.7, Band.KNEE), (0.95, 1.2, Band.WAIST),
        (1.5, 1.8, Band.HEAD),
    ],
)  # fmt: skip
def test_a_thing_is_told_in_the_band_of_its_lowest_part(
    distance_m: float, bottom_m: float, top_m: float, band: Band
) -> None:
    thing = Box((distance_m, -0.25, bottom_m), (distance_m + 0.3, 0.25, top_m))
    (found,) = [s for s in see([floor_to(), thing]).obstacles if in_corridor(s)]
    assert found.band is band
    assert found.distance_m == pytest.approx(distance_m, rel=0.1)
    assert abs(found.y_m) < 0.28, "on its front"


def test_a_pole_is_found_at_four_metres() -> None:
    (found,) = [s for s in see([floor_to(), Box((4.0, -0.03, 0.0), (4.06, 0.03, 2.4))]).obstacles if in_corridor(s)]
    assert found.distance_m == pytest.approx(4.0, rel=0.08)
    assert found.width_m < 0.35


@pytest.mark.parametrize("side", [-1.0, 1.0])
def test_left_is_left_and_right_is_right(side: float) -> None:
    thing = Box((2.5, side * 0.9 - 0.2, 0.0), (2.8, side * 0.9 + 0.2, 1.0))
    (found,) = [s for s in see([floor_to(), thing]).obstacles if s.x_m < 5]
    assert math.copysign(1.0, found.y_m) == side, "the level frame's y points to the left"
    assert abs(found.y_m) > 0.6


def test_what_hangs_above_two_metres_is_no_obstacle() -> None:
    assert not [s for s in see([floor_to(), Box((2.5, -0.6, 2.12), (2.7, 0.6, 2.4))]).obstacles if in_corridor(s)]


@pytest.mark.parametrize("pitch_deg", [-20.0, -10.0, 5.0])
def test_an_empty_floor_has_no_obstacle_and_no_drop(pitch_deg: float) -> None:
    for seed in range(6):
        seen = see([floor_to()], Eye(pitch_deg=pitch_deg), seed)
        assert not [s for s in seen.obstacles if s.x_m < 6.0 and abs(s.y_m) < 2.0], f"seed {seed}"
        assert seen.drop_off is None, f"seed {seed}"


def test_a_wall_ahead_is_split_so_that_its_nearest_point_in_the_corridor_is_told() -> None:
    found = [s for s in see([floor_to(), Box((3.0, -5.0, 0.0), (4.0, 5.0, 3.0))]).obstacles if s.x_m < 5]
    inside = [s for s in found if in_corridor(s)]
    assert len(inside) == 1
    assert inside[0].distance_m == pytest.approx(3.0, rel=0.05)
    assert {math.copysign(1.0, s.y_m) for s in found if s is not inside[0]} == {-1.0, 1.0}


def test_walls_along_the_way_are_there_and_not_in_the_corridor() -> None:
    walls = [Box((-5.0, 1.0, 0.0), (20.0, 2.0, 3.0)), Box((-5.0, -2.5, 0.0), (20.0, -1.5, 3.0))]
    found = see([floor_to(), *walls]).obstacles
    assert any(s.y_m > 0.9 for s in found)
    assert any(s.y_m < -1.4 for s in found)
    assert not [s for s in found if in_corridor(s)]


def test_a_thing_half_in_the_corridor_is_told_where_it_is_in_it() -> None:
    found = see([floor_to(), Box((2.0, 0.2, 0.0), (2.4, 1.3, 0.9))]).obstacles
    (inside,) = [s for s in found if in_corridor(s)]
    assert 0.1 < inside.y_m < CORRIDOR_HALF_WIDTH_M
    assert inside.distance_m == pytest.approx(2.0, rel=0.07)


def test_what_is_joined_to_it_further_back_does_not_lower_a_thing_at_head_height() -> None:
    board, wall = Box((2.5, -0.4, 1.5), (2.8, 0.6, 1.8)), Box((-5.0, 0.6, 0.0), (20.0, 1.2, 3.0))
    (inside,) = [s for s in see([floor_to(), board, wall]).obstacles if in_corridor(s, 3.5)]
    assert inside.band is Band.HEAD


def test_the_nearest_point_of_a_turned_front_is_its_near_end_and_of_a_square_one_its_middle() -> None:
    across = np.linspace(-0.3, 0.3, 9)
    square = lay_front(np.full(9, 2.0), across, np.ones(9), 0.03, 0.0).nearest_to(0.0, 0.0)
    turned = lay_front(2.0 - 0.5 * across, across, np.ones(9), 0.01, 0.0).nearest_to(0.0, 0.0)
    assert square[1] == pytest.approx(0.0, abs=0.02)
    assert turned[1] > 0.2
    assert square[2] > turned[2], "how far along the front it may lie"


def test_columns_that_look_along_the_side_do_not_turn_a_front() -> None:
    across = np.linspace(-0.3, 0.3, 9)
    ahead = np.full(9, 2.0)
    ahead[-2:] = 2.15, 2.3  # the receding side of a box
    assert lay_front(ahead, across, np.ones(9), 0.02, 0.0).nearest_to(0.0, 0.0)[0] == pytest.approx(2.0, abs=0.02)


@pytest.mark.parametrize("side", [1.0, -1.0])
def test_the_nearest_point_of_a_corner_is_the_corner_on_either_side(side: float) -> None:
    bearing = np.radians(np.arange(31.5, 62.0, 1.5))
    distance = np.maximum(0.62 / np.sin(bearing), 0.66 / np.cos(bearing))  # a cabinet's side, then its face
    ahead, left = distance * np.cos(bearing), distance * np.sin(bearing)
    columns = slice(None, None, int(side))
    front = lay_front(ahead[columns], side * left[columns], np.ones(len(ahead)), 0.01, 0.0)
    x, y, _ = front.nearest_to(0.0, 0.0)
    assert (x, y) == (pytest.approx(0.66, abs=0.03), pytest.approx(side * 0.62, abs=0.03))


@settings(deadline=None)
@given(turn_deg=st.floats(-80.0, 80.0), bearing_deg=st.floats(-60.0, 60.0), halves=st.floats(0.05, 0.95))
def test_a_front_and_its_mirror_image_are_nearest_at_mirrored_places(
    turn_deg: float, bearing_deg: float, halves: float
) -> None:
    along = np.linspace(-halves, 1.0 - halves, 9)
    bearing, turn = math.radians(bearing_deg), math.radians(bearing_deg + 90.0 + turn_deg)
    x = 2.0 * math.cos(bearing) + along * math.cos(turn)
    y = 2.0 * math.sin(bearing) + along * math.sin(turn)
    weight = np.linspace(1.0, 2.0, 9)  # the middle of the columns isn't the middle of the front
    one = lay_front(x, y, weight, 0.01, 0.0).nearest_to(0.0, 0.0)
    other = lay_front(x[::-1], -y[::-1], weight[::-1], 0.01, 0.0).nearest_to(0.0, 0.0)
    assert (one[0], one[1]) == (pytest.approx(other[0], abs=1e-9), pytest.approx(-other[1], abs=1e-9))
    assert math.hypot(one[0], one[1]) <= np.hypot(x, y).min() + 0.02


def test_bands_follow_the_contract() -> None:
    assert [band_of(b) for b in (0.1, 0.34, 0.36, 0.79, 0.81, 1.39, 1.41)] == [
        Band.GROUND, Band.GROUND, Band.KNEE, Band.KNEE, Band.WAIST, Band.WAIST, Band.HEAD,
    ]  # fmt: skip


@pytest.mark.parametrize("edge_m", [1.5, 2.5, 3.0])
def test_a_step_down_of_one_riser_is_found_at_its_edge_in_most_looks(edge_m: float) -> None:
    looks = [see([floor_to(edge_m), floor_to(30.0, -0.17, edge_m)], seed=seed).drop_off for seed in range(5)]
    found = [drop_off for drop_off in looks if drop_off is not None]
    assert len(found) >= 4
    for drop_off in found:
        assert drop_off.thing is Thing.DROP_OFF
        assert drop_off.x_m == pytest.approx(edge_m, abs=0.25)
        assert drop_off.bottom_m == pytest.approx(-0.17, abs=0.06)


def stairs_from(edge_m: float) -> list[Box]:
    return [
        Box((edge_m + 0.28 * i, -5.0, -3.0), (edge_m + 0.28 * (i + 1), 5.0, -0.17 * (i + 1))) for i in range(10)
    ]  # fmt: skip


@pytest.mark.parametrize("edge_m", [1.5, 2.5, 3.5])
def test_stairs_going_down_are_a_drop(edge_m: float) -> None:
    found = see([floor_to(edge_m), *stairs_from(edge_m), floor_to(30.0, -1.7, edge_m + 2.8)]).drop_off
    assert found is not None
    assert found.x_m == pytest.approx(edge_m, abs=0.25)


def test_stairs_whose_foot_has_no_depth_are_a_drop_once_their_treads_come_into_view() -> None:
    found = see([floor_to(1.4), *stairs_from(1.4)]).drop_off
    assert found is not None
    assert found.x_m == pytest.approx(1.4, abs=0.2)


@pytest.mark.parametrize("textured", [False, True])
def test_points_below_the_floor_at_the_foot_of_a_wall_are_no_drop(textured: bool) -> None:
    """A plain wall's rim is matched too far away: that puts it below the floor, up to where the wall has no depth."""
    rim = [Box((2.5 + 0.1 * i, -5.0, -1.0), (2.6 + 0.1 * i, 5.0, -0.3 + 0.03 * i)) for i in range(4)]
    wall = Box((2.9, -5.0, -1.0), (3.5, 5.0, 3.0), textured)
    for seed in range(3):
        assert see([floor_to(2.5), *rim, wall], seed=seed).drop_off is None, f"seed {seed}"


def test_missing_depth_is_unknown_and_no_drop() -> None:
    seen = see([floor_to(2.0), floor_to(30.0, 0.0, 2.0, textured=False)])
    assert seen.drop_off is None
    assert seen.floor_to_m == pytest.approx(2.0, abs=0.2)
    assert seen.coverage.corridor_known < see([floor_to()]).coverage.corridor_known


def test_a_mirror_image_in_a_shiny_patch_is_no_drop() -> None:
    hole = Box((2.4, -0.12, -2.0), (3.2, 0.18, -1.6))  # seen as through the floor, in one lane
    around = [
        floor_to(2.4), floor_to(30.0, 0.0, 3.2),
        Box((2.4, -5.0, -1.0), (3.2, -0.12, 0.0)), Box((2.4, 0.18, -1.0), (3.2, 5.0, 0.0)),
    ]  # fmt: skip
    assert see([*around, hole]).drop_off is None


def test_a_ramp_of_one_in_twelve_is_no_drop() -> None:
    ramp = [Box((2.0 + 0.1 * i, -5.0, -3.0), (2.1 + 0.1 * i, 5.0, -0.1 * i / 12)) for i in range(60)]
    assert see([floor_to(2.0), *ramp]).drop_off is None


def test_a_plain_wall_ahead_leaves_the_corridor_unknown() -> None:
    seen = see([floor_to(), Box((2.0, -5.0, 0.0), (3.0, 5.0, 3.0), textured=False)])
    assert seen.coverage.corridor_known < 0.4
    assert not [s for s in seen.obstacles if in_corridor(s)]


def test_coverage_tells_bearings_elevations_and_head_height() -> None:
    ahead = see([floor_to()]).coverage
    assert ahead.left_deg == pytest.approx(-42, abs=3)
    assert ahead.right_deg == pytest.approx(42, abs=3)
    assert ahead.lowest_deg == pytest.approx(-60, abs=2)
    assert ahead.highest_deg == pytest.approx(22, abs=2)
    assert ahead.head_known
    turned = see([floor_to()], Eye(heading_deg=30.0)).coverage
    assert turned.left_deg == pytest.approx(-72, abs=4), "bearings are from the reference heading, not the nose"
    assert not see([floor_to()], stereo=Stereo(up_deg=-5.0)).coverage.head_known
