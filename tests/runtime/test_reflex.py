"""Frames and motion in, scenes out, on simulated walks with truth and on a real corridor."""

from __future__ import annotations

import functools
from dataclasses import replace

import numpy as np
import pytest
import world_looks
from numpy.typing import NDArray
from world_looks import Walked, walked

from handrail.benchmarks.scoring import Tally, score
from handrail.runtime.reflex.reflex import Reflex
from handrail.runtime.scene import Scene, Thing
from handrail.streams.errors import SourceError
from handrail.streams.samples import ImageFrame

U8 = NDArray[np.uint8]


def frame(pixels: U8, number: int = 0) -> ImageFrame:
    return ImageFrame(pixels, pixels.shape[1], pixels.shape[0], 1e-3, 1.0, number)


class Feed:
    """A walk's pairs and motion into a reflex, in the order in which they arrive: IMU up to 12 ms after a pair."""

    def __init__(self, walk: Walked, reflex: Reflex) -> None:
        self._walk, self._reflex = walk, reflex
        self._imu = list(walk.imu)
        self._poses = list(walk.poses)

    def see(self, pair: tuple[int, U8, U8], *, imu: bool = True) -> Scene:
        device_ns, left, right = pair
        while imu and self._imu and self._imu[0][1].device_ns[-1] <= device_ns + 12_000_000:
            self._reflex.imu(*self._imu.pop(0))
        while self._poses and self._poses[0].device_ns[-1] <= device_ns + 12_000_000:
            self._reflex.pose("vio", self._poses.pop(0))
        scene = self._reflex.pair(frame(left), frame(right), device_ns)
        self._reflex.rest()
        return scene


def scenes_of(walk: Walked, reflex: Reflex, *, imu: bool = True, frames: int | None = None) -> list[Scene]:
    feed = Feed(walk, reflex)
    return [feed.see(pair, imu=imu) for pair in walk.pairs[:frames]]


@functools.cache
def textured() -> tuple[Walked, list[Scene]]:
    """A walk into a knee-high box, met after 4.3 s."""
    walk = walked(6, "textured", 6.0)
    return walk, scenes_of(walk, Reflex(walk.rig))


def test_textured_obstacles_of_a_walk_are_found_where_they_are() -> None:
    _, scenes = textured()
    truth, tally = world_looks.truth(6, "textured", 6.0), Tally()
    for scene in scenes:
        tally.add(score(scene, truth))
    kinds = ("ground", "knee", "waist", "head")
    assert sum(tally.found.values()) > 20
    assert tally.recall(kinds) >= 0.9, tally.missed
    assert tally.precision(kinds) >= 0.9, tally.wrong


def test_a_scene_tells_the_wearers_height_speed_and_heading() -> None:
    _, scenes = textured()
    truth = world_looks.truth(6, "textured", 6.0)
    last, pose = scenes[-1].wearer, truth.pose_at(scenes[-1].device_ns)
    assert last.eye_height_m == pytest.approx(pose.eye_height_m, abs=0.04)
    assert last.speed_msec == pytest.approx(pose.speed_msec, abs=0.1)
    assert last.travel_rad is not None
    assert last.motion_from == "stereo"


def test_stairs_going_down_are_seen_from_three_metres_on() -> None:
    walk, truth = walked(26, "step-down", 5.0), world_looks.truth(26, "step-down", 5.0)
    (edge,) = [o for o in truth.obstacles if o.drop_off]
    asked = found = 0
    for scene in scenes_of(walk, Reflex(walk.rig))[6:]:  # gravity, floor and edge take half a second to be sure of
        distance = truth.seen_from(edge, scene.device_ns).distance_m
        drops = [o for o in scene.obstacles if o.thing is Thing.DROP_OFF and o.confirmed]
        assert all(abs(o.seen_from(scene.wearer)[0] - distance) < 0.5 for o in drops), "no false edges"
        if 0.8 < distance < 3.0:
            asked, found = asked + 1, found + bool(drops)
    assert asked > 8
    assert found >= 0.95 * asked


def test_without_imu_nothing_is_judged_and_the_scene_says_so() -> None:
    walk, _ = textured()
    scenes = scenes_of(walk, Reflex(walk.rig), imu=False, frames=3)
    assert all(s.coverage is None and s.obstacles == () for s in scenes)
    assert all(s.wearer.motion_from == "none" for s in scenes)


def test_a_black_frame_gives_a_scene_with_the_reason_and_the_next_good_one_sees_again() -> None:
    walk, _ = textured()
    reflex = Reflex(walk.rig)
    feed = Feed(walk, reflex)
    for pair in walk.pairs[:8]:
        feed.see(pair)
    device_ns, left, right = walk.pairs[8]
    dark = feed.see((device_ns, np.zeros_like(left), np.zeros_like(right)))
    assert dark.coverage is None
    assert dark.quality.reason == "dark"
    assert reflex.last_view is None
    assert feed.see(walk.pairs[9]).coverage is not None


def test_frames_that_were_not_decoded_are_told_as_mismatched() -> None:
    walk, _ = textured()
    reflex = Reflex(walk.rig)
    nothing = ImageFrame(None, 512, 512, 1e-3, 1.0, 0)
    scene = reflex.pair(nothing, nothing, walk.pairs[0][0])
    assert scene.quality.reason == "mismatched"
    assert scene.coverage is None


def test_after_a_seam_the_scene_starts_anew() -> None:
    walk, _ = textured()
    reflex = Reflex(walk.rig)
    before = scenes_of(walk, reflex, frames=10)[-1]
    assert before.obstacles
    reflex.reset()
    after = scenes_of(walk, reflex, frames=1)[0]
    assert all(o.looks == 1 for o in after.obstacles)
    assert after.wearer.eye_height_m is None


def test_a_rig_without_a_pair_is_refused() -> None:
    walk, _ = textured()
    blind = replace(walk.rig, cameras={k: c for k, c in walk.rig.cameras.items() if k != walk.rig.stereo_pair[1]})  # type: ignore[index]
    with pytest.raises(SourceError, match="SLAM pair"):
        Reflex(blind)


def test_durations_come_from_the_clock_that_is_given_and_never_reach_the_scene() -> None:
    walk, scenes = textured()
    ticks = iter(range(0, 10**9, 1_000_000))
    reflex = Reflex(walk.rig, clock_ns=lambda: next(ticks))
    assert scenes_of(walk, reflex, frames=4) == scenes[:4]
    assert reflex.stages_ms["ground"] == reflex.stages_ms["tracks"] == 1.0


def test_on_the_real_corridor_the_boxes_are_on_the_left_and_the_wall_on_the_right() -> None:
    walk = world_looks.corridor()
    first = scenes_of(walk, Reflex(walk.rig), frames=3)[-1]
    assert first.wearer.eye_height_m == pytest.approx(1.6, abs=0.08)
    sides = {o.id: o.seen_from(first.wearer) for o in first.obstacles if o.confirmed}
    assert any(d < 1.5 and b < -10 for d, b in sides.values()), "desk and boxes, near on the left"
    assert any(1.5 < d < 4.0 and 10 < b for d, b in sides.values()), "the wall ahead on the right"
    assert not [o for o in first.obstacles if o.thing is Thing.DROP_OFF]
