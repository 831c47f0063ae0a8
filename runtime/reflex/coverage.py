"""What this frame's depth could know: over which bearings and heights, and how much of the way ahead was measured.

What is outside is unknown, never free. Knows no obstacles. Degrees and metres as in ``scene.Coverage``.
"""

from __future__ import annotations

import math

import cv2
import numpy as np
from numpy.typing import NDArray

from handrail.runtime.reflex.drops import Strip, floor_seen_to_m
from handrail.runtime.reflex.field import Here
from handrail.runtime.reflex.ground import Floor
from handrail.runtime.reflex.rays import LevelRays
from handrail.runtime.scene import Coverage

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]

# Points in the walking corridor that a walker wants known: ahead, left, above the floor.
AHEAD_M = np.arange(1.0, 4.01, 0.25)
LEFT_M = np.array([-0.3, 0.0, 0.3])
ABOVE_M = np.array([0.0, 0.5, 1.0, 1.6])
PATCH = 7  # rays a side around such a point, a third of which must have depth
ASIDE_DEG = 3.0  # from the horizon, or from the middle of the view
SPARSE = 2  # every second row and column: half a degree
SOME = 17  # one ray in so many tells where the horizon and the middle are
HEAD_AHEAD_M, HEAD_ABOVE_M = 2.5, 1.7


def coverage(rays: LevelRays, floor: Floor, here: Here, strip: Strip) -> Coverage:
    left, right, lowest, highest = _limits(rays, here)
    return Coverage(
        left_deg=left, right_deg=right, lowest_deg=lowest, highest_deg=highest,
        corridor_known=_corridor_known(rays, floor, here),
        head_known=_head_known(rays, floor, here),
        floor_seen_to_m=floor_seen_to_m(strip) if floor.known else 0.0,
    )


def _limits(rays: LevelRays, here: Here) -> tuple[float, float, float, float]:
    """Bearings (left, right) near the horizon, elevations (lowest, highest) near the middle of the view, degrees."""
    visible = rays.visible[::SPARSE, ::SPARSE]
    x, y, z = (d[::SPARSE, ::SPARSE][visible] for d in rays.directions)
    if len(x) == 0:
        return 0.0, 0.0, 0.0, 0.0
    # Angles of some rays tell which ones to look at; of those, every angle counts.
    elevation = _elevation(x[::SOME], y[::SOME], z[::SOME])
    bearing = _bearing(x[::SOME], y[::SOME], here)
    nearest = math.radians(float(np.clip(0.0, elevation.min(), elevation.max())))
    lowest, highest = (math.tan(nearest + side * math.radians(ASIDE_DEG)) for side in (-1, 1))
    across = np.hypot(x, y)
    level = (z > np.float32(lowest) * across) & (z < np.float32(highest) * across)
    middle_rad = here.reference_rad - math.radians(float(np.median(bearing)))
    c, s = np.float32(math.cos(middle_rad)), np.float32(math.sin(middle_rad))
    middle = np.abs(c * y - s * x) < np.float32(math.tan(math.radians(ASIDE_DEG))) * (c * x + s * y)
    if not level.any() or not middle.any():
        return 0.0, 0.0, 0.0, 0.0
    bearing = _bearing(x[level], y[level], here)
    elevation = _elevation(x[middle], y[middle], z[middle])
    return (
        round(float(bearing.min()), 1), round(float(bearing.max()), 1),
        round(float(elevation.min()), 1), round(float(elevation.max()), 1),
    )


def _bearing(x: F32, y: F32, here: Here) -> F32:
    """Degrees, to the right positive."""
    c, s = np.float32(math.cos(here.reference_rad)), np.float32(math.sin(here.reference_rad))
    return np.degrees(np.arctan2(s * x - c * y, c * x + s * y))


def _elevation(x: F32, y: F32, z: F32) -> F32:
    return np.degrees(np.arctan2(z, np.hypot(x, y)))


def _corridor_known(rays: LevelRays, floor: Floor, here: Here) -> float:
    """Share of the corridor's points inside the view along whose rays something was measured (there or before)."""
    row, column, _, inside = rays.pixels_of(_corridor_points(floor, here, AHEAD_M, LEFT_M, ABOVE_M))
    if not inside.any():
        return 0.0
    known = np.isfinite(rays.inverse_rho).astype(np.float32)
    share = cv2.boxFilter(known, -1, (PATCH, PATCH), borderType=cv2.BORDER_REPLICATE)
    return round(float((share[row[inside], column[inside]] > 1 / 3).mean()), 3)


def _head_known(rays: LevelRays, floor: Floor, here: Here) -> bool:
    points = _corridor_points(floor, here, np.array([HEAD_AHEAD_M]), LEFT_M, np.array([HEAD_ABOVE_M]))
    return bool(rays.pixels_of(points)[3].all())


def _corridor_points(floor: Floor, here: Here, ahead_m: F64, left_m: F64, above_m: F64) -> F64:
    """[N, 3], level frame."""
    ahead, left, above = (a.ravel() for a in np.meshgrid(ahead_m, left_m, above_m, indexing="ij"))
    c, s = math.cos(here.reference_rad), math.sin(here.reference_rad)
    x, y = here.x_m + c * ahead - s * left, here.y_m + s * ahead + c * left
    z = floor.z_at(x.astype(np.float32), y.astype(np.float32)) + above
    return np.stack([x, y, z], axis=-1)
