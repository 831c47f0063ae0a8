"""The floor under and ahead of the wearer: a plane held to gravity and to near ground, fused over frames.

State: height of the left camera above the floor and two slopes, with covariance. A floor point seen along a level
direction v has the inverse distance  q = (-v_z + slope_x v_x + slope_y v_y) / height : linear enough for a few
Gauss-Newton steps, and its noise is the same near and far. Slopes are pulled towards zero (floors are level, gravity is
known to about a degree) and only near ground moves them: a free fit tilted by a few degrees once turned far floor into
a false drop-off. Table tops, walls and lower floors are kept out by the gate; when no floor is found the state says
unknown. Doesn't know obstacles, edges or stairs. Metres, radians, level frame.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from handrail.runtime.reflex.depth import Pose
from handrail.runtime.reflex.rays import LevelRays

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]
Mask = NDArray[np.bool_]

EYE_HEIGHT_M = (1.1, 2.1)  # seated to tall
UNSEEN_HEIGHT_M, UNSEEN_HEIGHT_SD_M = 1.6, 0.2  # of a standing adult's eyes, where no floor was seen
FLOOR_SLOPE_SD_RAD = math.radians(1.0)  # of floors that people call level; gravity's own uncertainty comes on top
# Gravity found while walking off is wrong by 5 degrees at first, and a floor found by it by 0.2 m.
ACQUIRE_TILT_SD_RAD = math.radians(1.5)
USUAL_TILT_SD_RAD = math.radians(0.8)
SLOPE_MEMORY_S = 3.0  # gravity errors change with gait and turning
NEAR_M = 4.0  # ground beyond moves nothing
# What is underfoot decides first, and further ground joins it as long as it fits: it may be a step down.
REACHES_M = (1.5, 2.2, 3.0, NEAR_M)
STEPS_M = 0.4
BLOCK = 4  # rays along each side of a block: 8 px, about one matching window
SLOPE_BLOCKS, USUAL_NOISE_PX = 2, 0.35  # how far apart two blocks are that tell a slope: the noisier, the farther
GATE_SIGMAS = 2.5
# Errors that averaging over blocks doesn't remove: calibration bends disparity by about a tenth of a pixel.
SYSTEMATIC_SD = np.array([0.006, math.radians(0.15), math.radians(0.15)])
# So many neighbouring blocks err together (matching, calibration, the foot of a wall): they count as one.
TOGETHER = 25.0
OWN_FLOOR_M = 0.12
USUAL_SHARE = 0.05  # a frame: half a second or two
FORGET_USUAL_S = 20.0
FEWEST_BLOCKS = 12
STEEPEST_DOWN = -0.12  # v_z of rays that can meet near ground: a camera 1.1 m up sees no floor within 4 m above it


@dataclass(frozen=True, slots=True)
class Floor:
    """A plane through (x, y, z), sloping by (slope_x, slope_y); covariance [3, 3] of (z, slope_x, slope_y)."""

    known: bool  # False: a guess from the height of people's eyes, with the uncertainty that goes with it
    x_m: float
    y_m: float
    z_m: float
    slope_x: float
    slope_y: float
    cov: F64

    def z_at(self, x_m: F32, y_m: F32) -> F32:
        ax, ay = np.float32(self.slope_x), np.float32(self.slope_y)
        z: F32 = (x_m - np.float32(self.x_m)) * ax + (y_m - np.float32(self.y_m)) * ay + np.float32(self.z_m)
        return z

    def variance_at(self, dx_m: F32, dy_m: F32) -> F32:
        """Of its height, m^2, at offsets from (x, y): grows with the square of distance."""
        c = self.cov.astype(np.float32)
        v: F32 = (
            c[0, 0] + dx_m * (c[1, 1] * dx_m + 2 * (c[0, 1] + c[1, 2] * dy_m)) + dy_m * (c[2, 2] * dy_m + 2 * c[0, 2])
        )
        return v


@dataclass(frozen=True, slots=True)
class _Blocks:
    """Averages over blocks of rays with enough depth: directions [N, 3], inverse rho [N] and how it changes below."""

    direction: F64
    inverse: F64
    slope_ratio: F64  # change of inverse rho over some blocks below against a horizontal surface's: 1; a wall's: 0
    slope_ratio_sd: F64


class GroundFilter:
    """``update`` once a frame, in order of time."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget the floor: a seam, or the wearer took the glasses off."""
        self._state: F64 | None = None  # (height, slope_x, slope_y) at the last camera position
        self._cov = np.zeros((3, 3))
        self._origin_m = np.zeros(3)
        self._device_ns = 0
        self._candidate_m: float | None = None  # height of a floor seen once, not yet believed
        self._contradicted = 0  # frames in a row in which another floor was seen instead
        self._usual: tuple[float, float] | None = None  # height above the floor, height of the floor, as last known
        self._usual_ns = 0
        self._unseen_m = 0.0  # walked since the floor was seen
        self._unseen_s = 0.0

    def update(self, rays: LevelRays, pose: Pose) -> Floor:
        slope_sd = math.hypot(FLOOR_SLOPE_SD_RAD, pose.tilt_sd_rad)
        blocks = _blocks(rays)
        if self._state is not None:
            self._predict(rays.origin_m, pose, slope_sd)
            self._correct(blocks, rays.sd_inverse)
        self._origin_m = rays.origin_m.copy()
        self._device_ns = pose.device_ns
        if pose.tilt_sd_rad >= ACQUIRE_TILT_SD_RAD:
            self._candidate_m = None
        elif self._state is None or self._contradicted:
            self._acquire(blocks, rays.sd_inverse, slope_sd)
        if self._state is not None and not self._unseen_s and pose.tilt_sd_rad < USUAL_TILT_SD_RAD:
            height = float(self._state[0])
            usual = height if self._usual is None else self._usual[0] + USUAL_SHARE * (height - self._usual[0])
            self._usual, self._usual_ns = (usual, float(rays.origin_m[2]) - height), pose.device_ns
        return self._floor(slope_sd)

    def _floor(self, slope_sd: float) -> Floor:
        x, y, z = (float(v) for v in self._origin_m)
        if self._state is None:
            cov = np.diag([UNSEEN_HEIGHT_SD_M**2, slope_sd**2, slope_sd**2])
            return Floor(False, x, y, z - UNSEEN_HEIGHT_M, 0.0, 0.0, cov)
        h, sx, sy = (float(v) for v in self._state)
        return Floor(True, x, y, z - h, sx, sy, self._cov.copy())

    def _predict(self, origin_m: F64, pose: Pose, slope_sd: float) -> None:
        assert self._state is not None
        dt_s = max(0.0, (pose.device_ns - self._device_ns) * 1e-9)
        d = origin_m - self._origin_m
        walked_m = max(math.hypot(d[0], d[1]), 0.0)
        F = np.array([[1.0, -d[0], -d[1]], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
        keep = math.exp(-dt_s / SLOPE_MEMORY_S)
        self._state = F @ self._state + np.array([d[2], 0.0, 0.0])
        self._state[1:] *= keep
        self._cov = F @ self._cov @ F.T
        shrink = np.diag([1.0, keep, keep])
        self._cov = shrink @ self._cov @ shrink
        # Where translation isn't measured (imu), the head's bobbing is all in the height.
        bobbing_m = 0.03 if pose.source == "imu" else 0.004
        drift_m = math.sqrt(float(pose.velocity_cov[2, 2])) * dt_s
        fresh = slope_sd**2 * (1.0 - keep**2)
        self._cov += np.diag([bobbing_m**2 + min(drift_m, 0.05) ** 2 + (0.01 * walked_m) ** 2, fresh, fresh])
        self._unseen_m += walked_m
        self._unseen_s += dt_s
        if self._unseen_s > 3.0 or self._unseen_m > 3.0 or self._cov[0, 0] > 0.15**2:
            self._state = None  # too long unseen to vouch for

    def _correct(self, blocks: _Blocks, sd_inverse: float) -> None:
        """Gauss-Newton on the blocks within the gate, with the prediction as prior."""
        if self._state is None:
            return
        prior, information = self._state, np.linalg.inv(self._cov)
        state, cov = prior, self._cov
        # Noise of a block's average: neighbours share windows, so 16 rays count as about three.
        sd = 0.6 * sd_inverse
        for reach_m in REACHES_M:
            near, residual, J = _residuals(blocks, state, reach_m)
            spread = np.einsum("ni,ij,nj->n", J, cov, J)
            gate = GATE_SIGMAS * np.sqrt(sd**2 + np.minimum(spread, (1.5 * sd) ** 2))
            flat = np.abs(blocks.slope_ratio - 1.0) < 0.5 + blocks.slope_ratio_sd
            inside = near & flat & (np.abs(residual) < gate)
            if inside.sum() < FEWEST_BLOCKS:
                if reach_m < NEAR_M:
                    continue
                self._contradicted += int(bool(near.sum() >= FEWEST_BLOCKS))
                return
            w = inside * (1.0 - (residual / gate) ** 2) ** 2 / sd**2 / TOGETHER  # Tukey
            H = information + (J * w[:, None]).T @ J
            state = state + np.linalg.solve(H, (J * w[:, None]).T @ residual + information @ (prior - state))
            cov = np.linalg.inv(H)
        outvoted = (near & flat & (residual < -3.0 * gate)).sum() > 2 * inside.sum()
        self._contradicted = self._contradicted + 1 if outvoted else 0
        self._state, self._cov = state, cov + np.diag(SYSTEMATIC_SD**2) * 0.25
        self._unseen_m = self._unseen_s = 0.0
        if not EYE_HEIGHT_M[0] <= state[0] <= EYE_HEIGHT_M[1] or np.hypot(state[1], state[2]) > math.radians(6.0):
            self._state = None

    def _acquire(self, blocks: _Blocks, sd_inverse: float, slope_sd: float) -> None:
        """A new floor: the lowest level surface with enough blocks, seen at the same height in two frames."""
        height = _surface_underfoot(blocks, sd_inverse)
        if self._state is not None and (self._contradicted < 4 or height is None):
            return
        if height is not None and not self._can_be(height):
            height = None
        before, self._candidate_m = self._candidate_m, height
        if height is None or before is None or abs(height - before) > 0.15:
            return
        self._state = np.array([height, 0.0, 0.0])
        self._cov = np.diag([0.06**2, slope_sd**2, slope_sd**2])
        self._contradicted = 0
        self._unseen_m = self._unseen_s = 0.0
        self._correct(blocks, sd_inverse)

    def _can_be(self, height_m: float) -> bool:
        """A floor is where it was, or as far below the eyes as the one before. What is neither is a floor that the
        wearer isn't on: at the top of stairs the lower one fills the view, and would explain the edge away."""
        if self._usual is None or self._device_ns - self._usual_ns > FORGET_USUAL_S * 1e9:
            return True
        usual_m, floor_z_m = self._usual
        return abs(height_m - usual_m) < OWN_FLOOR_M or abs(self._origin_m[2] - height_m - floor_z_m) < OWN_FLOOR_M


def _residuals(blocks: _Blocks, state: F64, reach_m: float) -> tuple[Mask, F64, F64]:
    """(near ground or not [N], measured minus predicted inverse rho [N], Jacobian [N, 3])."""
    h, sx, sy = state
    v = blocks.direction
    predicted = (-v[:, 2] + sx * v[:, 0] + sy * v[:, 1]) / h
    J = np.stack([-predicted / h, v[:, 0] / h, v[:, 1] / h], axis=1)
    near = predicted * reach_m > np.hypot(v[:, 0], v[:, 1])
    return near, blocks.inverse - predicted, J


def _surface_underfoot(blocks: _Blocks, sd_inverse: float) -> float | None:
    """Height of the camera above the floor, metres: the lowest level surface within reach of a person's eyes.

    Of surfaces that a step or two could part, the nearest: the wearer stands on it, and may stand before stairs.
    """
    v, q = blocks.direction, blocks.inverse
    level = (np.abs(blocks.slope_ratio - 1.0) < 0.5) & (blocks.slope_ratio_sd < 0.35) & (q > 0)
    height = -v[:, 2] / np.maximum(q, 1e-3)
    near = np.hypot(v[:, 0], v[:, 1]) < NEAR_M * q
    ok = level & near & (height > EYE_HEIGHT_M[0] - 0.1) & (height < EYE_HEIGHT_M[1] + 0.1)
    if ok.sum() < FEWEST_BLOCKS:
        return None
    bins = np.arange(EYE_HEIGHT_M[0] - 0.1, EYE_HEIGHT_M[1] + 0.11, 0.04)
    weight = (q[ok] / -v[ok, 2]) ** 2  # a height's noise grows with distance
    votes, _ = np.histogram(height[ok], bins, weights=weight)
    counts, _ = np.histogram(height[ok], bins)
    smooth = np.convolve(votes, [1.0, 1.0, 1.0], "same")
    enough = (np.convolve(counts, [1.0, 1.0, 1.0], "same") >= FEWEST_BLOCKS) & (smooth > 0.4 * smooth.max())
    if not enough.any():
        return None
    higher = np.concatenate([[0.0], smooth[:-1]])
    deeper = np.concatenate([smooth[1:], [0.0]])
    peaks = np.flatnonzero(enough & (smooth >= higher) & (smooth > deeper))
    middle = 0.5 * (bins[1:] + bins[:-1])
    peaks = peaks[middle[peaks] > middle[peaks[-1]] - STEPS_M]
    distance = np.hypot(v[ok, 0], v[ok, 1]) / q[ok]
    peak = min(peaks, key=lambda i: float(np.median(distance[np.abs(height[ok] - middle[i]) < 0.06])))
    chosen = np.abs(height[ok] - middle[peak]) < 0.08
    result = float(np.average(height[ok][chosen], weights=weight[chosen]))
    return result if EYE_HEIGHT_M[0] <= result <= EYE_HEIGHT_M[1] else None


def _blocks(rays: LevelRays) -> _Blocks:
    """Averages over BLOCK x BLOCK rays that look down, where at least half of them have depth."""
    rows, columns = (n // BLOCK for n in rays.inverse_rho.shape)
    down = rays.directions[2].mean(axis=1) < STEEPEST_DOWN
    first = int(np.argmax(down)) // BLOCK if down.any() else rows
    top, bottom, right = first * BLOCK, rows * BLOCK, columns * BLOCK
    q = rays.inverse_rho[top:bottom, :right]
    valid = np.isfinite(q)
    count = _block_sums(valid.astype(np.float32))  # [r, c]
    n = np.maximum(count, 1)
    q_mean = _block_sums(np.where(valid, q, np.float32(0.0))) / n
    v_mean = np.stack(
        [_block_sums(np.where(valid, d[top:bottom, :right], np.float32(0.0))) / n for d in rays.directions]
    )
    full = count >= BLOCK * BLOCK // 2
    apart = max(1, round(SLOPE_BLOCKS * rays.sd_inverse / (USUAL_NOISE_PX * rays.pixel_px)))
    ratio, ratio_sd = _slope_ratio(q_mean, v_mean[2], full, rays.sd_inverse, apart)
    use = full & (v_mean[2] < STEEPEST_DOWN)
    return _Blocks(v_mean[:, use].T.astype(np.float64), q_mean[use].astype(np.float64), ratio[use], ratio_sd[use])


def _block_sums(x: F32) -> F32:
    """[r, c] of blocks in [r * BLOCK, c * BLOCK]; rows first, which are long."""
    tall = x[::BLOCK].copy()
    for i in range(1, BLOCK):
        tall += x[i::BLOCK]
    wide: F32 = tall[:, ::BLOCK].copy()
    for i in range(1, BLOCK):
        wide += tall[:, i::BLOCK]
    return wide


def _slope_ratio(q: F64, v_z: F64, full: Mask, sd_inverse: float, apart: int) -> tuple[F64, F64]:
    """Per block [r, c]: how inverse rho changes towards the block so many below (above, in the last rows), and its sd.

    1 for a horizontal surface, 0 for a wall; sd is infinite where there is no such block.
    """
    other = np.minimum(np.arange(len(q)) + apart, len(q) - 1)
    other[-apart:] = np.maximum(np.arange(len(q)) - apart, 0)[-apart:]
    if len(q) <= apart:
        return np.ones_like(q), np.full_like(q, np.inf)
    with np.errstate(divide="ignore", invalid="ignore"):
        expected = q * (v_z[other] / v_z - 1.0)
        ratio = (q[other] - q) / expected
        sd = 0.85 * sd_inverse / np.abs(expected)
    known = full & full[other] & np.isfinite(ratio)
    return np.where(known, ratio, 1.0), np.where(known, sd, np.inf)
