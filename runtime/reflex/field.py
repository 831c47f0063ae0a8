"""Every measured point as the wearer meets it: how far ahead, how far left, how high above the floor, how surely.

Knows no obstacles. "Ahead" is the reference heading (of travel while walking, of the nose while standing). Metres.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from handrail.runtime.reflex.ground import Floor
from handrail.runtime.reflex.rays import LevelRays

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Here:
    """Where the wearer stands and which way is ahead, level frame."""

    x_m: float  # of the eyes
    y_m: float
    reference_rad: float

    def to_level(self, ahead_m: float, left_m: float) -> tuple[float, float]:
        c, s = math.cos(self.reference_rad), math.sin(self.reference_rad)
        return self.x_m + ahead_m * c - left_m * s, self.y_m + ahead_m * s + left_m * c

    def from_level(self, x_m: float, y_m: float) -> tuple[float, float]:
        """(ahead_m, left_m)."""
        c, s = math.cos(self.reference_rad), math.sin(self.reference_rad)
        dx, dy = x_m - self.x_m, y_m - self.y_m
        return dx * c + dy * s, dy * c - dx * s


@dataclass(frozen=True, slots=True)
class Field:
    """N points, those with depth. All float32 [N]."""

    ahead_m: F32
    left_m: F32
    range_m: F32  # along the floor
    bearing_rad: F32  # to the left positive, from the reference heading
    height_m: F32  # above the floor
    sd_height_m: F32  # from the noise of depth
    sd_floor_m: F32  # from the floor's own uncertainty, common to neighbours
    area_m2: F32  # of a frontal surface that the point's pixel covers
    sd_inverse: float  # of 1/range, 1/m

    @classmethod
    def of(cls, rays: LevelRays, floor: Floor, here: Here) -> Field:
        known = np.isfinite(rays.inverse_rho)
        q = rays.inverse_rho[known]
        vx, vy, vz = rays.directions[0][known], rays.directions[1][known], rays.directions[2][known]
        rho = 1.0 / q
        x, y = rho * vx + np.float32(rays.origin_m[0]), rho * vy + np.float32(rays.origin_m[1])
        height = rho * vz + np.float32(rays.origin_m[2]) - floor.z_at(x, y)
        dx, dy = x - np.float32(here.x_m), y - np.float32(here.y_m)
        c, s = np.float32(math.cos(here.reference_rad)), np.float32(math.sin(here.reference_rad))
        ahead, left = c * dx + s * dy, c * dy - s * dx
        return cls(
            ahead_m=ahead,
            left_m=left,
            range_m=np.hypot(ahead, left),
            bearing_rad=np.arctan2(left, ahead),
            height_m=height,
            sd_height_m=np.abs(vz) * (rho * rho) * np.float32(rays.sd_inverse),
            sd_floor_m=np.sqrt(floor.variance_at(dx, dy)),
            area_m2=rho * rho * np.float32(rays.pixel_rad2),
            sd_inverse=rays.sd_inverse,
        )
