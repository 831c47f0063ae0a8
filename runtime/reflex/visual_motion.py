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
ROUNDS = 6
CLOSE_ENOUGH = 2e-5  # metres and radians: a hundredth of what is measured
CAUCHY_SQUARE = 6.0
INLIER_SQUARE = 14.0  # chi-square of three equations, 99.7 %
WORST_SD_M = 0.06


class Corners:
    """Corners of one view, with depth, ready to be found in the next. Looked for once, when they are wanted.

    The image is stretched as a whole, so that exposure may change between frames.
    """

    def __init__(self, view: DepthView) -> None:
        bright = float(np.percentile(view.image[::4, ::4][view.visible[::4, ::4]], 95))
        self.view = view
        self.image: U8 = np.asarray(  # [R, C]
            cv2.convertScaleAbs(view.image, alpha=min(200.0 / max(bright, 1.0), 8.0)), dtype=np.uint8
        )
        self._found: tuple[F64, F64] | None = None

    def find(self) -> tuple[F64, F64]:
        """Column and row [N, 2] and disparity [N] of corners where depth is known."""
        if self._found is None:
            view = self.view
            mask = np.isfinite(view.rho_m).astype(np.uint8)
            found = cv2.goodFeaturesToTrack(
                self.image, CORNERS, CORNER_QUALITY, CORNER_APART_PX, mask=mask, blockSize=5
            )
            px = np.zeros((0, 2)) if found is None else np.asarray(found, dtype=np.float64)[:, 0]
            at = px.astype(np.int64)
            rho = view.rho_m[at[:, 1], at[:, 0]].astype(np.float64)
            self._found = px, view.focal_px * view.baseline_m / rho
        return self._found


@dataclass(frozen=True, slots=True)
class Moved:
    translation_m: F64  # [3] of the left camera, in the later view's rectified axes
    covariance: F64  # [3, 3] m^2
    inliers: int
    share: float  # of the corners followed


def motion_between(
    before: Corners, after: Corners, R_after_before: F64, expected_m: F64, turn_rate: float
) -> Moved | None:
    """The camera's translation from one view to the next; None when too few corners agree.

    ``R_after_before`` [3, 3] rotates earlier rectified axes into later ones; ``expected_m`` [3] is the translation
    expected, in later axes; ``turn_rate`` in rad/s loosens the prior on rotation.
    """
    px, disparity = before.find()
    if len(px) < LEAST_INLIERS:
        return None
    geometry = _Geometry.of(after.view)
    X = _points(before.view, px, disparity) @ R_after_before.T  # [N, 3] earlier points, turned into later axes
    guess = geometry.to_px(geometry.project(X - expected_m))
    there = follow(before.image, after.image, px, guess[:, :2])
    height, width = after.image.shape
    found = np.isfinite(there[:, 0])
    found &= (there > 1).all(axis=1) & (there[:, 0] < width - 2) & (there[:, 1] < height - 2)
    if np.count_nonzero(found) < LEAST_INLIERS:
        return None
    X, there, disparity = X[found], there[found], disparity[found]
    at = np.rint(there).astype(np.int64)
    seen_disparity = geometry.fb / after.view.rho_m[at[:, 1], at[:, 0]].astype(np.float64)
    measured = geometry.from_px(there, seen_disparity)
    sd_rotation = ROTATION_SD_RAD + CLOCKS_APART_S * turn_rate
    problem = _Problem(geometry, X, disparity, measured, after.view.disparity_sd_px, sd_rotation)
    return problem.solve(expected_m)


def _points(view: DepthView, px: F64, disparity: F64) -> F64:
    """[N, 3] in rectified axes."""
    rho = view.focal_px * view.baseline_m / disparity
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
    """Least squares for a state of translation [3] and small rotation [3], from one equation triple a corner."""

    def __init__(
        self, geometry: _Geometry, X: F64, disparity: F64, measured: F64, disparity_sd_px: float, sd_rotation: float
    ) -> None:
        self._geometry = geometry
        self._X, self._measured = X, np.nan_to_num(measured, nan=0.0)
        self._turns = _cross_matrices(X)  # [N, 3, 3]: rotation w moves X by turns @ w
        self._prior = np.diag([0.0, 0.0, 0.0] + [1.0 / sd_rotation**2] * 3)
        # Noise of the three equations: of the later view, and of the earlier disparity carried through.
        carried = (geometry.jacobian(X) @ X[:, :, None]) / disparity[:, None, None]  # [N, 3, 1]
        noise = carried @ carried.transpose(0, 2, 1) * disparity_sd_px**2
        later = np.where(np.isfinite(measured[:, 2]), disparity_sd_px, 1e3)
        noise[:, 0, 0] += FOLLOW_SD_PX**2
        noise[:, 1, 1] += FOLLOW_SD_PX**2
        noise[:, 2, 2] += later**2
        self._whiten = np.linalg.inv(np.linalg.cholesky(noise))  # [N, 3, 3]

    def solve(self, expected_m: F64) -> Moved | None:
        state = min(self._starts(expected_m), key=self._cost)
        state, normal = self._descend(state)
        square = self._squares(self._residual(state))
        good = square < INLIER_SQUARE
        inliers = int(np.count_nonzero(good))
        if inliers < LEAST_INLIERS or inliers < LEAST_INLIER_SHARE * len(square):
            return None
        covariance = np.asarray(np.linalg.inv(normal)[:3, :3] * max(1.0, float(np.mean(square[good])) / 2.0))
        if np.sqrt(np.trace(covariance)) > WORST_SD_M:
            return None
        return Moved(state[:3], covariance, inliers, inliers / len(square))

    def _starts(self, expected_m: F64) -> list[F64]:
        """Where to start from: the motion expected, none, and the median of what single corners say."""
        starts = [np.concatenate([expected_m, np.zeros(3)]), np.zeros(6)]
        known = self._measured[:, 2] > 0.5
        if np.count_nonzero(known) >= LEAST_INLIERS:
            u, v, d = self._measured[known].T
            rho, phi = self._geometry.fb / d, -v / self._geometry.rows_per_rad
            there = np.stack([rho * u / self._geometry.focal_px, -rho * np.sin(phi), rho * np.cos(phi)], axis=1)
            starts.append(np.concatenate([np.median(self._X[known] - there, axis=0), np.zeros(3)]))
        return starts

    def _descend(self, state: F64) -> tuple[F64, F64]:
        """Gauss-Newton with Cauchy weights: (state, normal matrix)."""
        normal = self._prior
        for _ in range(ROUNDS):
            residual = self._residual(state)
            weight = 1.0 / (1.0 + self._squares(residual) / CAUCHY_SQUARE)
            J = self._jacobian(state)
            weighted = (J * weight[:, None, None]).reshape(-1, 6)
            normal = weighted.T @ J.reshape(-1, 6) + self._prior
            gradient = weighted.T @ residual.reshape(-1) - self._prior @ state
            step = np.linalg.solve(normal + np.eye(6) * 1e-6, gradient)
            state = state + step
            if np.abs(step).max() < CLOSE_ENOUGH:
                break
        return state, normal

    def _moved(self, state: F64) -> F64:
        return np.asarray(self._X + self._turns @ state[3:] - state[:3])

    def _residual(self, state: F64) -> F64:
        """[N, 3] whitened."""
        off = self._measured - self._geometry.project(self._moved(state))
        return np.asarray((self._whiten @ off[:, :, None])[:, :, 0])

    def _jacobian(self, state: F64) -> F64:
        """[N, 3, 6] of the whitened prediction."""
        H = self._whiten @ self._geometry.jacobian(self._moved(state))
        return np.concatenate([-H, H @ self._turns], axis=2)

    def _squares(self, residual: F64) -> F64:
        return np.asarray((residual * residual).sum(axis=1))

    def _cost(self, state: F64) -> float:
        return float(np.log1p(self._squares(self._residual(state)) / CAUCHY_SQUARE).sum())


def _cross_matrices(X: F64) -> F64:
    """[N, 3, 3] with M @ w = w x X."""
    M = np.zeros((len(X), 3, 3))
    x, y, z = X.T
    M[:, 0, 1], M[:, 0, 2] = z, -y
    M[:, 1, 0], M[:, 1, 2] = -z, x
    M[:, 2, 0], M[:, 2, 1] = y, -x
    return M
