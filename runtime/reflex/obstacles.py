"""Obstacles of any kind from one frame's points: what stands between the floor and the top of the head.

Points above the floor are counted in cells of bearing and range whose size follows the noise of depth; a cell counts
when it holds more than noise or a thing too small to matter would give; neighbouring cells make an obstacle. Its
nearest point lies inside the walking corridor when part of it does. Knows one frame only (``tracks`` knows time) and no
classes. Things wholly above 2 m are none. Metres, radians; bearings to the left positive as in ``field``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import cv2
import numpy as np
from numpy.typing import NDArray

from handrail.runtime.reflex.field import Field, Here
from handrail.runtime.reflex.front import Front, lay_front
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
FACE_M = 0.03  # as LOWEST_OBSTACLE_M, for where a thing is rather than whether
FEWEST_POINTS = 4  # in a cell and its neighbours in range
FEWEST_POINTS_IN_ALL = 10
HINT = 0.5  # of what a cell needs, to be worth remembering until the next look
RAISED_M = 0.5 * LOWEST_OBSTACLE_M  # average height of the face of the lowest thing that matters
FEWEST_RAISED, TOGETHER = 8, 6.0  # points; so many of them err together
SMALLEST_M2 = 0.015  # of frontal surface: slivers at the edges of what is near are stereo's
THINNEST_M = 0.04  # a bar as thick as this across a cell's width is enough
LOW_SHARE = 0.3  # of a cell's points below knee height that must be above the floor: else it is the floor's noise
WIDE_M = 1.2  # wider or longer than this: split by the corridor's edges
BESIDE_M = 0.15  # nearer to the corridor, its parts beside would be told as second things in it
RISE_SHARE = 0.4  # of the densest of the next bins: where a column's front begins
COLUMN_SIGMAS = 0.4  # noise of a column's average in sigmas of one point: points in a patch err together
COLUMN_POINTS = 20  # from so many on
STRAY_SHARE = 0.03
THIN_M = 0.25
HANGS_M = 0.3  # a lower one may reach down to the floor, whose noise is cut off
FAT_RAD = 0.007  # a row and a half: matching windows see that much beyond an edge
COMMON = 0.1  # error common to all columns, in variances of one column's depth
BAR_M, BAR_COMMON = 0.15, 2.0  # high: with nothing above and below to be matched by
DEEP_M = 0.6  # how far behind its front an obstacle's height is taken from


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
    front: Front | None = None  # level frame; of its part in the corridor if any


@dataclass(frozen=True, slots=True)
class _Grid:
    """Cells [BEARING_BINS, range bins]."""

    points: F64
    area_m2: F64
    area_inverse: F64  # sum of area / range
    area_bearing: F64  # sum of area * bearing
    heights: F64  # [B, R, HEIGHT_BINS] area
    occupied: Mask
    hinted: Mask  # not occupied, but by half of what that takes
    raised: Mask  # not occupied, but what is low there lies higher than the floor
    edges_m: F64  # [R + 1]

    def left_m(self) -> F64:
        """How far aside each cell is, [B, R], without sign."""
        bearing = (np.arange(BEARING_BINS) + 0.5 - BEARING_BINS // 2) * BEARING_STEP_RAD
        return np.asarray(np.abs(np.outer(np.sin(bearing), 0.5 * (self.edges_m[1:] + self.edges_m[:-1]))))


@dataclass(frozen=True, slots=True)
class Found:
    sightings: list[Sighting]  # nearest first
    hints: F64  # [N, 3] places with some evidence for a sighting: level x, y; its height, NaN: any


def find_obstacles(field: Field, here: Here) -> Found:
    grid = _grid(field)
    bridged = cv2.dilate(grid.occupied.astype(np.uint8), np.ones((3, 3), np.uint8))
    _, components = cv2.connectedComponents(bridged, connectivity=8)
    labels = np.where(grid.occupied, np.asarray(components, dtype=np.int32), 0)
    stixels = _stixels(grid, labels)
    found = []
    for label in np.unique(stixels.label):
        found += _sightings(grid, labels, stixels.of(int(label)), here, field.sd_inverse)
    return Found(sorted(found, key=lambda s: (s.distance_m, s.x_m, s.y_m)), _hints(grid, here))


def _hints(grid: _Grid, here: Here) -> F64:
    column, ring = np.nonzero(grid.hinted | grid.raised)
    height_m = np.where(grid.hinted[column, ring], np.nan, LOWEST_OBSTACLE_M)  # what is low tells nothing of what hangs
    bearing = (column + 0.5 - BEARING_BINS // 2) * BEARING_STEP_RAD
    range_m = 0.5 * (grid.edges_m[ring] + grid.edges_m[ring + 1])
    turned = here.reference_rad + bearing
    return np.stack([here.x_m + range_m * np.cos(turned), here.y_m + range_m * np.sin(turned), height_m], axis=-1)


def band_of(bottom_m: float) -> Band:
    """The band of the lowest part that matters."""
    return next((band for band, top in BAND_TOPS_M.items() if bottom_m < top), Band.HEAD)


def range_edges(sd_inverse: float) -> F64:
    """Borders of the range bins: 4 cm near, one sigma of depth far."""
    edges = [NEAREST_M]
    while edges[-1] < FARTHEST_M:
        edges.append(edges[-1] + max(0.04, edges[-1] ** 2 * sd_inverse))
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
    low_down = inside & (field.height_m < knee)
    low_cell = cell[low_down]
    low_all = np.bincount(low_cell, minlength=shape[0] * bins).reshape(shape)

    at, area = cell[stands], field.area_m2[stands]
    height_bin = np.clip(field.height_m[stands] * np.float32(1 / HEIGHT_STEP_M), 0, HEIGHT_BINS - 1).astype(np.int32)

    def total(cells: NDArray[np.int64], weights: NDArray[np.float32] | None) -> F64:
        return np.bincount(cells, weights, minlength=shape[0] * bins).reshape(shape).astype(np.float64)

    points, areas = total(at, None), total(at, area)
    profile = np.bincount(at * HEIGHT_BINS + height_bin, area, minlength=shape[0] * bins * HEIGHT_BINS)
    heights = profile.reshape(*shape, HEIGHT_BINS).astype(np.float64)
    low = np.bincount(at[field.height_m[stands] < knee], minlength=shape[0] * bins).reshape(shape)

    middle = 0.5 * (edges[:-1] + edges[1:])
    near_points, near_areas, near_low = _over_range(points), _over_range(areas), _over_range(low)
    near_tall, near_low_all = _over_range(points - low), _over_range(low_all)

    def standing(share: float) -> Mask:
        enough = (points > 0) & (near_points >= share * FEWEST_POINTS)
        enough &= near_areas >= share * THINNEST_M * BEARING_STEP_RAD * middle
        above_noise = near_low >= share * LOW_SHARE * near_low_all
        return np.asarray(enough & ((near_tall >= share * FEWEST_POINTS) | above_noise))

    def raised() -> Mask:
        """Where all that is low, on average, lies higher than the floor's noise: a low thing that few points show."""
        n = np.maximum(near_low_all, 1.0)
        mean = _over_range(total(low_cell, (field.height_m - FLOOR_SIGMAS * field.sd_floor_m)[low_down])) / n
        sd = _over_range(total(low_cell, field.sd_height_m[low_down])) / n * np.sqrt(TOGETHER / n)
        return np.asarray((near_low_all >= FEWEST_RAISED) & (mean - NOISE_SIGMAS * sd > RAISED_M))

    occupied = standing(1.0)
    # Where a low thing is has to be told from its face too, not from its top alone, which reaches further back.
    face = inside & (lifted > FACE_M) & (field.height_m < BAND_TOPS_M[Band.HEAD] + 0.03)
    at, area = cell[face], field.area_m2[face]
    return _Grid(
        points, total(at, area), total(at, area / field.range_m[face]), total(at, area * field.bearing_rad[face]),
        heights, occupied, standing(HINT) & ~occupied, raised() & ~occupied, edges,
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
    """Per column and label: the first rise in range, averaged over three bins. The nearest point alone would be biased
    by noise, the peak alone by what lies behind the edge: a table top is as dense at its end as at its front."""
    area = np.pad(np.where(labels > 0, grid.area_m2, 0.0), ((0, 0), (0, 2)))
    ahead = np.maximum(np.maximum(area[:, :-2], area[:, 1:-1]), area[:, 2:])
    column, ring = np.nonzero((labels > 0) & (area[:, :-2] >= RISE_SHARE * ahead))
    label = labels[column, ring].astype(np.int64)
    order = np.lexsort((ring, column, label))
    column, ring, label = column[order], ring[order], label[order]
    first = np.ones(len(label), bool)
    first[1:] = (label[1:] != label[:-1]) | (column[1:] != column[:-1])
    column, ring, label = column[first], ring[first], label[first]
    total = np.maximum(_three(grid.area_m2, column, ring), 1e-9)
    inverse = _three(grid.area_inverse, column, ring) / total
    bearing = _three(grid.area_bearing, column, ring) / total
    points = _three(grid.points, column, ring)
    # A surface that goes on behind its front (a box's top, seen from above) draws that average back by a bin.
    densest = np.maximum(ahead[column, ring], 1e-9)
    goes_on = np.clip(np.pad(area, ((0, 0), (0, 3)))[column, ring + 4] / densest, 0.0, 1.0)
    step = grid.edges_m[ring + 1] - grid.edges_m[ring]
    return _Stixels(label, column, 1.0 / np.maximum(inverse, 1e-3) - goes_on * step, bearing, points)


def _three(cells: F64, column: I64, ring: I64) -> F64:
    """Sums of each ring and the two behind it."""
    padded = np.pad(cells, ((0, 0), (0, 2)))
    total: F64 = padded[column, ring] + padded[column, ring + 1] + padded[column, ring + 2]
    return total


def _sightings(grid: _Grid, labels: Labels, front: _Stixels, here: Here, sd_inverse: float) -> list[Sighting]:
    """One, or up to three where a wide thing crosses the corridor: its part left of it, in it, right of it."""
    inside = (np.abs(front.left_m) <= CORRIDOR_HALF_WIDTH_M) & (front.ahead_m > 0)
    wide = max(np.ptp(front.left_m), np.ptp(front.ahead_m)) > WIDE_M
    if not wide or inside.all() or not inside.any():
        near = inside if inside.any() else np.ones(len(inside), bool)
        parts = [(front, near)]
    else:
        beside = np.abs(front.left_m) > CORRIDOR_HALF_WIDTH_M + BESIDE_M
        left, right = beside & (front.left_m > 0), beside & (front.left_m <= 0)
        parts = [(front.where(m), np.ones(int(m.sum()), bool)) for m in (left, inside, right) if m.any()]
    out = []
    for part, near in parts:
        own = np.zeros(labels.shape, bool)
        # What lies far behind the front in the same direction isn't what one walks into, though it may be joined to it.
        nearby = grid.edges_m[None, :-1] < (part.range_m + DEEP_M)[:, None]
        own[part.column] = (labels[part.column] == front.label[0]) & nearby
        if wide and abs(part.left_m).max() <= CORRIDOR_HALF_WIDTH_M < abs(front.left_m).max():
            own &= grid.left_m() <= CORRIDOR_HALF_WIDTH_M
        sighting = _sighting(grid, own, part, near, here, sd_inverse, whole=len(parts) == 1)
        if sighting is not None:
            out.append(sighting)
    return out


def _sighting(
    grid: _Grid, own: Mask, front: _Stixels, near: Mask, here: Here, sd_inverse: float, *, whole: bool
) -> Sighting | None:
    points = int(grid.points[own].sum())
    heights = grid.heights[own].sum(axis=0)
    if points < FEWEST_POINTS_IN_ALL or heights.sum() < SMALLEST_M2:
        return None
    face = _front(front.where(near), sd_inverse)
    ahead, left, slide = face.nearest_to(0.0, 0.0)
    distance = math.hypot(ahead, left)
    bottom, top = _extent(heights, distance)
    x, y = here.to_level(ahead, left)
    face_x, face_y = here.to_level(face.x_m, face.y_m)
    weight = front.points / front.points.sum()
    cx, cy = here.to_level(float(weight @ front.ahead_m), float(weight @ front.left_m))
    common = BAR_COMMON if bottom > HANGS_M and top - bottom < BAR_M else COMMON
    across = math.atan2(left, ahead)
    side = front.left_m * math.cos(across) - front.ahead_m * math.sin(across)
    cell = distance * BEARING_STEP_RAD
    edge = front.column[0] <= 1 or front.column[-1] >= BEARING_BINS - 2
    return Sighting(
        thing=Thing.OBSTACLE, band=band_of(bottom), x_m=x, y_m=y, distance_m=distance,
        distance_sd_m=distance**2 * sd_inverse * math.sqrt(common + 1.0 / len(front.label)) + 0.02,
        bearing_sd_rad=0.5 * BEARING_STEP_RAD + slide / max(distance, 0.3),
        centre_x_m=cx, centre_y_m=cy, width_m=float(np.ptp(side)) + cell, top_m=top, bottom_m=bottom,
        points=points, whole=whole and not edge,
        front=replace(face, x_m=face_x, y_m=face_y, angle_rad=face.angle_rad + here.reference_rad),
    )


def _extent(heights: F64, distance_m: float) -> tuple[float, float]:
    """(bottom, top) in metres of a profile [HEIGHT_BINS] of area over height, without stray matches at either end."""
    share = np.cumsum(heights) / heights.sum()
    first = int(np.searchsorted(share, STRAY_SHARE))
    last = int(np.searchsorted(share, 1.0 - STRAY_SHARE))
    bottom, top = first * HEIGHT_STEP_M, (last + 1) * HEIGHT_STEP_M
    fat = FAT_RAD * distance_m
    if top - bottom > THIN_M:
        # How full the lowest bin is tells where in it the thing begins.
        full = max(float(np.median(heights[first + 1 : first + 5])), 1e-9)
        begins = (1.0 - min(float(heights[first]) / full, 1.0)) * HEIGHT_STEP_M
        return bottom + (begins + fat if bottom > HANGS_M else 0.0), top
    # Of a thin thing whole bins would be a good part: its spread tells its extent more finely.
    weight = heights[first : last + 1] / heights[first : last + 1].sum()
    centre = (np.arange(first, last + 1) + 0.5) * HEIGHT_STEP_M
    middle = float(weight @ centre)
    half = math.sqrt(3.0 * float(weight @ (centre - middle) ** 2) + 0.25 * HEIGHT_STEP_M**2)
    half = max(half - fat, 0.02)
    return middle - half, middle + half


def _front(columns: _Stixels, sd_inverse: float) -> Front:
    """Of the near part of an obstacle; x ahead, y left."""
    order = np.argsort(columns.range_m, kind="stable")
    reach = float(columns.range_m[order[min(1, len(order) - 1)]])
    few = math.sqrt(COLUMN_POINTS / max(float(np.median(columns.points)), 1.0))  # of a bar: hardly an average
    noise = COLUMN_SIGMAS * min(max(few, 1.0), 1.0 / COLUMN_SIGMAS) * reach**2 * sd_inverse + 0.005
    near = columns.range_m < reach + max(0.25, 5.0 * noise)
    end = 0.25 * BEARING_STEP_RAD * reach
    return lay_front(columns.ahead_m[near], columns.left_m[near], columns.points[near], noise, end)
