"""The heading of travel: where the wearer's feet go, whatever the head does. Level frame, radians, m/s, seconds.

Velocity is averaged over about a second, so that gait's sway and a stumble turn nothing. Walking is told from standing
with hysteresis; standing still there is no heading of travel.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

F64 = NDArray[np.float64]

SMOOTH_S = 0.8
START_MSEC, STOP_MSEC = 0.30, 0.20
SURE_SIGMAS = 2.0  # the speed must stand out from its own uncertainty: without translation there is no heading


class Travel:
    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self._velocity = np.zeros(2)
        self._last_ns: int | None = None
        self.heading_rad: float | None = None  # None while standing still or unknown

    @property
    def speed_msec(self) -> float:
        return math.hypot(*self._velocity)

    def update(self, device_ns: int, velocity_msec: F64, sd_msec: float) -> None:
        """Take in the newest velocity [3]; one that isn't newer than the last changes nothing."""
        if self._last_ns is None:
            self._velocity = velocity_msec[:2].copy()
        elif device_ns <= self._last_ns:
            return
        else:
            keep = math.exp(-(device_ns - self._last_ns) * 1e-9 / SMOOTH_S)
            self._velocity = keep * self._velocity + (1.0 - keep) * velocity_msec[:2]
        self._last_ns = device_ns
        least = START_MSEC if self.heading_rad is None else STOP_MSEC
        if self.speed_msec > max(least, SURE_SIGMAS * sd_msec):
            self.heading_rad = math.atan2(self._velocity[1], self._velocity[0])
        else:
            self.heading_rad = None
