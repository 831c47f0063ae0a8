"""Native records of Aria's sensors as rows of numbers, in the order of ``wire.WIDTH``. Runs in the reader child.

Each function touches the native reader for one record. What a recording flags as invalid, and what no sensor can give,
does not get through. Units: metres, radians, seconds, tesla, pascal; positions and rotations as named per function.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from handrail.streams.errors import SourceError
from handrail.streams.reader import wire
from handrail.streams.samples import F64, Kind

# No sensor of the glasses reaches these: a value beyond is damage, and must not tilt the wearer's floor.
_LIMIT: dict[Kind, F64] = {
    Kind.IMU: np.array([500.0] * 3 + [100.0] * 3),
    Kind.MAG: np.full(3, 0.05),
    Kind.BARO: np.array([200_000.0, 200.0]),
    Kind.POSE: np.array([1e6] * 3 + [1.01] * 4 + [50.0] * 3 + [100.0] * 3 + [20.0] * 3 + [1.0]),
    Kind.GAZE: np.array([math.pi, math.pi, 1e3]),
    Kind.HANDS: np.full(wire.WIDTH[Kind.HANDS], 5.0),
}
_MAY_BE_NAN = {Kind.GAZE, Kind.HANDS}


def believable(kind: Kind, rows: F64) -> NDArray[np.bool_]:
    """Which rows [N, WIDTH[kind]] a sensor can have given."""
    good = ~np.any(np.abs(rows) > _LIMIT[kind], axis=1)
    if kind not in _MAY_BE_NAN:
        good &= np.isfinite(rows[:, 0] if kind is Kind.BARO else rows.sum(axis=1))  # not every barometer has degrees
    return np.asarray(good)


def audio_block(data: Any, record: Any, channels: int) -> tuple[int, bytes]:
    """Time of the first sample, and int32 [N, channels]: 16-bit recordings (Gen 2) and 32-bit ones on one scale."""
    raw = np.array(data.data, dtype=np.int64)
    if channels <= 0 or not len(raw) or len(raw) % channels or not record.capture_timestamps_ns:
        raise SourceError(f"{len(raw)} values of {channels} channels are no audio block")
    full = max(int(data.max_amplitude), 1).bit_length()
    pcm = np.clip(raw << max(31 - full, 0), -(2**31), 2**31 - 1).astype("<i4")
    return int(record.capture_timestamps_ns[0]), pcm.tobytes()


def reading_of(provider: Any, stream_id: Any, sensor: str) -> Callable[[int], list[float]] | None:
    """The function that reads record i of a stream as numbers; None for cameras, audio and what is only counted."""
    match sensor:
        case "IMU":
            return lambda i: _imu(provider.get_imu_data_by_index(stream_id, i))
        case "MAGNETOMETER":
            return lambda i: list(provider.get_magnetometer_data_by_index(stream_id, i).mag_tesla)
        case "BAROMETER":
            return lambda i: _baro(provider.get_barometer_data_by_index(stream_id, i))
        case "EYE_GAZE":
            return lambda i: _gaze(provider.get_eye_gaze_data_by_index(stream_id, i))
        case "HAND_POSE":
            return lambda i: _hands(provider.get_hand_pose_data_by_index(stream_id, i))
        case "VIO":
            return lambda i: _vio(provider.get_vio_data_by_index(stream_id, i))
        case "VIO_HIGH_FREQ":
            return lambda i: _vio_high_frequency(provider.get_vio_high_freq_data_by_index(stream_id, i))
    return None


def _imu(d: Any) -> list[float]:
    if not (d.accel_valid and d.gyro_valid):
        raise SourceError("flagged as invalid by the recording")
    return [*d.accel_msec2, *d.gyro_radsec]


def _baro(d: Any) -> list[float]:
    return [d.pressure, d.temperature]


def _gaze(d: Any) -> list[float]:
    if not d.combined_gaze_valid:
        return [math.nan, math.nan, math.nan]
    return [d.yaw, d.pitch, d.depth if d.spatial_gaze_point_valid and d.depth > 0 else math.nan]


def _hands(d: Any) -> list[float]:
    return [*_hand(d.left_hand), *_hand(d.right_hand)]


def _hand(side: Any) -> list[float]:
    if side is None or not side.confidence >= 0:
        return [math.nan] * 73
    normals = side.wrist_and_palm_normal_device
    normal = [math.nan] * 3 if normals is None else normals.palm_normal_device
    landmarks = [v for point in side.landmark_positions_device for v in point]
    return [side.confidence, *side.get_wrist_position_device(), *side.get_palm_position_device(), *normal, *landmarks]


def _vio(d: Any) -> list[float]:
    """The body is the IMU there; poses and velocities are moved to the device origin."""
    imu_device = d.transform_bodyimu_device.to_matrix()
    odometry_imu = d.transform_odometry_bodyimu.to_matrix()
    spin_imu = np.asarray(d.angular_velocity_in_bodyimu, dtype=np.float64).reshape(3)
    velocity = np.asarray(d.linear_velocity_in_odometry, dtype=np.float64).reshape(3)
    velocity = velocity + odometry_imu[:3, :3] @ np.cross(spin_imu, imu_device[:3, 3])
    spin = imu_device[:3, :3].T @ spin_imu
    gravity = np.asarray(d.gravity_in_odometry).reshape(3)
    good = d.status.name == "VALID" and d.pose_quality.name == "GOOD"
    return [*_pose(d.transform_odometry_bodyimu @ d.transform_bodyimu_device), *velocity, *spin, *gravity, float(good)]


def _vio_high_frequency(d: Any) -> list[float]:
    velocity, spin, gravity = d.device_linear_velocity_odometry, d.angular_velocity_device, d.gravity_odometry
    quality = min(max(float(d.quality_score), 0.0), 1.0)
    return [*_pose(d.transform_odometry_device), *velocity, *spin, *gravity, quality]


def _pose(transform: Any) -> list[float]:
    w, x, y, z, px, py, pz = transform.to_quat_and_translation().reshape(7)
    return [px, py, pz, x, y, z, w]
