"""What the IMUs, the magnetometer and the barometer read along a walk: raw, with bias, scale, noise and slow drift.

Motion is differenced from the walk's closed forms at 0.1 ms (truncation under 1e-6 of a unit, far below the noise).
Noise levels are those of recorded Gen 1 and Gen 2 glasses. Not modelled: saturation, g-sensitivity, vibration.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from handrail.streams.cameras import ImuCalibration
from handrail.streams.world.walk import F64

GRAVITY_MSEC2 = 9.80665
STEP_S = 1e-4  # of the differences


@dataclass(frozen=True, slots=True)
class ImuNoise:
    """One reading's deviation, the error of the calibrated bias from the start, and how fast the bias wanders."""

    accel_sd: float  # m/s^2
    gyro_sd: float  # rad/s
    accel_bias_sd: float  # m/s^2
    gyro_bias_sd: float  # rad/s
    accel_walk: float  # m/s^2 per square root of a second
    gyro_walk: float  # rad/s per square root of a second


# Read off the second differences of the recordings in the project's test data, per generation and label.
IMU_NOISE = {
    (1, "imu-right"): ImuNoise(0.012, 0.0015, 0.03, 0.0015, 3e-4, 3e-5),
    (1, "imu-left"): ImuNoise(0.022, 0.0019, 0.03, 0.0015, 3e-4, 3e-5),
    (2, "imu-left"): ImuNoise(0.004, 0.0003, 0.02, 0.0010, 3e-4, 2e-5),
    (2, "imu-right"): ImuNoise(0.004, 0.0003, 0.02, 0.0010, 3e-4, 2e-5),
}


def motion(T_world_imu: tuple[F64, F64, F64]) -> tuple[F64, F64]:
    """From poses [N, 4, 4] one ``STEP_S`` before, at and after each reading: specific force (m/s^2) and angular rate
    (rad/s), both [N, 3] in the IMU's axes."""
    before, at, after = T_world_imu
    accel = (after[:, :3, 3] - 2.0 * at[:, :3, 3] + before[:, :3, 3]) / STEP_S**2
    accel[:, 2] += GRAVITY_MSEC2
    R = at[:, :3, :3]
    force = np.einsum("nji,nj->ni", R, accel)
    turn = np.einsum("nji,njk->nik", before[:, :3, :3], after[:, :3, :3])
    # The turn over 0.2 ms is so small that its skew part is its rotation vector (to the third order).
    rate = np.stack(
        [turn[:, 2, 1] - turn[:, 1, 2], turn[:, 0, 2] - turn[:, 2, 0], turn[:, 1, 0] - turn[:, 0, 1]], axis=-1
    )
    return force, rate / (4.0 * STEP_S)


def raw_readings(
    calibration: ImuCalibration, noise: ImuNoise, rate_hz: float, force: F64, angular: F64, rng: np.random.Generator
) -> tuple[F64, F64]:
    """What the chip delivers [N, 3] each: the inverse of the calibration, plus noise and wandering bias."""
    n = len(force)

    def spoilt(true: F64, sd: float, bias_sd: float, walk: float) -> F64:
        wander = np.cumsum(rng.normal(0.0, walk / np.sqrt(rate_hz), (n, 3)), axis=0)
        return true + rng.normal(0.0, bias_sd, 3) + wander + rng.normal(0.0, sd, (n, 3))

    force = spoilt(force, noise.accel_sd, noise.accel_bias_sd, noise.accel_walk)
    angular = spoilt(angular, noise.gyro_sd, noise.gyro_bias_sd, noise.gyro_walk)
    accel = force @ np.linalg.inv(calibration.accel_rectification).T + calibration.accel_bias
    gyro = angular @ np.linalg.inv(calibration.gyro_rectification).T + calibration.gyro_bias
    return accel, gyro


def magnetic_field(
    R_world_mag: F64, position: F64, rectification: F64, bias: F64, rng: np.random.Generator
) -> F64:
    """[N, 3] raw tesla: the Earth's field towards an unknown north, bent by iron in the building."""
    north = rng.uniform(0.0, 2 * np.pi)
    earth = np.array([22e-6 * np.cos(north), 22e-6 * np.sin(north), -42e-6])
    wave = rng.uniform(0.5, 1.5, (3, 3))
    iron = 3e-6 * np.sin(position @ wave.T + rng.uniform(0.0, 6.28, 3))
    field = np.einsum("nji,nj->ni", R_world_mag, earth + iron)
    return np.asarray(field @ np.linalg.inv(rectification).T + bias + rng.normal(0.0, 3e-7, field.shape))


def pressure(height_m: F64, t_s: F64, rng: np.random.Generator) -> F64:
    """[N] pascal: 12 Pa less a metre up, slow weather and doors, and the sensor's noise."""
    weather = 4.0 * np.sin(0.05 * t_s + rng.uniform(0.0, 6.28))
    return np.asarray(101_325.0 - 12.0 * height_m + weather + rng.normal(0.0, 2.0, len(t_s)))
