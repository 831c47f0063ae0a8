"""The scorer, on scenes made from the truth itself and spoilt on purpose."""

from __future__ import annotations

import functools
import math

import pytest

from handrail.benchmarks.scoring import FrameScore, Tally, score
from handrail.runtime.scene import Band, FrameQuality, Obstacle, Scene, Thing, Wearer
from handrail.streams.world.truth import TrueObstacle, Truth, truth_of

USABLE = FrameQuality(100.0, 40.0, 1.0, True, None)


@functools.cache
def truth() -> Truth:
    return truth_of("6", {"kind": "textured", "seconds": "6"})


@functools.cache
def moment() -> tuple[int, TrueObstacle]:
    """A time at which the one obstacle is some 2.5 m ahead, and that obstacle."""
    (ahead,) = [o for o in truth().obstacles if o.contact_ns is not None]
    at = truth().first_device_ns
    while truth().seen_from(ahead, at).distance_m > 2.5:
        at += 50_000_000
    return at, ahead


def scene(*reports: tuple[float, float, Band, bool]) -> Scene:
    """Reports (distance factor, bearing off in degrees, band, confirmed) of the obstacle, by a wearer who walks."""
    at, ahead = moment()
    place, pose = truth().seen_from(ahead, at), truth().pose_at(at)
    wearer = Wearer(0.0, 0.0, 1.6, pose.nose_rad, pose.travel_rad, 1.2, 0.05, 0.0, 0.0, 0.0, "stereo")
    obstacles = []
    for i, (factor, off_deg, band, confirmed) in enumerate(reports):
        angle = pose.travel_rad - math.radians(place.bearing_deg + off_deg)
        d = place.distance_m * factor
        obstacles.append(Obstacle(
            i + 1, Thing.OBSTACLE, band, d * math.cos(angle), d * math.sin(angle), 0.1, 1.0, 0.5, 0.6, 0.1, 0.0, 0.0,
            False, 5, confirmed, at, at,
        ))  # fmt: skip
    return Scene(at, wearer, tuple(obstacles), None, USABLE)


def judged(*reports: tuple[float, float, Band, bool]) -> FrameScore:
    return score(scene(*reports), truth())


def test_the_truth_reported_is_found() -> None:
    result = judged((1.0, 0.0, Band.GROUND, True))
    assert [(f.expected, f.strict) for f in result.found] == [(True, True)]
    assert not result.missed
    assert not result.wrong


@pytest.mark.parametrize(
    ("report", "reason"),
    [
        ((0.8, 0.0, Band.GROUND, True), "distance"),
        ((1.0, 0.0, Band.WAIST, True), "band"),
        ((1.0, 0.0, Band.GROUND, False), "unconfirmed"),
    ],
)
def test_what_is_told_wrongly_is_missed_and_says_why(report: tuple[float, float, Band, bool], reason: str) -> None:
    result = judged(report)
    assert [m.reason for m in result.missed] == [reason]
    assert [w.reason for w in result.wrong] == ([] if reason == "unconfirmed" else [reason])


def test_silence_is_a_miss() -> None:
    assert [m.reason for m in judged().missed] == ["nothing"]


def test_the_same_thing_told_twice_is_once_wrong() -> None:
    result = judged((1.0, 0.0, Band.GROUND, True), (1.05, 1.0, Band.GROUND, True))
    assert len(result.found) == 1
    assert [w.reason for w in result.wrong] == ["double"]


def test_a_report_where_nothing_is_counts_as_a_phantom() -> None:
    result = judged((1.0, 0.0, Band.GROUND, True), (0.5, 0.0, Band.GROUND, True))
    assert [w.kind for w in result.wrong] == ["phantom"]


def test_any_point_of_a_front_that_is_as_near_as_the_nearest_is_right_but_not_strictly() -> None:
    found = [judged((1.0, off, Band.GROUND, True)).found for off in range(-15, 16)]
    right = [bool(f) for f in found]
    strict = [bool(f) and f[0].strict for f in found]
    assert sum(strict) == 11, "five degrees to either side"
    assert sum(right) > sum(strict)
    assert not right[0] or not right[-1]


def test_tallies_add_up() -> None:
    tally = Tally()
    for result in (judged((1.0, 0.0, Band.GROUND, True)), judged(), judged((0.8, 0.0, Band.GROUND, True))):
        tally.add(result)
    kind = moment()[1].kind
    assert tally.recall([kind]) == pytest.approx(1 / 3)
    assert tally.precision([kind]) == pytest.approx(1 / 2)
    assert math.isnan(tally.recall(["pole"]))
