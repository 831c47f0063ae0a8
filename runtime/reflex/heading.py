"""The heading of travel: where the wearer's body goes, whatever the head does. Level frame, radians, m/s, seconds.

The head turns about the neck, 13 cm from the eyes; so the neck's way is followed, and turning the head turns nothing.
It is measured from where the neck was one stride (two steps) ago, so that the sway of the body cancels. Walking is told
from standing with hysteresis; standing still there is no heading of travel.
"""

from __future__ import annotations

import math
from collections import deque

import numpy as np
from numpy.typing import NDArray

F64 = NDArray[np.float64]

NECK_IN_CPF_M = np.array([0.0, -0.09, -0.10])  # cpf axes: left, up, forward; heads differ by a centimetre or two
# Cadence grows with the square root of speed: 1.8 steps/s at 1.25 m/s.
STRIDE_S, STRIDE_AT_MSEC = 1.11, 1.25
LONGEST_STRIDE_S = 1.5
SHORTEST_NS = 700_000_000  # of a way that tells walking from a head that turns or a body that sways
START_MSEC, STOP_MSEC = 0.30, 0.20
SURE_SIGMAS = 2.0  # the speed must stand out from its own uncertainty: without translation there is no heading


class Travel:
    """``update`` once a frame, in order of time."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self._way: deque[tuple[int, float, float]] = deque()  # device_ns, x, y of the neck
        self.heading_rad: float | None = None  # None while standing still or unknown
        self.speed_msec = 0.0

    def update(self, device_ns: int, neck_m: F64, sd_msec: float) -> None:
        """The neck's position [3] and how well its speed is known; a time that isn't newer changes nothing."""
        if self._way and device_ns <= self._way[-1][0]:
            return
        self._way.append((device_ns, float(neck_m[0]), float(neck_m[1])))
        while self._way[0][0] < device_ns - 1.5 * LONGEST_STRIDE_S * 1e9:
            self._way.popleft()
        vx, vy = self._velocity()
        self.speed_msec = math.hypot(vx, vy)
        least = START_MSEC if self.heading_rad is None else STOP_MSEC
        walking = self.speed_msec > max(least, SURE_SIGMAS * sd_msec)
        self.heading_rad = math.atan2(vy, vx) if walking else None

    def _velocity(self) -> tuple[float, float]:
        """The way of the last stride over its time; nothing while there is too little of a way."""
        now_ns, x, y = self._way[-1]
        speed = max(self.speed_msec, 0.3)
        stride_s = min(STRIDE_S * math.sqrt(STRIDE_AT_MSEC / speed), LONGEST_STRIDE_S)
        dt = min(stride_s, (now_ns - self._way[0][0]) * 1e-9)
        if dt < SHORTEST_NS * 1e-9:
            return 0.0, 0.0
        t = [(ns - now_ns) * 1e-9 for ns, _, _ in self._way]
        before_x = float(np.interp(-dt, t, [px for _, px, _ in self._way]))
        before_y = float(np.interp(-dt, t, [py for _, _, py in self._way]))
        return (x - before_x) / dt, (y - before_y) / dt
