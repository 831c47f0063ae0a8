"""Obstacles of any kind from one frame's points: what stands between the floor and the top of the head.

Points above the floor are counted in cells of bearing and range whose size follows the noise of depth; a cell counts
when it holds more than noise or a thing too small to matter would give; neighbouring cells make an obstacle. Its
nearest point lies inside the walking corridor when part of it does. Knows one frame only (``tracks`` knows time) and no
classes. Things wholly above 2 m are none. Metres, radians; bearings to the left positive as in ``field``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from handrail.runtime.reflex.field import Field, Here
from handrail.runtime.scene import BAND_TOPS_M, CORRIDOR_HALF_WIDTH_M, LOWEST_OBSTACLE_M, Band, Thing

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]
Mask = NDArray[np.bool_]
Labels = NDArray[np.int32]  # [BEARING_BINS, range bins], 0: none

NEAREST_M, FARTHEST_M = 0.35, 6.0
BEARING_STEP_RAD = math.radians(1.5)  # 0.1 m at 4 m
BEARING_BINS = 104  # +-78 degrees
HEIGHT_STEP_M = 0.05
HEIGHT_BINS = 42  # to 2.10 m
NOISE_SIGMAS, FLOOR_SIGMAS = 1.0, 2.0  # above LOWEST_OBSTACLE_M before a point counts as not floor
FEWEST_POINTS = 4  # in a cell and its neighbours in range
FEWEST_POINTS_IN_ALL = 10
THINNEST_M = 0.04  # a bar as thick as this across a cell's width is enough
LOW_SHARE = 0.3  # of a cell's points below knee height that must be above the floor: else it is the floor's noise
WIDE_M = 1.2  # wider or longer than this: split by the corridor's edges
# Errors of neighbouring columns go together in patches of a matching window, after averaging within a column.
PATCHES = 0.8
SLOPE_QUANTILES = np.array([-1.28, -0.52, 0.0, 0.52, 1.28])  # middles of five equal parts of a normal distribution
SOLID_POINTS = 150  # evidence that needs no second look when it is near


@dataclass(frozen=True, slots=True)
class Sighting:
    """One obstacle or drop-off in one frame, level frame."""

    thing: Thing
    band: Band
    x_m: float  # nearest point
    y_m: float
    distance_m: float
    distance_sd_m: float
    bearing_sd_rad: float
    centre_x_m: float  # of the surface seen
    centre_y_m: float
    width_m: float  # across the line of sight
    top_m: float
    bottom_m: float
    points: int
    whole: bool  # seen from edge to edge: its centre means something over time

    @property
    def solid(self) -> bool:
        return self.points >= SOLID_POINTS


@dataclass(frozen=True, slots=True)
class _Grid:
    """Cells [BEARING_BINS, range bins]."""

    points: F64
    area_m2: F64
    area_inverse: F64  # sum of area / range
    area_bearing: F64  # sum of area * bearing
    heights: F64  # [B, R, HEIGHT_BINS] area
    occupied: Mask
    edges_m: F64  # [R + 1]


def find_obstacles(field: Field, here: Here) -> list[Sighting]:
    """Nearest first."""
    grid = _grid(field)
    bridged = cv2.dilate(grid.occupied.astype(np.uint8), np.ones((3, 1), np.uint8))
    _, components = cv2.connectedComponents(bridged, connectivity=8)
    labels = np.where(grid.occupied, np.asarray(components, dtype=np.int32), 0)
    stixels = _stixels(grid, labels)
    found = []
    for label in np.unique(stixels.label):
        found += _sightings(grid, labels, stixels.of(int(label)), here, field.sd_inverse)
    return sorted(found, key=lambda s: (s.distance_m, s.x_m, s.y_m))


def band_of(bottom_m: float) -> Band:
    """The band of the lowest part that matters."""
    return next((band for band, top in BAND_TOPS_M.items() if bottom_m < top), Band.HEAD)


def range_edges(sd_inverse: float) -> F64:
    """Borders of the range bins: 8 cm near, one sigma of depth far."""
    edges = [NEAREST_M]
    while edges[-1] < FARTHEST_M:
        edges.append(edges[-1] + max(0.08, edges[-1] ** 2 * sd_inverse))
    return np.array(edges)


def _grid(field: Field) -> _Grid:
    edges = range_edges(field.sd_inverse)
    table = np.searchsorted(edges, np.arange(0.0, 50.0, 0.02), side="right") - 1  # by 2 cm of range
    bins = len(edges) - 1
    column = np.floor(field.bearing_rad * np.float32(1 / BEARING_STEP_RAD)).astype(np.int32) + BEARING_BINS // 2
    ring = table[np.minimum(field.range_m * np.float32(50.0), np.float32(len(table) - 1)).astype(np.int32)]
    inside = (column >= 0) & (column < BEARING_BINS) & (ring >= 0) & (ring < bins)
    cell = np.where(inside, column * bins + ring, -1)
    shape = (BEARING_BINS, bins)

    lifted = field.height_m - (NOISE_SIGMAS * field.sd_height_m + FLOOR_SIGMAS * field.sd_floor_m)
    stands = inside & (lifted > LOWEST_OBSTACLE_M) & (field.height_m < BAND_TOPS_M[Band.HEAD] + 0.03)
    knee = np.float32(BAND_TOPS_M[Band.GROUND])
    low_all = np.bincount(cell[inside & (field.height_m < knee)], minlength=shape[0] * bins).reshape(shape)

    at, area = cell[stands], field.area_m2[stands]
    height_bin = np.clip(field.height_m[stands] * np.float32(1 / HEIGHT_STEP_M), 0, HEIGHT_BINS - 1).astype(np.int32)

    def total(weights: NDArray[np.float32] | None) -> F64:
        return np.bincount(at, weights, minlength=shape[0] * bins).reshape(shape).astype(np.float64)

    points, areas = total(None), total(area)
    profile = np.bincount(at * HEIGHT_BINS + height_bin, area, minlength=shape[0] * bins * HEIGHT_BINS)
    heights = profile.reshape(*shape, HEIGHT_BINS).astype(np.float64)
    low = np.bincount(at[field.height_m[stands] < knee], minlength=shape[0] * bins).reshape(shape)

    middle = 0.5 * (edges[:-1] + edges[1:])
    enough = (_over_range(points) >= FEWEST_POINTS) & (points > 0)
    enough &= _over_range(areas) >= THINNEST_M * BEARING_STEP_RAD * middle
    tall = _over_range(points - low) >= FEWEST_POINTS
    above_noise = _over_range(low) >= LOW_SHARE * _over_range(low_all)
    return _Grid(
        points, areas, total(area / field.range_m[stands]), total(area * field.bearing_rad[stands]), heights,
        enough & (tall | above_noise), edges,
    )


def _over_range(cells: NDArray[np.float64] | NDArray[np.int64]) -> F64:
    """Sum of each cell and its two neighbours in range."""
    out = cells.astype(np.float64)
    out[:, 1:] += cells[:, :-1]
    out[:, :-1] += cells[:, 1:]
    return out


@dataclass(frozen=True, slots=True)
class _Stixels:
    """The front of each obstacle, one per column of bearing, [N] each, ordered by column."""

    label: I64
    column: I64
    range_m: F64
    bearing_rad: F64
    points: F64

    def of(self, label: int) -> _Stixels:
        return self.where(self.label == label)

    def where(self, m: Mask) -> _Stixels:
        return _Stixels(self.label[m], self.column[m], self.range_m[m], self.bearing_rad[m], self.points[m])

    @property
    def ahead_m(self) -> F64:
        return self.range_m * np.cos(self.bearing_rad)

    @property
    def left_m(self) -> F64:
        return self.range_m * np.sin(self.bearing_rad)


def _stixels(grid: _Grid, labels: Labels) -> _Stixels:
    """Per column and label: the first peak in range. Its mean over one bin on either side is free of the noise's bias,
    which the nearest point alone is not."""
    area = _over_range(grid.area_m2)
    rising = np.ones(area.shape, bool)
    rising[:, 1:] = area[:, 1:] >= area[:, :-1]
    falling = np.ones(area.shape, bool)
    falling[:, :-1] = area[:, :-1] >= area[:, 1:]
    column, ring = np.nonzero((labels > 0) & rising & falling)
    label = labels[column, ring].astype(np.int64)
    order = np.lexsort((ring, column, label))
    column, ring, label = column[order], ring[order], label[order]
    first = np.ones(len(label), bool)
    first[1:] = (label[1:] != label[:-1]) | (column[1:] != column[:-1])
    column, ring, label = column[first], ring[first], label[first]
    total = np.maximum(area[column, ring], 1e-9)
    inverse = _over_range(grid.area_inverse)[column, ring] / total
    bearing = _over_range(grid.area_bearing)[column, ring] / total
    points = _over_range(grid.points)[column, ring]
    return _Stixels(label, column, 1.0 / np.maximum(inverse, 1e-3), bearing, points)


def _sightings(grid: _Grid, labels: Labels, front: _Stixels, here: Here, sd_inverse: float) -> list[Sighting]:
    """One, or up to three where a wide thing crosses the corridor: its part left of it, in it, right of it."""
    inside = (np.abs(front.left_m) <= CORRIDOR_HALF_WIDTH_M) & (front.ahead_m > 0)
    wide = max(np.ptp(front.left_m), np.ptp(front.ahead_m)) > WIDE_M
    if not wide or inside.all() or not inside.any():
        near = inside if inside.any() else np.ones(len(inside), bool)
        parts = [(front, near)]
    else:
        left, right = ~inside & (front.left_m > 0), ~inside & (front.left_m <= 0)
        parts = [(front.where(m), np.ones(int(m.sum()), bool)) for m in (left, inside, right) if m.any()]
    out = []
    for part, near in parts:
        own = np.zeros(labels.shape, bool)
        own[part.column] = labels[part.column] == front.label[0]
        sighting = _sighting(grid, own, part, near, here, sd_inverse, whole=len(parts) == 1)
        if sighting is not None:
            out.append(sighting)
    return out


def _sighting(
    grid: _Grid, own: Mask, front: _Stixels, near: Mask, here: Here, sd_inverse: float, *, whole: bool
) -> Sighting | None:
    points = int(grid.points[own].sum())
    if points < FEWEST_POINTS_IN_ALL:
        return None
    bottom, top = _extent(grid.heights[own].sum(axis=0))
    ahead, left = _nearest(front.where(near), sd_inverse)
    distance = math.hypot(ahead, left)
    x, y = here.to_level(ahead, left)
    weight = front.points / front.points.sum()
    cx, cy = here.to_level(float(weight @ front.ahead_m), float(weight @ front.left_m))
    across = math.atan2(left, ahead)
    side = front.left_m * math.cos(across) - front.ahead_m * math.sin(across)
    cell = distance * BEARING_STEP_RAD
    edge = front.column[0] <= 1 or front.column[-1] >= BEARING_BINS - 2
    return Sighting(
        thing=Thing.OBSTACLE, band=band_of(bottom), x_m=x, y_m=y, distance_m=distance,
        distance_sd_m=distance**2 * sd_inverse * math.sqrt(0.1 + 1.0 / len(front.label)) + 0.02,
        bearing_sd_rad=BEARING_STEP_RAD * 0.5 + 0.1 * float(np.ptp(front.bearing_rad)),
        centre_x_m=cx, centre_y_m=cy, width_m=float(np.ptp(side)) + cell, top_m=top, bottom_m=bottom,
        points=points, whole=whole and not edge,
    )


def _extent(heights: F64) -> tuple[float, float]:
    """(bottom, top) in metres of a profile of area over height, leaving out a few per cent at both ends."""
    share = np.cumsum(heights) / heights.sum()
    first = int(np.searchsorted(share, 0.03))
    last = int(np.searchsorted(share, 0.98))
    return first * HEIGHT_STEP_M, (last + 1) * HEIGHT_STEP_M


def _nearest(front: _Stixels, sd_inverse: float) -> tuple[float, float]:
    """(ahead, left) of the nearest point: on a line through the near part of the front.

    The minimum of noisy ranges would be too near, and anywhere along a surface that faces the wearer. So the foot of
    the perpendicular is averaged over the slopes that the noise allows, each kept within the surface's ends: where the
    slope is poorly known this is the middle, where it is well known the near end.
    """
    ahead, left = front.ahead_m, front.left_m
    order = np.argsort(front.range_m, kind="stable")
    reach = front.range_m[order[min(1, len(order) - 1)]]
    sd = reach**2 * sd_inverse
    near = front.range_m < reach + max(0.25, 2.0 * sd)
    weight = front.points[near] / front.points[near].sum()
    a, b = ahead[near], left[near]
    ma, mb = float(weight @ a), float(weight @ b)
    if len(a) < 3:
        return ma, mb
    da, db = a - ma, b - mb
    angle = 0.5 * math.atan2(2.0 * float(weight @ (da * db)), float(weight @ (da * da) - weight @ (db * db)))
    spread = math.sqrt(max(float(weight @ (da * math.cos(angle) + db * math.sin(angle)) ** 2), 1e-6))
    sd_angle = PATCHES * sd / (spread * math.sqrt(len(a)))
    angles = angle + sd_angle * SLOPE_QUANTILES  # [5]
    ua, ub = np.cos(angles), np.sin(angles)
    along = np.outer(ua, da) + np.outer(ub, db)  # [5, N]
    foot = np.clip(-(ma * ua + mb * ub), along.min(axis=1), along.max(axis=1))
    return ma + float((foot * ua).mean()), mb + float((foot * ub).mean())
