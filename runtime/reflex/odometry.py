"""Where the wearer is and how fast: VIO's poses when they are there, else our own stereo odometry, else turning alone.

Rotation always comes from the attitude filter or VIO. Translation between two stereo pairs comes from
``visual_motion``; a small Kalman filter on position and velocity carries it through time with the accelerometer, which
knows the bounce of each step that a constant velocity would miss. In return the cameras tell the attitude filter which
acceleration was real. Nothing to go by: velocity becomes unknown and says so ("imu").

A pose doesn't wait for its own frame's corners: over the tenth of a second since the frame before, the accelerometer is
good to half a centimetre. What the frame tells is taken in by ``rest``, for the next one.

Level frame, metres, seconds. Pure: the same calls give the same poses. Knows no obstacles and no floor.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from handrail.runtime.reflex.attitude import GRAVITY_MSEC2, Attitude, AttitudeFilter, rotation
from handrail.runtime.reflex.depth import DepthView, Pose
from handrail.runtime.reflex.visual_motion import Corners, motion_between
from handrail.streams.cameras import Rig
from handrail.streams.samples import ImuBatch, PoseBatch

F64 = NDArray[np.float64]

POSE_FRESH_NS = 60_000_000  # how far a VIO pose may be from the frame
POSE_BATCHES = 64
POSE_SPEED_SD_MSEC = 0.05
POSE_TILT_SD_RAD = 0.005
# Of the way, always to the same side: scale and heading. Measured on the world: 0.4 to 1.7 % of our own.
POSE_DRIFT, OWN_DRIFT = 0.01, 0.02
FASTEST_MSEC, FARTHEST_M = 12.0, 1e6  # nobody runs faster, nobody gets there: VIO has run away
JUMP_M = 0.3  # VIO found itself elsewhere: our frame stays, the alignment moves
LONGEST_STEP_NS = 350_000_000  # between two views; beyond it the corners have left
ACCEL_SD_MSEC2 = 0.3  # beyond what the tilt's uncertainty leaks of gravity
ACCEL_LASTS_S = 0.8  # how long such an error keeps its sign
WALK_SD_MSEC = 0.7  # with nothing to go by: people walk, anywhere
LOST_SD_MSEC = 0.3  # a velocity less certain than this isn't told: a bit over a second without sight
GATE = 25.0  # chi-square of a translation against what accelerometer and speed led to expect
AID_EVERY_S = 0.5
AID_SD_MSEC = 0.03  # of a velocity, beyond what its covariance tells
STUBBORN = 3  # looks in a row that disagree are believed


@dataclass(frozen=True, slots=True)
class _Given:
    """VIO's pose at a frame, in a gravity-aligned frame of its own."""

    position_m: F64
    R: F64
    velocity_msec: F64
    angular_velocity_radsec: F64


@dataclass(frozen=True, slots=True)
class _Pending:
    """A view whose pose was given by the IMU alone, and whose corners are still to be asked."""

    view: DepthView
    dt: float  # s since the step before
    now: Attitude
    last: Attitude | None  # at that step
    R: F64  # [3, 3] level <- device, now
    way_m: F64  # [3] expected since that step


class Odometry:
    """Feed IMU and poses as they come; ``step`` once a stereo pair, in order of time; then ``rest``."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig
        self._filter = AttitudeFilter(rig)
        self.reset()

    def reset(self) -> None:
        """A seam: place and heading start anew."""
        self._filter.reset()
        self._batches: deque[PoseBatch] = deque(maxlen=POSE_BATCHES)
        self._newest_pose = np.full(7, np.nan)
        self._R_level_filter = np.eye(3)  # about the vertical: VIO's heading, where it took over
        self._level_given: tuple[F64, F64] | None = None  # rotation about the vertical and shift, level <- VIO's frame
        self._last: Attitude | None = None  # at the last step, of the filter
        self._last_ns: int | None = None
        self._before: Corners | None = None
        self._pending: _Pending | None = None
        self._x = np.zeros(6)  # position and velocity of the device origin, level
        self._P = np.diag([0.0] * 3 + [WALK_SD_MSEC**2] * 3)
        self._motion_change = np.zeros(6)  # what the accelerometer added to position and velocity since the last step
        self._seen: tuple[int, F64, F64, float] | None = None  # when, velocity by cameras and by IMU, variance
        self._drift_m = 0.0
        self._disagreed = 0
        self._started = False

    def imu(self, label: str, batch: ImuBatch) -> None:
        self._filter.update(label, batch)

    def poses(self, batch: PoseBatch) -> None:
        if len(batch.device_ns) == 0:
            return
        newest = np.concatenate([batch.position_m[-1], batch.quaternion_xyzw[-1]])
        stuck = np.array_equal(newest, self._newest_pose)  # VIO's noise makes each pose new
        self._newest_pose = newest
        if not stuck:
            self._batches.append(batch)

    def rest(self) -> None:
        """What the newest view tells of the motion, outside the path to the wearer; else ``step`` does it first."""
        pending, self._pending = self._pending, None
        if pending is None:
            return
        before, after = self._before, Corners(pending.view)
        if before is not None and pending.last is not None and 0 < pending.dt * 1e9 <= LONGEST_STEP_NS:
            at = self._x[:3]
            self._look(pending, pending.last, before, after)
            self._drift_m += OWN_DRIFT * float(np.linalg.norm(self._x[:3] - at))
        after.find()
        self._before = after

    def attitude(self, device_ns: int) -> Attitude | None:
        """For aiming the view and learning the bend; by VIO, else by the IMU; None when neither is near that time."""
        at, given = self._filter.at(device_ns), self._given_at(device_ns)
        if given is None:
            return None if at is None else replace(at, R_level_device=self._R_level_filter @ at.R_level_device)
        R = (np.eye(3) if self._level_given is None else self._level_given[0]) @ given.R
        if at is not None:
            return replace(at, R_level_device=R, tilt_sd_rad=POSE_TILT_SD_RAD)
        zero = np.zeros(3)
        return Attitude(device_ns, R, R, given.angular_velocity_radsec, POSE_TILT_SD_RAD, zero, zero)

    def step(self, device_ns: int, view: DepthView | None) -> Pose | None:
        """The pose at a frame's capture. ``view`` None: the frame can't be used. None: no IMU and no VIO near it."""
        self.rest()
        filtered, given = self._filter.at(device_ns), self._given_at(device_ns)
        if filtered is None and given is None:
            self._before = None
            return None
        if not self._started:
            self._begin(filtered, given)
        dt = 0.0 if self._last_ns is None else max(0.0, (device_ns - self._last_ns) / 1e9)
        if given is not None:
            pose = self._follow_given(device_ns, dt, given, filtered)
        else:
            assert filtered is not None
            pose = self._own(device_ns, dt, filtered, view)
        self._last, self._last_ns = filtered, device_ns
        return pose

    def _begin(self, filtered: Attitude | None, given: _Given | None) -> None:
        """The level frame: its origin at the eyes, x the nose's heading (the filter sees to that by itself)."""
        self._started = True
        if filtered is not None:
            R = filtered.R_level_device
        else:
            assert given is not None
            nose = given.R @ self._rig.T_device_cpf[:3, 2]
            R_yaw = _about_vertical(-math.atan2(nose[1], nose[0]))
            R = R_yaw @ given.R
            self._level_given = R_yaw, -R @ self._rig.T_device_cpf[:3, 3] - R_yaw @ given.position_m
        self._x[:3] = -R @ self._rig.T_device_cpf[:3, 3]

    # VIO

    def _given_at(self, device_ns: int) -> _Given | None:
        """The pose nearest to a time, carried there by its velocities; None when there is none near, or none good."""
        best: tuple[int, PoseBatch, int] | None = None
        for batch in self._batches:
            i = int(np.argmin(np.abs(batch.device_ns - device_ns)))
            off = abs(int(batch.device_ns[i]) - device_ns)
            if (best is None or off < best[0]) and batch.quality[i] > 0 and _believable(batch, i):
                best = off, batch, i
        if best is None or best[0] > POSE_FRESH_NS:
            return None
        _, batch, i = best
        dt = (device_ns - int(batch.device_ns[i])) / 1e9
        R_up = _upright(batch.gravity_msec2)
        angular = batch.angular_velocity_radsec[i]
        velocity = R_up @ batch.velocity_msec[i]
        R = R_up @ _matrix(batch.quaternion_xyzw[i]) @ rotation(angular * dt)
        return _Given(R_up @ batch.position_m[i] + velocity * dt, R, velocity, angular)

    def _follow_given(self, device_ns: int, dt: float, given: _Given, filtered: Attitude | None) -> Pose:
        expected = self._x[:3] + self._x[3:] * dt
        if self._level_given is None:
            assert filtered is not None
            R_yaw = _about_vertical(_heading_between(given.R, self._R_level_filter @ filtered.R_level_device))
            self._level_given = R_yaw, expected - R_yaw @ given.position_m
        R_yaw, shift = self._level_given
        position = R_yaw @ given.position_m + shift
        if np.linalg.norm(position - expected) > JUMP_M:
            self._level_given = R_yaw, shift + expected - position
            position = expected
        R = R_yaw @ given.R
        if filtered is not None:
            self._R_level_filter = _about_vertical(_heading_between(filtered.R_level_device, R))
        self._drift_m += POSE_DRIFT * float(np.linalg.norm(position - self._x[:3]))
        self._x = np.concatenate([position, R_yaw @ given.velocity_msec])
        self._P[:3, 3:] = self._P[3:, :3] = 0.0
        self._P[3:, 3:] = np.eye(3) * POSE_SPEED_SD_MSEC**2
        self._before = None
        return self._pose(device_ns, R, given.angular_velocity_radsec, POSE_TILT_SD_RAD, "vio")

    # Our own

    def _own(self, device_ns: int, dt: float, now: Attitude, view: DepthView | None) -> Pose:
        R = self._R_level_filter @ now.R_level_device
        start = self._x[:3]
        self._predict(dt, now)
        if view is None:
            self._before = None
        else:
            way_m = (self._x[3:] - self._motion_change[3:]) * dt + self._motion_change[:3]
            self._pending = _Pending(view, dt, now, self._last, R, way_m)
        self._drift_m += OWN_DRIFT * float(np.linalg.norm(self._x[:3] - start))
        lost = math.sqrt(max(float(np.diag(self._P)[3:5].max()), 0.0)) > LOST_SD_MSEC
        if lost:  # no use in carrying a guess along: it would only grow wrong
            self._x[3:] = 0.0
            self._P[3:, 3:] = np.eye(3) * WALK_SD_MSEC**2
            self._P[:3, 3:] = self._P[3:, :3] = 0.0
        return self._pose(device_ns, R, now.angular_velocity_radsec, now.tilt_sd_rad, "imu" if lost else "stereo")

    def _predict(self, dt: float, now: Attitude) -> None:
        """Carry position and velocity on with the accelerometer, moved from where the IMU sits to the device origin."""
        F = np.eye(6)
        F[:3, 3:] = np.eye(3) * dt
        change = np.zeros(6)
        if self._last is not None:
            a, b = self._last, now
            arm = np.zeros(3) if b.imu_label is None else self._rig.imus[b.imu_label].T_device_imu[:3, 3]
            swing = (b.R_level_device - a.R_level_device) @ arm
            travel = b.imu_travel_m - a.imu_travel_m - swing - self._velocity_told(a) * dt
            change[:3] = self._R_level_filter @ travel
            change[3:] = self._R_level_filter @ (self._velocity_told(b) - self._velocity_told(a))
        self._x = F @ self._x + change
        variance = ACCEL_SD_MSEC2**2 + (GRAVITY_MSEC2 * now.tilt_sd_rad) ** 2
        self._P = F @ self._P @ F.T
        self._P[[3, 4, 5], [3, 4, 5]] += variance * dt * ACCEL_LASTS_S
        self._motion_change = change

    def _look(self, pending: _Pending, last: Attitude, before: Corners, after: Corners) -> None:
        """Translation from the two views, as a measurement of the velocity at the later one."""
        dt, now, R = pending.dt, pending.now, pending.R
        T = after.view.T_device_rect
        R_level_rect = R @ T[:3, :3]
        R_now_last = now.R_gyro_device.T @ last.R_gyro_device  # device axes
        arm = (R - R @ R_now_last) @ T[:3, 3]  # the left camera swings about the device origin
        turn_rate = float(np.linalg.norm(now.angular_velocity_radsec))
        moved = motion_between(
            before, after, T[:3, :3].T @ R_now_last @ T[:3, :3], R_level_rect.T @ (pending.way_m + arm), turn_rate
        )
        if moved is None:
            self._seen = None
            return
        way = R_level_rect @ moved.translation_m - arm
        measured = (way - self._motion_change[:3]) / dt + self._motion_change[3:]
        noise = R_level_rect @ moved.covariance @ R_level_rect.T / dt**2 + np.eye(3) * (ACCEL_SD_MSEC2 * dt / 2) ** 2
        innovation = measured - self._x[3:]
        S = self._P[3:, 3:] + noise
        if innovation @ np.linalg.solve(S, innovation) > GATE:
            self._disagreed += 1
            if self._disagreed < STUBBORN:
                return
            self._P[3:, 3:] += np.eye(3) * WALK_SD_MSEC**2
            S = self._P[3:, 3:] + noise
        self._disagreed = 0
        self._aid_tilt(now, measured, float(np.trace(noise)) / 3)
        K = self._P[:, 3:] @ np.linalg.inv(S)
        H = np.hstack([np.zeros((3, 3)), np.eye(3)])
        joseph = np.eye(6) - K @ H
        self._x = self._x + K @ innovation
        self._P = joseph @ self._P @ joseph.T + K @ noise @ K.T

    def _aid_tilt(self, now: Attitude, velocity: F64, variance: float) -> None:
        """Cameras know how the velocity changed in the last half second; what the IMU has beyond that is tilt."""
        told = self._velocity_told(now)
        seen = self._R_level_filter.T @ velocity
        if self._seen is not None:
            then_ns, seen_then, told_then, variance_then = self._seen
            dt = (now.device_ns - then_ns) / 1e9
            if dt < AID_EVERY_S:
                return
            excess = ((told - told_then) - (seen - seen_then))[:2] / dt
            self._filter.aid(excess, math.sqrt(variance + variance_then + AID_SD_MSEC**2) / dt)
        self._seen = now.device_ns, seen, told, variance

    def _velocity_told(self, at: Attitude) -> F64:
        """The IMU's velocity, moved to the device origin, in the filter's level frame; only differences count."""
        if at.imu_label is None:
            return at.imu_velocity_msec
        arm = self._rig.imus[at.imu_label].T_device_imu[:3, 3]
        return at.imu_velocity_msec - at.R_level_device @ np.cross(at.angular_velocity_radsec, arm)

    def _pose(self, device_ns: int, R: F64, angular: F64, tilt_sd_rad: float, source: str) -> Pose:
        position_cov = self._P[:3, :3] + np.eye(3) * self._drift_m**2
        return Pose(
            device_ns, R, self._x[:3].copy(), self._x[3:].copy(), self._P[3:, 3:].copy(), position_cov, angular,
            tilt_sd_rad, source,
        )


def _believable(batch: PoseBatch, i: int) -> bool:
    """NaN compares as False, as it should."""
    position, velocity = np.abs(batch.position_m[i]), np.abs(batch.velocity_msec[i])
    return bool((position < FARTHEST_M).all() and (velocity < FASTEST_MSEC).all())


def _about_vertical(angle_rad: float) -> F64:
    return rotation(np.array([0.0, 0.0, angle_rad]))


def _heading_between(R_from: F64, R_to: F64) -> float:
    """The angle about the vertical that best turns one attitude into the other."""
    M = R_to @ R_from.T
    return math.atan2(M[1, 0] - M[0, 1], M[0, 0] + M[1, 1])


def _upright(gravity_msec2: F64) -> F64:
    """The smallest rotation that turns up into +z."""
    up = -gravity_msec2 / np.linalg.norm(gravity_msec2)
    axis = np.cross(up, [0.0, 0.0, 1.0])
    sine = float(np.linalg.norm(axis))
    if sine < 1e-9:
        return np.eye(3) if up[2] > 0 else np.diag([1.0, -1.0, -1.0])
    return rotation(axis / sine * math.atan2(sine, float(up[2])))


def _matrix(quaternion_xyzw: F64) -> F64:
    x, y, z, w = quaternion_xyzw / np.linalg.norm(quaternion_xyzw)
    return np.array([
        [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
        [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
        [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)],
    ])
