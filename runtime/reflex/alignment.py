"""How the glasses are bent as worn: the right camera's rotation against its factory calibration, learned on the way.

The frame of the glasses is soft. On a real Gen 2 recording VIO's own calibration turns the right camera by 13 mrad:
3 px of disparity, so that a box at 4 m would be told at 6 m and the floor would fall away ahead. Two observations
mend it:

epipolar  matched corners must lie on the same row; three angles, but yaw only weakly and with the lens model's errors
level     floors and tables are level: disparity is proportional to how steeply one looks down, and whatever is left
          over is yaw. A ramp looks like yaw, too: it is gated, and learned slowly.

A Kalman filter on six numbers: three angles and the lens model's share in what the epipolar fit says. Radians, about
the axes of the rectified frame. Knows no motion.
"""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from handrail.runtime.reflex.attitude import Attitude
from handrail.runtime.reflex.depth import DepthView
from handrail.runtime.reflex.follow import follow
from handrail.runtime.reflex.rectify import DISPARITIES, RectifiedPair, Rectifier

F64 = NDArray[np.float64]
U8 = NDArray[np.uint8]

# Pitch, yaw, roll (about rectified X, Y, Z): what wearing does, and what a factory lens model leaves in the fit.
BENT_SD_RAD = np.array([0.004, 0.008, 0.005])
LENS_SD_RAD = np.array([0.0005, 0.004, 0.0025])
CREEP_RAD_PER_SQRT_S = 2e-4  # pushing the glasses up the nose
CORNERS = 400
LEAST_CORNERS = 12
SHRINK = 4  # the search for a first guess runs on images a quarter as large: then 6 px of misalignment are 1.5
LEVEL_SD_RAD = 0.002  # floors aren't flat and gravity isn't perfect; neighbouring frames share the error
REPEATED = 4.0  # how many times a like observation comes within the time that its error lasts
GATE = 3.0
EYE_HEIGHTS_M = (0.3, 2.2)  # above a table when sitting, above the floor when tall
LARGEST_YAW_RAD = 0.025
LEAST_LEVEL = 60  # blocks


@dataclass(frozen=True, slots=True)
class Bend:
    angles_rad: F64  # [3] pitch, yaw, roll of the right camera against the calibration
    sd_rad: F64  # [3]


class Alignment:
    """Learns from pairs; ``Rectifier.bend`` applies what was learned. Survives seams: the glasses are the same."""

    def __init__(self, rectifier: Rectifier) -> None:
        self._rectifier = rectifier
        self._state = np.zeros(6)
        self._P = np.diag(np.concatenate([BENT_SD_RAD, LENS_SD_RAD]) ** 2)
        self._last_ns: int | None = None
        area = 5 * 5
        self._coarse = cv2.StereoSGBM.create(
            minDisparity=-4, numDisparities=32, blockSize=5, P1=8 * area, P2=32 * area, disp12MaxDiff=1,
            preFilterCap=31, uniquenessRatio=10, mode=cv2.STEREO_SGBM_MODE_SGBM_3WAY,
        )

    @property
    def bend(self) -> Bend:
        return Bend(self._state[:3].copy(), np.sqrt(np.diag(self._P)[:3]))

    def observe(self, pair: RectifiedPair, view: DepthView, attitude: Attitude | None) -> None:
        """Learn from one pair, which was rectified with the rectifier's present bend."""
        if self._last_ns is not None:
            dt = max(0.0, (view.device_ns - self._last_ns) / 1e9)
            self._P[:3, :3] += np.eye(3) * CREEP_RAD_PER_SQRT_S**2 * min(dt, 60.0)
        self._last_ns = view.device_ns
        applied = self._rectifier.bend_rad
        epipolar = self._epipolar(pair)
        if epipolar is not None:
            angles, covariance = epipolar
            H = np.hstack([np.eye(3), np.eye(3)])
            self._update(H, applied + angles, covariance * REPEATED)
        if attitude is None:
            return
        level = _level_surface(view, attitude.R_level_device)
        if level is not None:
            yaw, roll_share, sd = level
            H = np.array([[0.0, 1.0, roll_share, 0.0, 0.0, 0.0]])
            z = np.array([applied[1] + roll_share * applied[2] + yaw])
            # Gravity off by a radian shifts disparity by focal * baseline / height: baseline / height radians of yaw.
            variance = sd**2 + LEVEL_SD_RAD**2 + (0.09 * attitude.tilt_sd_rad) ** 2
            self._update(H, z, np.array([[variance * REPEATED]]))

    def _update(self, H: F64, z: F64, R: F64) -> None:
        innovation = z - H @ self._state
        S = H @ self._P @ H.T + R
        if innovation @ np.linalg.solve(S, innovation) > GATE**2 * len(z):
            return
        K = self._P @ H.T @ np.linalg.inv(S)
        self._state = self._state + K @ innovation
        joseph = np.eye(6) - K @ H
        self._P = joseph @ self._P @ joseph.T + K @ R @ K.T

    def _epipolar(self, pair: RectifiedPair) -> tuple[F64, F64] | None:
        """Angles [3] that bring matched corners onto the same rows, beyond those applied, and their covariance."""
        matched = self._matched_corners(pair)
        if matched is None:
            return None
        left, right = matched
        r = self._rectifier
        rows_per_rad = 1.0 / float(r.phi_rad[0] - r.phi_rad[1])
        tan = r.canvas_tan[0] + right[:, 0] / r.focal_px
        phi = r.phi_rad[pair.rows][0] - right[:, 1] / rows_per_rad
        off = (right[:, 1] - left[:, 1]) / rows_per_rad  # positive: too low in the right image
        # A camera turned by w sees every ray turned by -w: elevation changes by -(w x ray) along the direction of phi.
        A = np.stack([np.ones_like(tan), tan * np.sin(phi), -tan * np.cos(phi)], axis=1)
        return _robust_fit(A, off, least=LEAST_CORNERS)

    def _matched_corners(self, pair: RectifiedPair) -> tuple[F64, F64] | None:
        r, left, right = self._rectifier, pair.bright_left, pair.bright_right
        inside = cv2.erode(r.left_sees[pair.rows].astype(np.uint8), np.ones((15, 15), np.uint8))
        inside[:, :DISPARITIES] = 0  # left of the view the right camera sees nothing far
        corners = cv2.goodFeaturesToTrack(left, CORNERS, 0.002, 6, mask=inside)
        if corners is None or len(corners) < LEAST_CORNERS:
            return None
        size = (left.shape[1] // SHRINK, left.shape[0] // SHRINK)
        small = [cv2.resize(image, size, interpolation=cv2.INTER_AREA) for image in (left, right)]
        coarse = np.asarray(self._coarse.compute(small[0], small[1]), dtype=np.float64) / 16.0 * SHRINK
        at = np.minimum(corners[:, 0].astype(np.int64) // SHRINK, [size[0] - 1, size[1] - 1])
        guess = coarse[at[:, 1], at[:, 0]]
        found = guess > -4 * SHRINK
        corners, guess = corners[found], guess[found]
        if len(corners) < LEAST_CORNERS:
            return None
        start = corners.astype(np.float64)[:, 0]
        found_right = follow(left, right, start, start - np.stack([guess, np.zeros(len(guess))], axis=1))
        good = np.isfinite(found_right[:, 0])
        return start[good], found_right[good]


def _robust_fit(A: F64, y: F64, least: int) -> tuple[F64, F64] | None:
    """Least squares with Cauchy weights: (solution, covariance), None with too few rows or a singular system."""
    if len(y) < least:
        return None
    weight: F64 = np.ones(len(y))
    solution: F64 = np.zeros(A.shape[1])
    spread = 1.0
    for _ in range(10):
        N = (A * weight[:, None]).T @ A
        if np.linalg.cond(N) > 1e8:
            return None
        solution = np.asarray(np.linalg.solve(N, (A * weight[:, None]).T @ y))
        residual = y - A @ solution
        spread = max(1.48 * float(np.median(np.abs(residual))), 1e-4)
        weight = 1.0 / (1.0 + (residual / (1.5 * spread)) ** 2)
    return solution, np.asarray(np.linalg.inv((A * weight[:, None]).T @ A)) * spread**2


@dataclass(frozen=True, slots=True)
class _LevelBits:
    """Places whose disparity changes from row to row as that of something level does; [N] each."""

    d: F64  # disparity, px
    s: F64  # how far the ray falls per unit of rho
    yaw: F64  # px that a radian of yaw adds
    roll: F64  # px that a radian of roll adds


def _level_bits(view: DepthView, R_level_device: F64) -> _LevelBits:
    """From means over blocks of 4 rows and 6 columns, compared with those 16 rows above and below."""
    fb = view.focal_px * view.baseline_m
    height, width = view.rho_m.shape[0] // 4, view.rho_m.shape[1] // 6
    disparity = fb / view.rho_m[: 4 * height, : 6 * width]
    known = np.isfinite(disparity)
    blocks = [
        np.asarray(cv2.resize(x.astype(np.float32), (width, height), interpolation=cv2.INTER_AREA), dtype=np.float64)
        for x in (np.where(known, disparity, 0.0), known)
    ]
    d = np.where(blocks[1] > 0.4, blocks[0] / np.maximum(blocks[1], 0.4), np.nan)  # [height, width]
    phi = view.phi_rad[: 4 * height].reshape(height, 4).mean(axis=1)[:, None]
    tan = view.tan_x[: 6 * width].reshape(width, 6).mean(axis=1)[None, :]
    down = -(R_level_device @ view.T_device_rect[:3, :3])[2]
    s = down[0] * tan - down[1] * np.sin(phi) + down[2] * np.cos(phi)
    stretch = view.focal_px * (1.0 + (tan - d / view.focal_px) ** 2)  # of the right camera's tangent

    above, middle, below = slice(None, -8), slice(4, -4), slice(8, None)
    slope = (d[below] - d[above]) / (s[below] - s[above])
    bend = np.abs(d[middle] - (d[below] + d[above]) / 2)
    use = (slope > fb / 2.8) & (slope < fb / 0.6) & (bend < 2 * view.disparity_sd_px)
    use &= s[middle] > 0.2 * np.hypot(1.0, tan)
    use &= np.abs(tan) * fb < 2.0 * d[middle]
    yaw, roll = stretch * np.cos(phi), stretch * np.sin(phi)
    return _LevelBits(*(x[middle][use] for x in (d, s, yaw, roll)))


def _level_surface(view: DepthView, R_level_device: F64) -> tuple[float, float, float] | None:
    """The yaw beyond the one applied that makes the largest level surface level: (yaw, roll_share, sd), radians.

    On a level surface h below the eye, disparity = (focal * baseline / h) * s, where s is how far a ray falls per unit
    of rho; yaw adds focal * cos(phi) * (1 + tan^2) a radian, roll focal * sin(phi) * (1 + tan^2). ``roll_share``: how
    much a roll would count in what is called yaw here.
    """
    bits = _level_bits(view, R_level_device)
    if len(bits.d) < LEAST_LEVEL:
        return None
    on = _vote(bits, view.focal_px * view.baseline_m, 1.4 * view.disparity_sd_px)
    if on is None:
        return None
    A = np.stack([bits.s[on], bits.yaw[on] / view.focal_px], axis=1)
    fit = _robust_fit(A, bits.d[on], least=LEAST_LEVEL)
    if fit is None:
        return None
    share = np.linalg.lstsq(A, bits.roll[on] / view.focal_px, rcond=None)[0][1]
    return float(fit[0][1]) / view.focal_px, float(share), float(np.sqrt(fit[1][1, 1])) / view.focal_px


def _vote(bits: _LevelBits, fb: float, within_px: float) -> NDArray[np.bool_] | None:
    """The bits [N] that lie on the surface that most agree on.

    Hypotheses come from pairs of bits, one looked down on more steeply than the other: always the same pairs, no random
    numbers.
    """
    d, s, q = bits.d, bits.s, bits.yaw
    order = np.argsort(s, kind="stable")
    half = len(order) // 2
    step = max(1, half // 150)
    i, j = order[:half:step], order[half : 2 * half : step]
    det = s[i] * q[j] - s[j] * q[i]
    det = np.where(np.abs(det) < 1e-9, 1e-9, det)
    m = (d[i] * q[j] - d[j] * q[i]) / det  # focal * baseline / height
    y = (s[i] * d[j] - s[j] * d[i]) / det
    plausible = (m > fb / EYE_HEIGHTS_M[1]) & (m < fb / EYE_HEIGHTS_M[0]) & (np.abs(y) < LARGEST_YAW_RAD)
    if not plausible.any():
        return None
    m, y = m[plausible], y[plausible]
    votes = (np.abs(m[:, None] * s + y[:, None] * q - d) < within_px).sum(axis=1)
    best = int(np.argmax(votes))
    on = np.abs(m[best] * s + y[best] * q - d) < within_px
    if np.count_nonzero(on) < max(LEAST_LEVEL, 0.4 * len(d)) or np.ptp(s[on]) < 0.2:
        return None
    return np.asarray(on)
