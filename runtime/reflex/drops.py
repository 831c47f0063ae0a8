"""The strip of floor ahead: how far it is seen, and where it ends in a drop.

Pixels are sorted by where their rays would meet the floor, in three lanes across the walking corridor. A drop-off is a
step between what lies before an edge and what is measured below it behind the edge, in two lanes at least; comparing
neighbours keeps the floor's tilt out of it. What lies below must look like a lower floor or stairs: measured without
gaps, nowhere back up, not rising. Missing depth alone is unknown, never a drop; a mirror image in a shiny floor fills
no lane; at the foot of a plain wall its rim is matched too far away, so points lie below the floor there for a few
decimetres, and behind them the wall rises or has no depth. Holes shorter than ``LOWER_ROWS`` are not told. Knows one
frame. Metres.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from handrail.runtime.reflex.field import Here
from handrail.runtime.reflex.ground import Floor
from handrail.runtime.reflex.obstacles import Sighting
from handrail.runtime.reflex.rays import LevelRays
from handrail.runtime.scene import CORRIDOR_HALF_WIDTH_M, Band, Thing

F64 = NDArray[np.float64]

LANES = 3  # across the corridor, 0.3 m each
ROW_M, ROWS = 0.1, 50  # along it, to 5 m
SMALLEST_DROP_M = 0.11  # between a ramp with the noise of depth and a riser
STEP_M = 0.17  # a stair's riser: half of it tells above from below
FARTHEST_DROP_M = 4.2
FEWEST_POINTS = 8  # in a lane's window
BEFORE_ROWS, AFTER_ROWS = 6, 3
LOWER_ROWS = 8  # behind an edge, where all has to lie lower; at a plain wall's foot a false depth ends sooner
DENSE_SHARE = 0.6  # of the rays over the edge that have depth: stairs give 0.95, plain walls less than half
LOWER_SHARE = 0.8  # of those with depth
RISE_M, RISE_SHARE = 0.05, 0.1  # noise of a surface's height, and what it grows by with depth below the floor
UNDER_FLOOR_M = 0.06
DEEPEST_M, HIGHEST_M = -2.0, 0.3  # of a point, in its cell's mean
FLOOR_OFF_M = 0.2  # how far the ground before an edge may be off the floor's plane: gravity takes a second to be found


@dataclass(frozen=True, slots=True)
class Strip:
    """Counts [LANES, ROWS] of pixels whose rays meet the floor there."""

    visible: F64
    known: F64
    on_floor: F64
    height_m: F64  # mean height above the floor of the known ones (each within -2 to 0.3), 0 where there are none


def look_at_floor(rays: LevelRays, floor: Floor, here: Here) -> Strip:
    top = _first_row_down(rays)
    v = rays.directions[:, top:]  # [3, R, C]
    down = rays.visible[top:] & (v[2] < -0.05)
    origin_z = rays.origin_m[2] - floor.z_m  # the camera is the floor's reference point
    q_floor = (-v[2] + np.float32(floor.slope_x) * v[0] + np.float32(floor.slope_y) * v[1]) / np.float32(origin_z)
    rho = 1.0 / np.maximum(q_floor, 1e-3)
    dx = rho * v[0] + np.float32(rays.origin_m[0] - here.x_m)
    dy = rho * v[1] + np.float32(rays.origin_m[1] - here.y_m)
    c, s = np.float32(math.cos(here.reference_rad)), np.float32(math.sin(here.reference_rad))
    ahead, left = c * dx + s * dy, c * dy - s * dx
    lane = np.floor((left + CORRIDOR_HALF_WIDTH_M) * (LANES / (2 * CORRIDOR_HALF_WIDTH_M))).astype(np.int32)
    row = (ahead / ROW_M).astype(np.int32)
    inside = down & (lane >= 0) & (lane < LANES) & (ahead > 0) & (row < ROWS)
    cell = (lane * ROWS + row)[inside]  # [N]
    q, q_floor = rays.inverse_rho[top:][inside], q_floor[inside]
    known = np.isfinite(q)
    # Height of the measured point over the floor: the ray climbs (q_floor - q) / q_floor of the way.
    with np.errstate(divide="ignore", invalid="ignore"):
        height = np.float32(origin_z) * (1.0 - q_floor / q)
    half = np.float32(STEP_M / 2)
    on_floor = known & (np.abs(height) < half)

    def count(mask: NDArray[np.bool_], weights: NDArray[np.float32] | None = None) -> F64:
        w = None if weights is None else weights[mask]
        return np.bincount(cell[mask], w, minlength=LANES * ROWS).reshape(LANES, ROWS).astype(np.float64)

    everything = np.ones(len(cell), bool)
    n = count(known)
    mean = count(known, np.clip(height, DEEPEST_M, HIGHEST_M)) / np.maximum(n, 1.0)
    return Strip(count(everything), n, count(on_floor), mean)


def _first_row_down(rays: LevelRays) -> int:
    """Rows above it see no floor."""
    down = rays.directions[2].min(axis=1) < -0.05
    return int(np.argmax(down)) if down.any() else len(down)


def floor_seen_to_m(strip: Strip) -> float:
    """Along the corridor, bridging gaps of up to half a metre; 0 when no floor was seen."""
    known, floor = strip.known.sum(axis=0), strip.on_floor.sum(axis=0)
    seen = np.flatnonzero((known >= 6) & (floor >= 0.5 * known))
    if len(seen) == 0:
        return 0.0
    gaps = np.flatnonzero(np.diff(seen) > 5)
    last = seen[gaps[0]] if len(gaps) else seen[-1]
    return float((last + 1) * ROW_M)


def find_drop_off(strip: Strip, floor: Floor, here: Here, sd_inverse: float) -> Sighting | None:
    """The nearest edge in the corridor, None when there is none or the floor isn't known."""
    if not floor.known:
        return None
    edges = [_edge(strip, lane) for lane in range(LANES)]
    lanes = [i for i, edge in enumerate(edges) if edge is not None]
    rows = [edge.row for edge in edges if edge is not None]
    if len(lanes) < 2 or max(rows) - min(rows) > 8:
        return None
    for i, edge in enumerate(edges):
        if edge is None and _goes_on(strip, i, max(rows)):
            return None
    behind = slice(max(rows), max(rows) + 2 * AFTER_ROWS)
    n = float(strip.known[lanes, behind].sum())
    depth = float((strip.height_m[lanes, behind] * strip.known[lanes, behind]).sum()) / max(n, 1.0)
    floor_before = float(np.mean([edge.floor_m for edge in edges if edge is not None]))
    # Behind a low box the floor is lower than the box's top: a drop lies below the floor itself.
    if depth - floor_before > -SMALLEST_DROP_M or depth > -UNDER_FLOOR_M:
        return None
    depth -= floor_before
    row = min(rows)
    centre = float(np.mean([lanes[k] for k in range(len(rows)) if rows[k] <= row + 1]))
    ahead = row * ROW_M
    left = (centre + 0.5) * (2 * CORRIDOR_HALF_WIDTH_M / LANES) - CORRIDOR_HALF_WIDTH_M
    distance = math.hypot(ahead, left)
    x, y = here.to_level(ahead, left)
    return Sighting(
        thing=Thing.DROP_OFF, band=Band.GROUND, x_m=x, y_m=y, distance_m=distance,
        distance_sd_m=ROW_M + 0.5 * distance**2 * sd_inverse, bearing_sd_rad=0.15 / max(distance, 0.3),
        centre_x_m=x, centre_y_m=y, width_m=len(lanes) * 2 * CORRIDOR_HALF_WIDTH_M / LANES,
        top_m=0.0, bottom_m=depth, points=int(n), whole=False,
    )


@dataclass(frozen=True, slots=True)
class _Edge:
    row: int
    floor_m: float  # height of the ground before it, over the floor's plane


def _edge(strip: Strip, lane: int) -> _Edge | None:
    """The first edge in one lane: floor before it, and behind it all that is measured lies below that floor."""
    height_m, known = strip.height_m[lane], strip.known[lane]
    for row in _perhaps(height_m, known):
        before, behind = slice(row - BEFORE_ROWS, row), slice(row, row + AFTER_ROWS)
        n_before, n_behind = known[before].sum(), known[behind].sum()
        floor = float(height_m[before] @ known[before]) / n_before
        level = known[before] @ (np.abs(height_m[before] - floor) < STEP_M / 2)
        if abs(floor) > FLOOR_OFF_M or level < 0.6 * n_before:
            continue
        below = height_m[behind] < floor - STEP_M / 2
        drop = floor - float(height_m[behind] @ known[behind]) / n_behind
        if below[0] and known[behind] @ below >= 0.65 * n_behind and drop > SMALLEST_DROP_M:
            if _falls_away(strip, lane, row, floor):
                return _Edge(row, floor)
    return None


def _perhaps(height_m: F64, known: F64) -> list[int]:
    """Rows of one lane that are lower than what is before them by about a drop: few, and none where floor goes on."""
    n = np.concatenate([[0.0], np.cumsum(known)])
    total = np.concatenate([[0.0], np.cumsum(height_m * known)])
    row = np.arange(BEFORE_ROWS, min(ROWS - AFTER_ROWS, round(FARTHEST_DROP_M / ROW_M)))
    n_before, n_behind = n[row] - n[row - BEFORE_ROWS], n[row + AFTER_ROWS] - n[row]
    before = (total[row] - total[row - BEFORE_ROWS]) / np.maximum(n_before, 1.0)
    behind = (total[row + AFTER_ROWS] - total[row]) / np.maximum(n_behind, 1.0)
    enough = (n_before >= FEWEST_POINTS) & (n_behind >= FEWEST_POINTS) & (known[row] > 0)
    return [int(r) for r in row[enough & (before - behind > SMALLEST_DROP_M - 1e-6)]]


def _falls_away(strip: Strip, lane: int, row: int, floor_m: float) -> bool:
    """Whether the rays over an edge see a lower surface: all along, nothing standing there, and level or descending.

    They pass over the edge up to knee height, so that a thing or a wall in its place shows among them, or as a gap.
    """
    behind = slice(row, row + LOWER_ROWS)
    height_m, known = strip.height_m[lane, behind], strip.known[lane, behind]
    n = known.sum()
    lower = known @ (height_m < floor_m - STEP_M / 2)
    if n < DENSE_SHARE * strip.visible[lane, behind].sum() or lower < LOWER_SHARE * n:
        return False
    half = len(known) // 2
    n_near, n_far = known[:half].sum(), known[half:].sum()
    if n_near == 0 or n_far == 0:
        return False
    near, far = float(height_m[:half] @ known[:half]) / n_near, float(height_m[half:] @ known[half:]) / n_far
    return bool(far < near + RISE_M + RISE_SHARE * max(0.0, floor_m - near))


def _goes_on(strip: Strip, lane: int, row: int) -> bool:
    """Whether floor is seen in this lane behind the edge that other lanes have."""
    behind = slice(row, row + 2 * AFTER_ROWS)
    return bool(strip.on_floor[lane, behind].sum() > 0.5 * max(strip.known[lane, behind].sum(), FEWEST_POINTS))
