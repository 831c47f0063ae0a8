"""From light to the bytes a sensor delivers: exposure, blur, vignetting, photon and read noise. Knows no world.

Levels follow recorded Aria frames: a black level near 6, a mean near 55 of 255, exposures of 1-2 ms at gain 1 in an
office. Not modelled: H.265 artefacts, hot pixels, rolling shutter of the RGB camera, highlights and glare.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import cv2
import numpy as np
from numpy.typing import NDArray

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]

BLACK = 6.0  # level without light
TARGET = 50.0  # mean level above black that exposure aims for
FULL_WELL = 8000.0  # electrons at level 255 with gain 1
READ_NOISE = 4.0  # electrons
PSF_PX = 0.5  # lens and pixel aperture, one sigma


@dataclass(frozen=True, slots=True)
class Sensor:
    levels_per_cd_s: float  # levels (of 255) at gain 1 for 1 cd/m^2 through 1 s
    longest_s: float  # exposure
    highest_gain: float


SLAM_SENSOR = Sensor(levels_per_cd_s=900.0, longest_s=0.010, highest_gain=16.0)
RGB_SENSOR = Sensor(levels_per_cd_s=90.0, longest_s=0.016, highest_gain=32.0)


def metered(sensor: Sensor, mean_cd: float) -> tuple[float, float]:
    """(exposure in seconds, gain) that bring a mean radiance to the target, within what the sensor can."""
    wanted = TARGET / max(sensor.levels_per_cd_s * mean_cd, 1e-9)
    exposure = min(wanted, sensor.longest_s)
    return exposure, min(max(wanted / exposure, 1.0), sensor.highest_gain)


def expose(
    sensor: Sensor, radiance: F32, falloff: F32, exposure_s: float, gain: float, motion_px: tuple[float, float],
    rng: np.random.Generator,
) -> NDArray[np.uint8]:
    """Radiance [H, W] or [H, W, 3] (cd/m^2) -> levels of the same shape.

    ``falloff`` [H, W] is 0..1 (vignetting), ``motion_px`` how far the picture moves over the exposure, ``rng``
    where in the table of noise to begin.
    """
    light = cv2.filter2D(radiance, -1, _blur_kernel(*motion_px), borderType=cv2.BORDER_REPLICATE)
    light = light * (falloff if light.ndim == 2 else falloff[..., None])
    level = light * np.float32(sensor.levels_per_cd_s * exposure_s * gain)
    per_electron = gain * 255.0 / FULL_WELL
    # Photons arrive as a Poisson process: its variance is its mean.
    sd = np.sqrt(level * np.float32(per_electron) + np.float32((READ_NOISE * per_electron) ** 2))
    grain = _normal_table()
    start = int(rng.integers(len(grain) - level.size))
    level += sd * grain[start : start + level.size].reshape(level.shape)
    level += np.float32(BLACK + 0.5)
    return np.asarray(np.clip(level, 0, 255).astype(np.uint8))


def falloff(inside: NDArray[np.bool_], theta_rad: F32) -> F32:
    """Vignetting [H, W]: ``theta_rad`` [N] is the angle off the axis of the pixels inside the lens circle."""
    out = np.zeros(inside.shape, dtype=np.float32)
    out[inside] = np.clip(np.cos(0.75 * theta_rad), 0.05, 1.0)
    return np.asarray(cv2.GaussianBlur(out, (0, 0), 2.0), dtype=np.float32) * inside


def _blur_kernel(dx: float, dy: float) -> F32:
    """The lens's spot drawn along the motion, at a tenth of a pixel; sums to 1."""
    half = min(12, math.ceil(3 * PSF_PX + 0.5 * math.hypot(dx, dy)))
    x, y = np.meshgrid(np.arange(-half, half + 1), np.arange(-half, half + 1))
    kernel = np.zeros(x.shape)
    for share in np.linspace(-0.5, 0.5, max(1, round(math.hypot(dx, dy) * 4)) + 1):
        kernel += np.exp(-((x - share * dx) ** 2 + (y - share * dy) ** 2) / (2 * PSF_PX**2))
    return np.asarray(kernel / kernel.sum(), dtype=np.float32)


@cache
def _normal_table() -> F32:
    return np.random.default_rng(5).standard_normal(1 << 20, dtype=np.float32)
