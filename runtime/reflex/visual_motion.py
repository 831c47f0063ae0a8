"""How far the head moved between two depth views: corners followed from one to the next, rotation known by gyroscope.

Corners are predicted with the gyroscope's rotation and the motion expected, so that they are found under fast head
turns. Each gives three equations (column, row, disparity) for the translation; a small rotation is solved along with it
under a prior, for gyroscope and cameras disagree by up to a millisecond. Least squares with Cauchy weights from several
starts, no random numbers. Metres in rectified axes, pixels, radians. Knows no time and no gravity.
"""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from handrail.runtime.reflex.depth import DepthView
from handrail.runtime.reflex.follow import follow

F64 = NDArray[np.float64]
U8 = NDArray[np.uint8]

CORNERS = 180
CORNER_QUALITY = 0.003
CORNER_APART_PX = 8
FOLLOW_SD_PX = 0.3
ROTATION_SD_RAD = 0.001
CLOCKS_APART_S = 0.0005  # one sigma, between gyroscope and middle of exposure
LEAST_INLIERS = 12
LEAST_INLIER_SHARE = 0.35
INLIER_SQUARE = 14.0  # chi-square of three equations, 99.7 %
WORST_SD_M = 0.06


@dataclass(frozen=True, slots=True)
class Corners:
    """Corners of one view, with depth, ready to be found in the next."""

    view: DepthView
    image: U8  # [R, C], stretched
    px: F64  # [N, 2] column, row
    disparity: F64  # [N]


@dataclass(frozen=True, slots=True)
class Moved:
    translation_m: F64  # [3] of the left camera, in the later view's rectified axes
    covariance: F64  # [3, 3] m^2
    inliers: int
    share: float  # of the corners followed


def find_corners(view: DepthView) -> Corners:
    """Corners where depth is known. The image is stretched as a whole, so that exposure may change between frames."""
    bright = float(np.percentile(view.image[::4, ::4][view.visible[::4, ::4]], 95))
    image = np.asarray(cv2.convertScaleAbs(view.image, alpha=min(200.0 / max(bright, 1.0), 8.0)), dtype=np.uint8)
    known = np.isfinite(view.rho_m)
    found = cv2.goodFeaturesToTrack(
        image, CORNERS, CORNER_QUALITY, CORNER_APART_PX, mask=known.astype(np.uint8), blockSize=5
    )
    px = np.zeros((0, 2)) if found is None else np.asarray(found, dtype=np.float64)[:, 0]
    at = px.astype(np.int64)
    rho = view.rho_m[at[:, 1], at[:, 0]].astype(np.float64)
    return Corners(view, image, px, view.focal_px * view.baseline_m / rho)


def motion_between(
    before: Corners, after: Corners, R_after_before: F64, expected_m: F64, turn_rate: float
) -> Moved | None:
    """The camera's translation from one view to the next; None when too few corners agree.

    ``R_after_before`` [3, 3] rotates earlier rectified axes into later ones; ``expected_m`` [3] is the translation
    expected, in later axes; ``turn_rate`` in rad/s loosens the prior on rotation.
    """
    if len(before.px) < LEAST_INLIERS:
        return None
    geometry = _Geometry.of(after.view)
    X = _points(before) @ R_after_before.T  # [N, 3] earlier points, turned into later axes
    guess = geometry.to_px(geometry.project(X - expected_m))
    there = follow(before.image, after.image, before.px, guess[:, :2])
    height, width = after.image.shape
    found = np.isfinite(there[:, 0])
    found &= (there > 1).all(axis=1) & (there[:, 0] < width - 2) & (there[:, 1] < height - 2)
    if np.count_nonzero(found) < LEAST_INLIERS:
        return None
    X, there, disparity = X[found], there[found], before.disparity[found]
    at = np.rint(there).astype(np.int64)
    seen_disparity = geometry.fb / after.view.rho_m[at[:, 1], at[:, 0]].astype(np.float64)
    measured = geometry.from_px(there, seen_disparity)
    sd_rotation = ROTATION_SD_RAD + CLOCKS_APART_S * turn_rate
    problem = _Problem(geometry, X, disparity, measured, after.view.disparity_sd_px, sd_rotation)
    return problem.solve(expected_m)


def _points(corners: Corners) -> F64:
    """[N, 3] in rectified axes."""
    view, px = corners.view, corners.px
    rho = view.focal_px * view.baseline_m / corners.disparity
    tan = view.tan_x[0] + px[:, 0] / view.focal_px
    phi = view.phi_rad[0] - px[:, 1] * (view.phi_rad[0] - view.phi_rad[1])
    return np.stack([rho * tan, -rho * np.sin(phi), rho * np.cos(phi)], axis=1)


@dataclass(frozen=True, slots=True)
class _Geometry:
    """Measurements are (focal * tan, rows, disparity), all in pixels."""

    focal_px: float
    rows_per_rad: float
    fb: float
    tan_0: float
    phi_0: float

    @classmethod
    def of(cls, view: DepthView) -> _Geometry:
        rows_per_rad = 1.0 / float(view.phi_rad[0] - view.phi_rad[1])
        return cls(
            view.focal_px, rows_per_rad, view.focal_px * view.baseline_m, float(view.tan_x[0]), float(view.phi_rad[0])
        )

    def project(self, X: F64) -> F64:
        rho = np.maximum(np.hypot(X[:, 1], X[:, 2]), 0.05)
        phi = np.arctan2(-X[:, 1], X[:, 2])
        return np.stack([self.focal_px * X[:, 0] / rho, -phi * self.rows_per_rad, self.fb / rho], axis=1)

    def jacobian(self, X: F64) -> F64:
        """[N, 3, 3] of ``project``."""
        x, y, z = X.T
        rho = np.maximum(np.hypot(y, z), 0.05)
        J = np.zeros((len(X), 3, 3))
        J[:, 0, 0] = self.focal_px / rho
        J[:, 0, 1], J[:, 0, 2] = -self.focal_px * x * y / rho**3, -self.focal_px * x * z / rho**3
        J[:, 1, 1], J[:, 1, 2] = self.rows_per_rad * z / rho**2, -self.rows_per_rad * y / rho**2
        J[:, 2, 1], J[:, 2, 2] = -self.fb * y / rho**3, -self.fb * z / rho**3
        return J

    def to_px(self, measured: F64) -> F64:
        """-> columns, rows of the view."""
        return np.stack([
            measured[:, 0] - self.tan_0 * self.focal_px, measured[:, 1] + self.phi_0 * self.rows_per_rad
        ], axis=1)

    def from_px(self, px: F64, disparity: F64) -> F64:
        return np.stack([
            px[:, 0] + self.tan_0 * self.focal_px, px[:, 1] - self.phi_0 * self.rows_per_rad, disparity
        ], axis=1)


class _Problem:
    def __init__(
        self, geometry: _Geometry, X: F64, disparity: F64, measured: F64, disparity_sd_px: float, sd_rotation: float
    ) -> None:
        self._geometry = geometry
        self._X, self._measured = X, np.nan_to_num(measured, nan=0.0)
        self._prior = np.diag([0.0, 0.0, 0.0] + [1.0 / sd_rotation**2] * 3)
        # Noise of the three equations [N, 3, 3]: of the later view, and of the earlier disparity carried through.
        J = geometry.jacobian(X)
        carried = -np.einsum("nij,nj->ni", J, X) / disparity[:, None]
        noise = np.einsum("ni,nj->nij", carried, carried) * disparity_sd_px**2
        later = np.where(np.isfinite(measured[:, 2]), disparity_sd_px, 1e3)
        noise[:, 0, 0] += FOLLOW_SD_PX**2
        noise[:, 1, 1] += FOLLOW_SD_PX**2
        noise[:, 2, 2] += later**2
        self._information = np.linalg.inv(noise)  # [N, 3, 3]

    def solve(self, expected_m: F64) -> Moved | None:
        best = min((self._descend(start) for start in self._starts(expected_m)), key=lambda found: found[0])
        _, state, square, normal = best
        inliers = int(np.count_nonzero(square < INLIER_SQUARE))
        share = inliers / len(square)
        if inliers < LEAST_INLIERS or share < LEAST_INLIER_SHARE:
            return None
        spread = max(1.0, float(np.mean(square[square < INLIER_SQUARE])) / 2.0)
        covariance = np.asarray(np.linalg.inv(normal)[:3, :3] * spread)
        if np.sqrt(np.trace(covariance)) > WORST_SD_M:
            return None
        return Moved(state[:3], covariance, inliers, share)

    def _starts(self, expected_m: F64) -> list[F64]:
        """Where to start from: the motion expected, none, and the median of what single corners say."""
        z = np.zeros(6)
        single = z.copy()
        fb, m = self._geometry.fb, self._measured
        known = m[:, 2] > 0.5
        if np.count_nonzero(known) >= LEAST_INLIERS:
            rho = fb / m[known, 2]
            phi = -m[known, 1] / self._geometry.rows_per_rad
            there = np.stack(
                [rho * m[known, 0] / self._geometry.focal_px, -rho * np.sin(phi), rho * np.cos(phi)], axis=1
            )
            single[:3] = np.median(self._X[known] - there, axis=0)
        expected = z.copy()
        expected[:3] = expected_m
        return [expected, z, single]

    def _descend(self, state: F64) -> tuple[float, F64, F64, F64]:
        """Gauss-Newton from one start: (robust cost, state, squared errors [N], normal matrix)."""
        for _ in range(6):
            residual, J = self._linearise(state)
            square = np.einsum("ni,nij,nj->n", residual, self._information, residual)
            weighted = self._information / (1.0 + square / 6.0)[:, None, None]
            normal = np.einsum("nia,nij,njb->ab", J, weighted, J) + self._prior
            gradient = np.einsum("nia,nij,nj->a", J, weighted, residual) - self._prior @ state
            state = state + np.linalg.solve(normal + np.eye(6) * 1e-6, gradient)
        residual, _ = self._linearise(state)
        square = np.einsum("ni,nij,nj->n", residual, self._information, residual)
        return float(np.log1p(square / 6.0).sum()), state, square, normal

    def _linearise(self, state: F64) -> tuple[F64, F64]:
        """Residuals [N, 3] and their Jacobian [N, 3, 6] for translation and small rotation."""
        X = self._X + np.cross(state[3:], self._X)
        moved = X - state[:3]
        H = self._geometry.jacobian(moved)
        J = np.empty((len(X), 3, 6))
        J[:, :, :3] = -H
        for axis in range(3):
            J[:, :, 3 + axis] = np.einsum("nij,nj->ni", H, np.cross(np.eye(3)[axis], self._X))
        residual = self._measured - self._geometry.project(moved)
        return residual, J
