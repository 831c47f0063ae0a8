"""Questions to one frame's rays about places: is what one would see there, before it, beside it or under it in view?

Knows sightings and remembered things by their place and extent, and nothing of time. Metres, level frame.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from handrail.runtime.reflex.drops import LANES, ROW_M, ROWS, Strip
from handrail.runtime.reflex.field import Here
from handrail.runtime.reflex.ground import Floor
from handrail.runtime.reflex.obstacles import Sighting
from handrail.runtime.reflex.rays import LevelRays
from handrail.runtime.scene import CORRIDOR_HALF_WIDTH_M, Thing

F64 = NDArray[np.float64]
Mask = NDArray[np.bool_]

PROBES = 5  # heights at which the rays are asked about a thing


class Remembered(Protocol):
    """What a track tells about itself."""

    @property
    def id(self) -> int: ...
    @property
    def thing(self) -> Thing: ...
    @property
    def at(self) -> F64: ...  # [2] nearest point
    @property
    def bottom_m(self) -> float: ...
    @property
    def top_m(self) -> float: ...


def along_across(at: F64, here: Here) -> tuple[F64, F64]:
    """Unit vectors along and across the line of sight."""
    d = at - np.array([here.x_m, here.y_m])
    d = d / max(math.hypot(*d), 1e-6)
    return d, np.array([-d[1], d[0]])


def bottom_seen(sightings: list[Sighting], rays: LevelRays, floor: Floor) -> Mask:
    """[N] whether depth shows what is under a sighting's lowest part: else it may reach further down."""
    if not sightings or not floor.known:
        return np.zeros(len(sightings), bool)
    xy = np.array([[s.x_m, s.y_m] for s in sightings])
    z = floor.z_at(xy[:, 0].astype(np.float32), xy[:, 1].astype(np.float32))
    under = z + np.array([max(s.bottom_m - 0.15, 0.0) for s in sightings])
    row, column, inverse, inside = rays.pixels_of(np.column_stack([xy, under]))
    seen = rays.inverse_rho[row, column]
    return np.asarray(inside & (seen < inverse + 3.0 * rays.sd_inverse))  # False where NaN


def front_seen(sightings: list[Sighting], rays: LevelRays, floor: Floor, here: Here) -> Mask:
    """[N] whether the view reaches nearer than a sighting's nearest point, at its top, and beyond both ends of its
    front: else a nearer part may be out of view."""
    if not sightings:
        return np.zeros(0, bool)
    around = np.array([_around(s, here) for s in sightings])  # [N, 3, 2]
    z = floor.z_at(around[..., 0].astype(np.float32), around[..., 1].astype(np.float32)).astype(np.float64)
    tops = np.array([max(s.top_m - 0.05, s.bottom_m) for s in sightings])
    points = np.concatenate([around, (z + tops[:, None])[..., None]], axis=-1)
    return np.asarray(rays.pixels_of(points)[3].all(axis=1))


def sides_seen(sightings: list[Sighting], rays: LevelRays, floor: Floor, here: Here) -> Mask:
    """[N] whether the view reaches beyond a sighting on both sides: else its centre moves with the view's edge."""
    if not sightings:
        return np.zeros(0, bool)
    xy = np.array([[s.centre_x_m, s.centre_y_m] for s in sightings])
    across = np.array([along_across(at, here)[1] for at in xy])
    half = np.array([0.5 * s.width_m + 0.15 for s in sightings])[:, None] * across
    ends = np.stack([xy - half, xy + half], axis=1)  # [N, 2, 2]
    z = floor.z_at(ends[..., 0].astype(np.float32), ends[..., 1].astype(np.float32)).astype(np.float64)
    middle = z + np.array([0.5 * (s.bottom_m + s.top_m) for s in sightings])[:, None]
    return np.asarray(rays.pixels_of(np.concatenate([ends, middle[..., None]], axis=-1))[3].all(axis=1))


def _around(s: Sighting, here: Here) -> list[tuple[float, float]]:
    """Places just before a sighting's nearest point and just beyond its ends."""
    toward = max(s.distance_m - 0.12, 0.05) / max(s.distance_m, 0.05)
    before = here.x_m + (s.x_m - here.x_m) * toward, here.y_m + (s.y_m - here.y_m) * toward
    if s.front is None:
        return [before] * 3
    c, d = math.cos(s.front.angle_rad), math.sin(s.front.angle_rad)
    foot = (s.x_m - s.front.x_m) * c + (s.y_m - s.front.y_m) * d
    ends = [
        end + beyond if abs(end - foot) < 0.2 else foot  # the other end may be out of view: it isn't the near one
        for end, beyond in ((s.front.low_m, -0.08), (s.front.high_m, 0.08))
    ]
    return [before, *((s.front.x_m + c * end, s.front.y_m + d * end) for end in ends)]


def look_through(
    tracks: Sequence[Remembered], rays: LevelRays, strip: Strip, floor: Floor, here: Here
) -> dict[int, str]:
    """Track id -> "through" (rays end behind its place), "there", "unknown" (no depth), absent: out of view, hidden."""
    things = [t for t in tracks if t.thing is Thing.OBSTACLE]
    edges = [t for t in tracks if t.thing is Thing.DROP_OFF] if floor.known else []
    states = {t.id: state for t in edges if (state := _floor_there(t, strip, here)) is not None}
    if not things:
        return states
    xy = np.array([t.at for t in things])
    z = floor.z_at(xy[:, 0].astype(np.float32), xy[:, 1].astype(np.float32))
    parts = np.linspace(0.1, 0.9, PROBES)
    heights = np.array([[t.bottom_m + p * (t.top_m - t.bottom_m) for p in parts] for t in things])
    points = np.concatenate(
        [np.repeat(xy[:, None, :], PROBES, axis=1), (z[:, None] + heights)[..., None]], axis=-1
    )  # [N, PROBES, 3]
    row, column, inverse, inside = rays.pixels_of(points)
    seen = rays.inverse_rho[row, column]
    known = inside & np.isfinite(seen)
    slack = 3.0 * rays.sd_inverse + 0.08 * inverse
    through = known & (seen < inverse - slack)
    there = known & (np.abs(seen - inverse) <= slack)
    for i, t in enumerate(things):
        if through[i].sum() >= 3 and through[i].sum() > 2 * there[i].sum():
            states[t.id] = "through"
        elif there[i].any():
            states[t.id] = "there"
        elif inside[i].any() and not known[i].any():
            states[t.id] = "unknown"
    return states


def _floor_there(t: Remembered, strip: Strip, here: Here) -> str | None:
    """For a drop-off: "through" where floor goes on behind its edge."""
    ahead, left = here.from_level(*t.at)
    lane = math.floor((left + CORRIDOR_HALF_WIDTH_M) * LANES / (2 * CORRIDOR_HALF_WIDTH_M))
    row = math.floor(ahead / ROW_M)
    if not (0 <= lane < LANES and 0 <= row < ROWS - 4):
        return None
    behind = slice(row + 1, row + 7)
    known = strip.known[lane, behind].sum()
    if known < 8:
        return "unknown" if strip.visible[lane, behind].sum() >= 8 else None
    return "through" if strip.on_floor[lane, behind].sum() > 0.7 * known else "there"
