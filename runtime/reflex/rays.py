"""One frame's depth as rays in the level frame: what ground, obstacles and coverage all start from.

A pixel sees the point ``origin + rho * direction``. Noise lives in the inverse of rho (disparity), where it is the same
for near and far; that is why the stages downstream compare inverse distances. Knows nothing of floor or things.
Metres; ``inverse_rho`` in 1/m. Every second pixel is kept: neighbours share their matching window anyway.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from handrail.runtime.reflex.depth import DepthView, Pose

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]
I64 = NDArray[np.int64]
Mask = NDArray[np.bool_]

STRIDE = 2


@dataclass(frozen=True, slots=True)
class LevelRays:
    origin_m: F64  # [3] left camera, level frame
    R_level_rect: F64  # [3, 3]
    directions: F32  # [3, R, C] level-frame metres per metre of rho
    inverse_rho: F32  # [R, C] 1/m, NaN where unknown
    visible: Mask  # [R, C] depth was possible there
    by_ends: Mask  # [R, C] measured by the ends of a plain bar, surely
    sd_inverse: float  # one sigma of inverse_rho, 1/m
    pixel_px: float  # inverse_rho of one pixel of disparity, 1/m
    pixel_rad2: float  # solid angle that one kept pixel stands for (before the obliquity of its column)
    phi_rad: F64  # [R] decreasing
    tan_x: F64  # [C] increasing

    @classmethod
    def of(cls, view: DepthView, pose: Pose) -> LevelRays:
        R = pose.R_level_device @ view.T_device_rect[:3, :3]
        origin = pose.device_in_level_m + pose.R_level_device @ view.T_device_rect[:3, 3]
        phi, tan = view.phi_rad[::STRIDE], view.tan_x[::STRIDE]
        across = np.outer(R[:, 0], tan).astype(np.float32)  # [3, C]
        ahead = (np.outer(R[:, 1], -np.sin(phi)) + np.outer(R[:, 2], np.cos(phi))).astype(np.float32)  # [3, R]
        per_px = 1.0 / (view.focal_px * view.baseline_m)
        return cls(
            origin_m=origin,
            R_level_rect=R,
            directions=ahead[:, :, None] + across[:, None, :],
            inverse_rho=1.0 / view.rho_m[::STRIDE, ::STRIDE],
            visible=view.visible[::STRIDE, ::STRIDE],
            by_ends=view.by_ends[::STRIDE, ::STRIDE],
            sd_inverse=view.disparity_sd_px * per_px,
            pixel_px=per_px,
            pixel_rad2=float((phi[0] - phi[-1]) / (len(phi) - 1) * (tan[-1] - tan[0]) / (len(tan) - 1)),
            phi_rad=phi,
            tan_x=tan,
        )

    def bars_m(self) -> F64:
        """[N, 3] where plain bars are, level frame."""
        rho = 1.0 / self.inverse_rho[self.by_ends]
        return np.asarray((self.directions[:, self.by_ends] * rho).T + self.origin_m, dtype=np.float64)

    def pixels_of(self, points: F64) -> tuple[I64, I64, F64, Mask]:
        """Level points [..., 3] -> (row, column, inverse rho in 1/m, whether depth was possible there), each [...].

        Row and column are clipped into the arrays; the mask says where they mean something.
        """
        p = (points - self.origin_m) @ self.R_level_rect
        rho = np.hypot(p[..., 1], p[..., 2])
        inverse = 1.0 / np.maximum(rho, 1e-3)
        rows, columns = len(self.phi_rad), len(self.tan_x)
        phi = np.arctan2(-p[..., 1], p[..., 2])
        row = np.rint((self.phi_rad[0] - phi) / (self.phi_rad[0] - self.phi_rad[-1]) * (rows - 1))
        tan = p[..., 0] * inverse
        column = np.rint((tan - self.tan_x[0]) / (self.tan_x[-1] - self.tan_x[0]) * (columns - 1))
        inside = (row >= 0) & (row < rows) & (column >= 0) & (column < columns)
        r = np.clip(row, 0, rows - 1).astype(np.int64)
        c = np.clip(column, 0, columns - 1).astype(np.int64)
        return r, c, inverse, inside & self.visible[r, c]
