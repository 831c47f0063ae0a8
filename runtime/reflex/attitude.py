"""Which way is down, and how the head turns: a Kalman filter on gyroscope and accelerometer.

A low-pass on the accelerometer fails while walking (steps reach 3 m/s^2, and a turning head adds its own), so the
gyroscope carries the attitude and the accelerometer corrects it slowly: the more it is shaken, the slower. States are
the two tilts and the three gyroscope biases (error-state form, Sola 2017, "Quaternion kinematics for the error-state
Kalman filter"). Heading is the integral of the gyroscope and drifts.

Readings are taken in blocks on a fixed 5 ms grid, so the result doesn't depend on how they were batched. Knows no
images. Frames: see ``handrail.streams``. Radians, seconds, metres.
"""

from __future__ import annotations

import bisect
import math
from collections import deque
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from handrail.streams.cameras import Rig
from handrail.streams.samples import ImuBatch

F64 = NDArray[np.float64]

GRAVITY_MSEC2 = 9.81
BLOCK_NS = 5_000_000
BLOCKS_PER_CORRECTION = 10  # 50 ms
START_BLOCKS = 20  # 100 ms of readings before the first attitude
HISTORY_NS = 2_000_000_000
FRESH_NS = 60_000_000  # an attitude is given up to this long after the last reading
LOST_NS = 1_000_000_000  # a longer gap: the tilt is found anew
OTHER_IMU_AFTER_NS = 60_000_000
LARGEST_ACCEL_MSEC2 = 150.0  # beyond any IMU range of Aria (16 g): a broken reading
LARGEST_GYRO_RADSEC = 34.0  # 2000 degrees a second, the range of Aria's gyroscopes: saturated
GYRO_SD_RAD_PER_SQRT_S = 0.002  # with scale and alignment errors while the head turns
AID_GATE = 4.0
BIAS_SD_RADSEC = 0.005  # what factory calibration leaves
BIAS_WALK_RADSEC_PER_SQRT_S = 5e-5
_GRAVITY = np.array([0.0, 0.0, GRAVITY_MSEC2])
_STAYS, _OF_TILT, _OF_BIAS = np.eye(5), np.diag([1.0, 1.0, 0.0, 0.0, 0.0]), np.diag([0.0, 0.0, 1.0, 1.0, 1.0])


@dataclass(frozen=True, slots=True)
class Attitude:
    device_ns: int
    R_level_device: F64  # [3, 3]
    R_gyro_device: F64  # [3, 3]; by the gyroscope alone, never corrected: for the rotation between two frames
    angular_velocity_radsec: F64  # [3], device axes, bias removed
    tilt_sd_rad: float  # one sigma of each tilt axis
    imu_velocity_msec: F64  # [3], level; integral of acceleration since the start: only short differences mean anything
    imu_travel_m: F64  # [3], level; integral of the former
    imu_label: str | None = None  # the IMU that it comes from: these two are of the place where it sits


class AttitudeFilter:
    """Feed every IMU batch; ask for the attitude at any time of the last two seconds."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig
        self.reset()

    def reset(self) -> None:
        """Forget everything: the next first attitude defines the level frame anew."""
        self._source: str | None = None  # label of the IMU in use
        self._main_ns: int | None = None  # last time the main IMU was heard
        self._newest_ns = -1  # of the readings taken
        self._before: dict[str, F64] = {}  # label -> its last reading
        self._pending: list[tuple[NDArray[np.int64], F64, F64]] = []
        self._starting: list[tuple[F64, F64]] = []  # mean specific force and angular rate of each block
        self._R: F64 | None = None
        self._R_gyro = np.eye(3)
        self._yaw_rad = 0.0  # of the nose when the tilt was last found
        self._bias = np.zeros(3)
        self._P = np.zeros((5, 5))  # tilt about level x and y, gyroscope bias in device axes
        self._shake = 0.0  # running mean square of | |f| - g |, (m/s^2)^2
        self._force_sum = np.zeros(3)
        self._rate_square_sum = 0.0
        self._blocks = 0
        self._velocity, self._travel = np.zeros(3), np.zeros(3)
        self._history: deque[Attitude] = deque()

    def update(self, label: str, batch: ImuBatch) -> None:
        """Take in a batch. The main IMU is used; another one only after the main one told nothing for 60 ms."""
        calibration = self._rig.imus.get(label)
        if calibration is None or len(batch.device_ns) == 0:
            return
        last_ns = int(batch.device_ns[-1])
        if self._main_ns is None:
            self._main_ns = last_ns
        if label != self._rig.main_imu and last_ns - self._main_ns < OTHER_IMU_AFTER_NS:
            self._before[label] = np.hstack([batch.accel_msec2[-1], batch.gyro_radsec[-1]])
            return
        sane = _believable(batch) & self._alive(label, batch)
        if label == self._rig.main_imu and sane.any():
            self._main_ns = int(batch.device_ns[sane][-1])
        good = sane & (batch.device_ns > self._newest_ns)
        if not good.any():
            return
        if label != self._source:
            self._source = label
            self._bias = np.zeros(3)
            self._P[2:, :] = self._P[:, 2:] = 0.0
            self._P[2:, 2:] = np.eye(3) * BIAS_SD_RADSEC**2
        force, rate = calibration.to_device(batch.accel_msec2[good], batch.gyro_radsec[good])
        self._take(batch.device_ns[good], force, rate)

    def _alive(self, label: str, batch: ImuBatch) -> NDArray[np.bool_]:
        """Of each reading [N]. Noise makes each one new: one that equals the one before it in all six axes is stuck."""
        rows = np.hstack([batch.accel_msec2, batch.gyro_radsec])
        before = self._before.get(label, np.full(6, np.nan))
        self._before[label] = rows[-1]
        return np.asarray((rows != np.vstack([before, rows[:-1]])).any(axis=1))

    def at(self, device_ns: int) -> Attitude | None:
        """The attitude at a time, carried on by the gyroscope; None when no reading is near that time."""
        if not self._history:
            return None
        index = bisect.bisect_right(self._history, device_ns, key=lambda a: a.device_ns) - 1
        if index < 0:
            return None
        a = self._history[index]
        dt = (device_ns - a.device_ns) / 1e9
        if device_ns - a.device_ns > FRESH_NS:
            return None
        turn = rotation(a.angular_velocity_radsec * dt)
        return Attitude(
            device_ns, a.R_level_device @ turn, a.R_gyro_device @ turn, a.angular_velocity_radsec, a.tilt_sd_rad,
            a.imu_velocity_msec, a.imu_travel_m + a.imu_velocity_msec * dt, a.imu_label,
        )

    def _take(self, device_ns: NDArray[np.int64], force: F64, rate: F64) -> None:
        """Cut readings into blocks on the grid; the newest block stays open until a reading beyond it comes."""
        if self._newest_ns >= 0 and int(device_ns[0]) - self._newest_ns > LOST_NS:
            self._lose_tilt()
        self._newest_ns = int(device_ns[-1])
        self._pending.append((device_ns, force, rate))
        times = np.concatenate([p[0] for p in self._pending])
        forces = np.concatenate([p[1] for p in self._pending])
        rates = np.concatenate([p[2] for p in self._pending])
        block = times // BLOCK_NS
        starts = np.flatnonzero(np.diff(block, prepend=block[0] - 1))
        last = starts[-1]
        self._pending = [(times[last:], forces[last:], rates[last:])]
        if last > 0:
            count = np.diff(starts)[:, None]
            ends_ns = (block[starts[:-1]] + 1) * BLOCK_NS
            force_means = np.add.reduceat(forces[:last], starts[:-1]) / count
            self._blocks_closed(ends_ns, force_means, np.add.reduceat(rates[:last], starts[:-1]) / count)

    def _blocks_closed(self, ends_ns: NDArray[np.int64], force: F64, rate: F64) -> None:
        """Means [N, 3] of N blocks and when each ends."""
        done = 0
        while self._R is None and done < len(ends_ns):
            self._starting.append((force[done], rate[done]))
            if len(self._starting) == START_BLOCKS:
                self._find_tilt()
                self._remember(int(ends_ns[done]), rate[done])
            done += 1
        while done < len(ends_ns):
            end = done + min(len(ends_ns) - done, BLOCKS_PER_CORRECTION - self._blocks)
            self._propagate(ends_ns[done:end], force[done:end], rate[done:end])
            done = end
        while self._history and self._history[0].device_ns < self._history[-1].device_ns - HISTORY_NS:
            self._history.popleft()

    def _remember(self, end_ns: int, rate: F64) -> None:
        assert self._R is not None
        self._history.append(Attitude(
            end_ns, self._R, self._R_gyro, rate - self._bias, math.sqrt((self._P[0, 0] + self._P[1, 1]) / 2),
            self._velocity, self._travel, self._source,
        ))

    def _find_tilt(self) -> None:
        """First attitude: the mean specific force points up, give or take what a walker's steps do in 100 ms."""
        R = np.eye(3)  # device now <- device at each block, going back in time
        total, magnitudes, turning = np.zeros(3), [], 0.0
        for force, rate in reversed(self._starting):
            total += R @ force
            R = R @ rotation(-rate * (BLOCK_NS / 1e9))
            magnitudes.append(float(np.linalg.norm(force)))
            turning += float(np.linalg.norm(rate)) / len(self._starting)
        up = total / np.linalg.norm(total)
        # At rest gravity is all there is; on the move 0.1 rad was seen between 0.3 s of readings and VIO's gravity.
        restless = min(1.0, 2.0 * float(np.std(magnitudes)) + turning)
        sd = 0.01 + 0.1 * restless
        self._R = _level_from_up(up, self._rig.T_device_cpf[:3, :3], self._yaw_rad)
        self._P[:, :] = 0.0
        self._P[:2, :2] = np.eye(2) * sd**2
        self._P[2:, 2:] = np.eye(3) * BIAS_SD_RADSEC**2
        self._shake = restless**2
        self._starting = []

    def _lose_tilt(self) -> None:
        """After a long gap: start again, keeping the heading that there was."""
        if self._R is not None:
            nose = self._R @ self._rig.T_device_cpf[:3, 2]
            self._yaw_rad = math.atan2(nose[1], nose[0])
        self._R = None
        self._starting, self._pending = [], []
        self._force_sum, self._rate_square_sum, self._blocks = np.zeros(3), 0.0, 0
        self._history.clear()

    def _propagate(self, ends_ns: NDArray[np.int64], force: F64, rate: F64) -> None:
        """Carry the state through N blocks, up to a correction at most: until then the biases stay as they are."""
        assert self._R is not None
        dt = np.diff(ends_ns, prepend=self._history[-1].device_ns) / 1e9
        turn = (rate - self._bias) * dt[:, None]
        turned, half_turned = np.split(rotations(np.concatenate([turn, turn / 2])), 2)
        before, after = np.empty_like(turned), np.empty_like(turned)
        R = self._R
        for i in range(len(dt)):
            before[i] = R
            R = after[i] = R @ turned[i]
        level_force = (before @ half_turned @ force[:, :, None])[:, :, 0]
        change = (level_force - _GRAVITY) * dt[:, None]
        velocity = np.cumsum(np.vstack([self._velocity, change]), axis=0)
        way = velocity[:-1] * dt[:, None] + change * (dt[:, None] / 2)
        travel = np.cumsum(np.vstack([self._travel, way]), axis=0)
        for i in range(len(dt)):
            self._spread(after[i], float(dt[i]))
            self._R, self._R_gyro = after[i], self._R_gyro @ turned[i]
            self._velocity, self._travel = velocity[i + 1], travel[i + 1]
            deviation = math.sqrt(float(force[i] @ force[i])) - GRAVITY_MSEC2
            self._shake += (deviation * deviation - self._shake) * min(1.0, float(dt[i]) / 0.5)
            self._force_sum = self._force_sum + level_force[i]
            self._rate_square_sum += float(rate[i] @ rate[i])
            self._blocks += 1
            if self._blocks == BLOCKS_PER_CORRECTION:
                self._correct()
                self._force_sum, self._rate_square_sum, self._blocks = np.zeros(3), 0.0, 0
            self._remember(int(ends_ns[i]), rate[i])

    def _spread(self, R: F64, dt: float) -> None:
        """How the covariance grows over one block."""
        F = _STAYS.copy()
        F[:2, 2:] = -R[:2] * dt  # a bias turns the level axes by -R b dt
        gap = max(0.0, dt - 2 * BLOCK_NS / 1e9)  # readings lost: the head may have turned by anything
        noise = GYRO_SD_RAD_PER_SQRT_S**2 * dt + gap * gap
        self._P = F @ self._P @ F.T + (_OF_TILT * noise + _OF_BIAS * (BIAS_WALK_RADSEC_PER_SQRT_S**2 * dt))

    def _correct(self) -> None:
        """The mean specific force of 50 ms should point up; its noise is what the body does, not the sensor's."""
        mean = self._force_sum / self._blocks
        turning = self._rate_square_sum / self._blocks * 0.15  # centripetal, the IMU 15 cm from the neck
        variance = 0.15**2 + 0.25 * self._shake + turning**2
        S_trace = 2 * variance + GRAVITY_MSEC2**2 * float(self._P[0, 0] + self._P[1, 1])
        # Setting off or braking leaves |f| alone for a second, yet leans the mean: what can't be tilt is acceleration.
        excess = float(mean[:2] @ mean[:2]) / 2 - S_trace
        self._lean(mean[:2], variance + max(0.0, excess))

    def aid(self, excess_msec2: F64, sd_msec2: float) -> None:
        """Take in the horizontal acceleration [2] (level x, y) that the IMU told beyond what cameras saw: it's tilt.

        One that can't be is left out: something filled the view and moved.
        """
        if self._R is None:
            return
        tilt_variance = GRAVITY_MSEC2**2 * (self._P[0, 0] + self._P[1, 1]) / 2
        if float(excess_msec2 @ excess_msec2) / 2 < AID_GATE**2 * (tilt_variance + sd_msec2**2):
            self._lean(excess_msec2, sd_msec2**2)

    def _lean(self, lean_msec2: F64, variance: float) -> None:
        """Kalman update: ``lean_msec2`` [2] of gravity shows up in level x and y."""
        assert self._R is not None
        # level force = up * g - tilt x up * g  ->  (fx, fy) = g * (-tilt_y, tilt_x)
        H = np.zeros((2, 5))
        H[0, 1], H[1, 0] = -GRAVITY_MSEC2, GRAVITY_MSEC2
        S = H @ self._P @ H.T + np.eye(2) * variance
        K = self._P @ H.T @ np.linalg.inv(S)
        correction = K @ lean_msec2
        joseph = np.eye(5) - K @ H
        self._P = joseph @ self._P @ joseph.T + K @ K.T * variance
        self._R = rotation(np.array([correction[0], correction[1], 0.0])) @ self._R
        self._bias = self._bias + correction[2:]


def rotation(vector_rad: F64) -> F64:
    """Rotation matrix of a rotation vector (Rodrigues)."""
    x, y, z = vector_rad.tolist()
    angle = math.sqrt(x * x + y * y + z * z)
    if angle < 1e-12:
        return np.array([[1.0, -z, y], [z, 1.0, -x], [-y, x, 1.0]])
    s, c = math.sin(angle) / angle, (1.0 - math.cos(angle)) / (angle * angle)
    return np.array([
        [1.0 - c * (y * y + z * z), c * x * y - s * z, c * x * z + s * y],
        [c * x * y + s * z, 1.0 - c * (x * x + z * z), c * y * z - s * x],
        [c * x * z - s * y, c * y * z + s * x, 1.0 - c * (x * x + y * y)],
    ])


def rotations(vectors_rad: F64) -> F64:
    """[N, 3, 3] of rotation vectors [N, 3], each as ``rotation``."""
    half_turns = np.sqrt((vectors_rad * vectors_rad).sum(axis=1))[:, None, None] / math.pi
    s, c = np.sinc(half_turns), 0.5 * np.sinc(0.5 * half_turns) ** 2  # sin(a) / a, (1 - cos(a)) / a^2
    x, y, z = vectors_rad.T
    K = np.zeros((len(vectors_rad), 3, 3))
    K[:, 0, 1], K[:, 0, 2], K[:, 1, 2] = -z, y, -x
    K -= K.transpose(0, 2, 1)
    return np.asarray(np.eye(3) + s * K + c * (K @ K))


def _believable(batch: ImuBatch) -> NDArray[np.bool_]:
    accel, gyro = np.abs(batch.accel_msec2), np.abs(batch.gyro_radsec)
    with np.errstate(invalid="ignore"):  # NaN compares as False, as it should
        good = (accel < LARGEST_ACCEL_MSEC2).all(axis=1) & (gyro < LARGEST_GYRO_RADSEC).all(axis=1)
    return np.asarray(good & (batch.device_ns >= 0))


def _level_from_up(up_device: F64, R_device_cpf: F64, nose_yaw_rad: float) -> F64:
    """R_level_device with the given up direction and the nose's heading; looking straight down, the forehead's."""
    nose = R_device_cpf[:, 2]
    if np.linalg.norm(nose - up_device * (nose @ up_device)) < 0.1:
        nose = R_device_cpf[:, 1] * (1.0 if nose @ up_device < 0 else -1.0)
    x = nose - up_device * (nose @ up_device)
    x /= np.linalg.norm(x)
    level = np.stack([x, np.cross(up_device, x), up_device])
    return rotation(np.array([0.0, 0.0, nose_yaw_rad])) @ level
