"""A scene against the truth of a simulated walk: what was found, what was missed and why, what isn't there.

Pure functions. An obstacle is *expected* when it reaches into the walking corridor (by the true heading of travel)
between 0.6 and 4 m, hasn't been run into, and is visible to the stereo pair; what was seen before and is out of view
now counts neither as found nor as missed. A report is *judged* when it is confirmed and lies in that corridor at 0.6 to
4 m. They match with the same height band (the lowest that the thing reaches into), bearing within 5 degrees and
distance within 15 %. A flat front has many points that are nearest but for a few centimetres: the bearing may be that
of any point of it, in the corridor, within 5 % of the nearest distance; ``strict`` counts those that match the very
nearest point. Knows nothing of speech or time. Metres, degrees clockwise from the reference heading.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from handrail.runtime.scene import CORRIDOR_HALF_WIDTH_M, Obstacle, Scene, Thing, wrap_deg
from handrail.streams.world.solids import clip_strip, nearest_point
from handrail.streams.world.truth import Sighting, TrueObstacle, TruePose, Truth

REACH_M = 4.0
NEAREST_M = 0.6  # nearer, the toes are at it and 5 degrees are 5 cm: too late to tell, too fine to ask for
BEARING_DEG = 5.0
DISTANCE_SHARE = 0.15
PASSED_M = 0.7  # behind something run into
NEARLY = 1.05  # as near as the nearest, for telling where a thing is
NEARBY_M = 1.0  # a report this near to something true is about that thing, however wrong


@dataclass(frozen=True, slots=True)
class Found:
    kind: str  # of the truth
    index: int
    expected: bool  # False: true, but out of sight now, or beyond: counts for precision alone
    distance_m: float  # true
    distance_error_m: float
    bearing_error_deg: float
    strict: bool  # within BEARING_DEG of the very nearest point


@dataclass(frozen=True, slots=True)
class Missed:
    kind: str
    index: int
    distance_m: float
    reason: str  # "nothing", "unconfirmed", "band", "bearing", "distance", "thing", "taken"


@dataclass(frozen=True, slots=True)
class Wrong:
    """A report that matches nothing. ``kind``: of the true thing it is about, "phantom" when there is none near."""

    kind: str
    index: int | None
    obstacle: Obstacle
    reason: str  # "phantom", "double", else as for a miss


@dataclass(frozen=True, slots=True)
class FrameScore:
    found: tuple[Found, ...]
    missed: tuple[Missed, ...]
    wrong: tuple[Wrong, ...]


def score(scene: Scene, truth: Truth) -> FrameScore:
    """One frame; nothing is counted while the walker is going through an obstacle.

    Each true obstacle is matched by the report that fits it best, each report used once."""
    pose = truth.pose_at(scene.device_ns)
    if _inside(truth, pose):
        return FrameScore((), (), ())
    reference = pose.nose_rad if scene.wearer.travel_rad is None else pose.travel_rad
    seen = {
        o.index: _where(truth.seen_from(o, scene.device_ns, reference), o, pose, reference) for o in truth.obstacles
    }
    expected = [
        o for o in truth.obstacles
        if _in_reach(seen[o.index]) and not _touched(o, scene) and truth.visible_to_pair(o, scene.device_ns)
    ]
    expected_indices = {o.index for o in expected}
    reports = [(o, *o.seen_from(scene.wearer)) for o in scene.obstacles]
    confirmed = [r for r in reports if r[0].confirmed]

    fits = sorted(
        (abs(d - seen[o.index].distance_m) + abs(_off(b, seen[o.index])) / 30.0, o.index, i)
        for i, (report, d, b) in enumerate(confirmed)
        for o in truth.obstacles
        if _mismatch(report, d, b, o, seen[o.index]) is None
    )
    report_of: dict[int, int] = {}
    used: set[int] = set()
    for _, index, i in fits:
        if index not in report_of and i not in used:
            report_of[index] = i
            used.add(i)

    by_index = {o.index: o for o in truth.obstacles}
    found = []
    for index, i in sorted(report_of.items()):
        _, d, b = confirmed[i]
        if index in expected_indices or _judged(d, b, reference, pose):
            s = seen[index]
            found.append(Found(
                by_index[index].kind, index, index in expected_indices, s.distance_m, d - s.distance_m, _off(b, s),
                abs(wrap_deg(b - s.bearing_deg)) <= BEARING_DEG,
            ))
    missed = [
        Missed(o.kind, o.index, seen[o.index].distance_m, _why_missed(o, seen[o.index], reports))
        for o in expected if o.index not in report_of
    ]
    wrong = [
        _wrong(report, d, b, truth.obstacles, seen, set(report_of))
        for i, (report, d, b) in enumerate(confirmed)
        if i not in used and _judged(d, b, reference, pose)
    ]
    wrong = [w for w in wrong if w.index is None or not _touched(by_index[w.index], scene)]
    return FrameScore(tuple(found), tuple(missed), tuple(wrong))


@dataclass(slots=True)
class Tally:
    """Frames added up. ``kinds`` in its methods: of the true things; None: all but what stands aside."""

    found: Counter[str] = field(default_factory=Counter)  # expected and found, by kind
    strict: Counter[str] = field(default_factory=Counter)  # of those found
    remembered: Counter[str] = field(default_factory=Counter)  # right, but not expected in that frame
    missed: Counter[tuple[str, str]] = field(default_factory=Counter)  # (kind, reason)
    wrong: Counter[tuple[str, str]] = field(default_factory=Counter)

    def add(self, frame: FrameScore) -> None:
        for f in frame.found:
            (self.found if f.expected else self.remembered)[f.kind] += 1
            self.strict[f.kind] += f.expected and f.strict
        self.missed.update((m.kind, m.reason) for m in frame.missed)
        self.wrong.update((w.kind, w.reason) for w in frame.wrong)

    def recall(self, kinds: Iterable[str], *, strict: bool = False) -> float:
        """NaN when none of these kinds was expected."""
        wanted = set(kinds)
        hits = sum(n for kind, n in (self.strict if strict else self.found).items() if kind in wanted)
        misses = sum(n for (kind, _), n in self.missed.items() if kind in wanted)
        expected = misses + sum(n for kind, n in self.found.items() if kind in wanted)
        return hits / expected if expected else math.nan

    def precision(self, kinds: Iterable[str]) -> float:
        """Phantoms count against every kind. NaN when nothing was reported."""
        wanted = set(kinds)
        hits = sum(n for kind, n in (self.found + self.remembered).items() if kind in wanted)
        wrong = sum(n for (kind, _), n in self.wrong.items() if kind in wanted or kind == "phantom")
        return hits / (hits + wrong) if hits + wrong else math.nan


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a true thing is from the wearer: nearest point, and the bearings of all that is nearly as near."""

    distance_m: float
    bearing_deg: float
    in_corridor: bool
    left_deg: float  # from that of the nearest point, at most 0
    right_deg: float


def _where(s: Sighting, o: TrueObstacle, pose: TruePose, reference_rad: float) -> _Place:
    c, d = math.cos(pose.travel_rad), math.sin(pose.travel_rad)
    path = (o.prism.footprint - pose.T_world_cpf[:2, 3]) @ np.array([[c, -d], [d, c]])  # ahead, left
    if s.in_corridor:
        path = clip_strip(path, 1, -CORRIDOR_HALF_WIDTH_M, CORRIDOR_HALF_WIDTH_M)
        path = clip_strip(path, 0, 0.0, math.inf)
    share = np.linspace(0.0, 1.0, 41)[:, None, None]
    outline = (path + share * (np.roll(path, -1, axis=0) - path)).reshape(-1, 2)
    near = outline[np.hypot(*outline.T) <= NEARLY * s.distance_m + 1e-9]
    bearing = np.degrees(reference_rad - pose.travel_rad - np.arctan2(near[:, 1], near[:, 0]))
    off = (bearing - s.bearing_deg + 180.0) % 360.0 - 180.0
    left, right = (float(off.min()), float(off.max())) if len(off) else (0.0, 0.0)
    return _Place(s.distance_m, s.bearing_deg, s.in_corridor, min(left, 0.0), max(right, 0.0))


def _inside(truth: Truth, pose: TruePose) -> bool:
    """Whether the eyes are in, or just behind, what the walker has run into: no frame like that can be."""
    for o in truth.obstacles:
        if o.contact_ns is None or o.drop_off or pose.device_ns < o.contact_ns:
            continue
        if np.hypot(*(nearest_point(o.prism.footprint, pose.T_world_cpf[:2, 3]) - pose.T_world_cpf[:2, 3])) < PASSED_M:
            return True
    return False


def _touched(o: TrueObstacle, scene: Scene) -> bool:
    """The simulated walker goes on through what it runs into: from there on the frames show what can't be."""
    return o.contact_ns is not None and scene.device_ns >= o.contact_ns


def _in_reach(s: _Place) -> bool:
    return s.in_corridor and NEAREST_M <= s.distance_m <= REACH_M


def _judged(distance_m: float, bearing_deg: float, reference_rad: float, pose: TruePose) -> bool:
    """Whether a report lies in the true walking corridor."""
    off = math.radians(bearing_deg) - reference_rad + pose.travel_rad
    ahead, aside = distance_m * math.cos(off), distance_m * math.sin(off)
    return NEAREST_M <= distance_m <= REACH_M and ahead > 0 and abs(aside) <= CORRIDOR_HALF_WIDTH_M


def _off(bearing_deg: float, s: _Place) -> float:
    """Degrees beyond the bearings that are right."""
    off = wrap_deg(bearing_deg - s.bearing_deg)
    return off - min(max(off, s.left_deg), s.right_deg)


def _mismatch(report: Obstacle, distance_m: float, bearing_deg: float, o: TrueObstacle, s: _Place) -> str | None:
    """Why a report is not this true obstacle, None when it is."""
    if (report.thing is Thing.DROP_OFF) != o.drop_off:
        return "thing"
    if abs(distance_m - s.distance_m) > DISTANCE_SHARE * s.distance_m:
        return "distance"
    if abs(_off(bearing_deg, s)) > BEARING_DEG:
        return "bearing"
    if not o.drop_off and (not o.bands or report.band.value != o.bands[0]):
        return "band"
    return None


def _apart_m(distance_m: float, bearing_deg: float, s: _Place) -> float:
    a, b = math.radians(bearing_deg), math.radians(s.bearing_deg)
    return float(np.hypot(
        distance_m * math.cos(a) - s.distance_m * math.cos(b), distance_m * math.sin(a) - s.distance_m * math.sin(b)
    ))


_NEARLY = ("taken", "unconfirmed", "band", "bearing", "distance", "thing")  # the nearest to a match first


def _why_missed(o: TrueObstacle, s: _Place, reports: list[tuple[Obstacle, float, float]]) -> str:
    reasons = set()
    for report, d, b in reports:
        if _apart_m(d, b, s) > NEARBY_M:
            continue
        mismatch = _mismatch(report, d, b, o, s)
        reasons.add(mismatch or ("taken" if report.confirmed else "unconfirmed"))
    return next((r for r in _NEARLY if r in reasons), "nothing")


def _wrong(
    report: Obstacle, d: float, b: float, truths: tuple[TrueObstacle, ...], seen: dict[int, _Place], matched: set[int]
) -> Wrong:
    near = [(_apart_m(d, b, seen[o.index]), o.index, o) for o in truths]
    if not near or min(near)[0] > NEARBY_M:
        return Wrong("phantom", None, report, "phantom")
    _, index, o = min(near)
    reason = "double" if index in matched else _mismatch(report, d, b, o, seen[index]) or "double"
    return Wrong(o.kind, index, report, reason)
