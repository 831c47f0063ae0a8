"""The result of stereo: a depth image whose rows are elevations about the baseline. Plain geometry, no algorithm.

Rectification is *cylindrical about the baseline*: each row is one epipolar plane (angle phi about the baseline axis),
each column one tangent of the angle out of the plane that is perpendicular to the baseline. So disparity gives rho, the
distance from the baseline axis, as ``rho = focal_px * baseline_m / disparity`` in every row, and turning the virtual
view up or down (aiming it by gravity) is choosing other rows.

Rectified frame ("rect"): origin at the left camera, X from the left to the right camera, Y down, Z forward at phi = 0.
A pixel (row, column) with depth rho is the point  X = rho * tan_x[column],  Y = -rho * sin(phi[row]),
Z = rho * cos(phi[row])  (phi positive is up).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class DepthView:
    device_ns: int  # capture of the pair
    image: NDArray[np.uint8]  # [R, C] rectified left image
    rho_m: F32  # [R, C] distance from the baseline axis; NaN where unknown
    visible: NDArray[np.bool_]  # [R, C] inside both lenses, so that depth was possible there
    by_ends: NDArray[np.bool_]  # [R, C] measured by the ends of a plain bar, surely; see ``bars``
    phi_rad: F64  # [R] elevation about the baseline, decreasing with the row
    tan_x: F64  # [C]
    focal_px: float
    baseline_m: float
    disparity_sd_px: float  # one-sigma matching error
    T_device_rect: F64  # [4, 4]
    shift_sd_px: float = 0.0  # one sigma of a shift common to all of the view: how the glasses are bent is an estimate

    def points_rect(self) -> F32:
        """[R, C, 3], NaN where unknown."""
        rho = self.rho_m
        return np.stack(
            [
                rho * self.tan_x.astype(np.float32)[None, :],
                rho * -np.sin(self.phi_rad).astype(np.float32)[:, None],
                rho * np.cos(self.phi_rad).astype(np.float32)[:, None],
            ],
            axis=-1,
        )

    def rho_sd_m(self, rho_m: F32 | float) -> F32 | float:
        """Standard deviation of rho, matching and shift together: grows with its square."""
        sd_px = math.hypot(self.disparity_sd_px, self.shift_sd_px)
        return rho_m * rho_m * (sd_px / (self.focal_px * self.baseline_m))


@dataclass(frozen=True, slots=True)
class Pose:
    """Where the head is, at one time. Level frame; covariance of translation only (rotation is far better known)."""

    device_ns: int
    R_level_device: F64  # [3, 3]
    device_in_level_m: F64  # [3] position of the device origin
    velocity_msec: F64  # [3] level frame
    velocity_cov: F64  # [3, 3] (m/s)^2
    position_cov: F64  # [3, 3] m^2, grown since the start or last seam
    angular_velocity_radsec: F64  # [3] device axes
    tilt_sd_rad: float  # uncertainty of the gravity direction
    source: str  # "vio", "stereo", "imu"
