"""Which box of a picture is which obstacle of the scene, by geometry alone.

A box gives directions: of its left, right, top and bottom side. Put at an obstacle's distance it also has a size. It is
that obstacle when all of this holds:

- the obstacle's nearest point lies between the box's sides, and it isn't much wider than the box at its distance
- the box, at that distance, is as tall and wide as such a thing can be (a pole before a bus is no bus of 1 m)
- where the foot of the box is in the picture, the floor there is as far away as the obstacle; where it is cut off, the
  obstacle isn't farther than the last of the floor that is seen
- the obstacle fills a good part of the box's height, and lies in it for the most part (a bag before a person is no
  person, a bar above one neither)

Several may fit one box, pieces of one thing or what stands close to it. The nearest is taken: it is what the box would
show, as what is nearer hides what is behind, and what warnings are about. Obstacles choose nearest first; of several
boxes the one with the highest score, and each box is used once. A box that fits nothing gives nothing: labels never
make obstacles. Without a known floor nothing is matched. Knows no time beyond the picture's.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import NDArray

from handrail.runtime.labels.detector import Box
from handrail.runtime.labels.names import SAID, Said
from handrail.runtime.labels.view import View
from handrail.runtime.scene import BAND_TOPS_M, LOWEST_OBSTACLE_M, Band, Obstacle, Scene, Thing, Wearer

F64 = NDArray[np.float64]

UNSEEN_NS = 500_000_000  # an obstacle that stereo hasn't seen for longer may be elsewhere
ASIDE_DEG = 2.0  # boxes are a few pixels off, the nose's heading too
WIDER, WIDER_M = 1.3, 0.2  # than the box: cells and blur make things wider
SIZE_SLACK = 1.2
FOOT_RATIO, FOOT_M = 1.2, 0.3  # between the floor under the box and the obstacle
CUT_SHARE = 0.015  # of the picture's height: a side so near to the border is cut off
FILLED, INSIDE = 0.25, 0.5
TALLEST_M = 2.0  # above it the reflex has no obstacles


@dataclass(frozen=True, slots=True)
class Named:
    name: str  # as it is said
    score: float


@dataclass(frozen=True, slots=True)
class Looked:
    """What one look says."""

    seen: frozenset[int]  # ids of obstacles that lay inside the picture
    named: Mapping[int, Named]  # of these, the ones with a box


@dataclass(frozen=True, slots=True)
class _Sides:
    """A box as directions from the camera."""

    said: Said
    score: float
    left_deg: float
    right_deg: float
    top_deg: float
    bottom_deg: float
    top_cut: bool
    bottom_cut: bool


@dataclass(frozen=True, slots=True)
class _Place:
    """An obstacle as seen from the camera."""

    obstacle: Obstacle
    azimuth_deg: float
    distance_m: float  # along the floor


def match(boxes: Sequence[Box], view: View, scene: Scene, device_ns: int) -> Looked:
    """``scene``: the one nearest to the picture's capture, ``device_ns``; between the two the nose turns on."""
    w, eye_height_m = scene.wearer, scene.wearer.eye_height_m
    if eye_height_m is None:
        return Looked(frozenset(), {})
    ahead_s = (device_ns - scene.device_ns) / 1e9
    w = msgspec.structs.replace(w, nose_rad=w.nose_rad + w.turn_rate_radsec * ahead_s)
    there = [
        o for o in scene.obstacles
        if o.thing is Thing.OBSTACLE and scene.device_ns - o.last_device_ns <= UNSEEN_NS
    ]  # fmt: skip
    places = _places(there, w, eye_height_m, view)
    sides = _sides([box for box in boxes if box.label in SAID], view, w.pitch_rad)
    camera_m = eye_height_m + float(view.camera_m(w.pitch_rad)[2])
    named: dict[int, Named] = {}
    for place in sorted(places, key=lambda p: (p.distance_m, p.obstacle.id)):
        fitting = [s for s in sides if _fits(place, s, camera_m)]
        if fitting:
            best = max(fitting, key=lambda s: s.score)
            sides.remove(best)
            named[place.obstacle.id] = Named(best.said.name, best.score)
    return Looked(frozenset(p.obstacle.id for p in places), named)


def _places(obstacles: Sequence[Obstacle], w: Wearer, eye_height_m: float, view: View) -> list[_Place]:
    """Of those whose middle lies inside the picture."""
    if not obstacles:
        return []
    dx, dy, height = np.array([
        (o.x_m - w.x_m, o.y_m - w.y_m, 0.5 * (o.top_m + o.bottom_m) - eye_height_m) for o in obstacles
    ]).T  # fmt: skip
    c, s = math.cos(w.nose_rad), math.sin(w.nose_rad)
    middles = np.stack([dx * c + dy * s, dy * c - dx * s, height], axis=1)  # [N, 3]
    _, seen = view.place(middles, w.pitch_rad)
    azimuth, _, distance = view.towards(middles, w.pitch_rad)
    return [_Place(o, float(azimuth[i]), max(float(distance[i]), 0.1)) for i, o in enumerate(obstacles) if seen[i]]


def _sides(boxes: Sequence[Box], view: View, pitch_rad: float) -> list[_Sides]:
    """Directions of the middles of their four sides; a side at the border, or of the lens circle, is cut off. All at
    once: the way from pixels to rays takes half a millisecond, for one as for a hundred."""
    if not boxes:
        return []
    left, top, right, bottom = np.array([(b.left, b.top, b.right, b.bottom) for b in boxes]).T
    x, y = 0.5 * (left + right), 0.5 * (top + bottom)
    middles = np.stack([[left, y], [right, y], [x, top], [x, bottom]]).transpose(2, 0, 1)  # [N, 4, 2]
    azimuth, elevation = view.look(np.clip(middles, 0.0, [view.width - 1, view.height - 1]), pitch_rad)
    beyond_px = CUT_SHARE * view.height
    seen = view.sees(middles[:, 2:] + np.array([[0.0, -beyond_px], [0.0, beyond_px]]))  # [N, 2]
    return [
        _Sides(
            SAID[b.label], b.score, float(azimuth[i, 0]), float(azimuth[i, 1]), float(elevation[i, 2]),
            float(elevation[i, 3]), not seen[i, 0], not seen[i, 1],
        )
        for i, b in enumerate(boxes)
    ]  # fmt: skip


def _fits(place: _Place, s: _Sides, camera_m: float) -> bool:
    """``camera_m``: height of the camera above the floor."""
    o, distance_m = place.obstacle, place.distance_m
    slack_deg = ASIDE_DEG + min(o.bearing_sd_deg, ASIDE_DEG)
    if not s.left_deg - slack_deg <= place.azimuth_deg <= s.right_deg + slack_deg:
        return False
    wide_m = 2 * distance_m * math.tan(math.radians(min(s.right_deg - s.left_deg, 150.0)) / 2)
    if o.width_m > WIDER * wide_m + WIDER_M or wide_m > SIZE_SLACK * s.said.widest_m:
        return False
    return _foot_fits(distance_m, s, camera_m) and _height_fits(o, distance_m, s, camera_m)


def _foot_fits(distance_m: float, s: _Sides, camera_m: float) -> bool:
    foot_m = camera_m / math.tan(math.radians(-s.bottom_deg)) if s.bottom_deg < -1.0 else math.inf
    nearer = distance_m <= FOOT_RATIO * foot_m + FOOT_M
    return nearer and (s.bottom_cut or foot_m <= FOOT_RATIO * distance_m + FOOT_M)


def _height_fits(o: Obstacle, distance_m: float, s: _Sides, camera_m: float) -> bool:
    top_m = camera_m + distance_m * math.tan(math.radians(s.top_deg))
    bottom_m = camera_m + distance_m * math.tan(math.radians(s.bottom_deg))
    stands_m = 0.0 if s.bottom_cut else bottom_m
    tall_m = top_m - stands_m
    if tall_m > SIZE_SLACK * s.said.most_m or (tall_m * SIZE_SLACK < s.said.least_m and not s.top_cut):
        return False
    low_m, high_m = max(stands_m, LOWEST_OBSTACLE_M), min(top_m, TALLEST_M)
    # What stands on the floor is seen from where its noise ends: up to 0.3 m for things of 0.4 m.
    own_low_m = o.bottom_m if o.bottom_m > BAND_TOPS_M[Band.GROUND] else LOWEST_OBSTACLE_M
    shared_m = min(o.top_m, high_m) - max(own_low_m, low_m)
    own_m = max(o.top_m - own_low_m, 0.05)
    return shared_m >= FILLED * (high_m - low_m) and shared_m >= INSIDE * own_m and high_m > low_m
