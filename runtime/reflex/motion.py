"""Whether a thing moves over the floor, and how fast: a constant-velocity filter with hysteresis.

Static until proven: the speed must stand out from its own uncertainty and odometry's for several looks in a row, and
the thing must have got somewhere. Metres, seconds, level frame.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

F64 = NDArray[np.float64]

ACCELERATION_MSEC2 = 1.0  # how briskly people change their walk
FIRST_SPEED_SD_MSEC = 1.0
START_MSEC, STOP_MSEC = 0.45, 0.25
START_SIGMAS = 3.0
START_LOOKS, STOP_LOOKS = 3, 4
SHORTEST_WAY_M = 0.35


class Motion:
    """One thing's centre: ``predict`` every frame, ``see`` when it was seen whole, ``interrupt`` when seen in part."""

    __slots__ = ("_P", "_odometry_var", "_run", "_start", "_x", "moving")

    def __init__(self, at_m: F64, cov: F64) -> None:
        self._x, self._P = np.zeros(4), np.zeros((4, 4))
        self.moving = False
        self._begin(at_m, cov)

    @property
    def velocity(self) -> F64:
        """[2] m/s; means something only while ``moving``."""
        return np.array(self._x[2:])

    def predict(self, dt_s: float, odometry_var: float) -> None:
        """``odometry_var``: of the wearer's own velocity, (m/s)^2, which all static things seem to share."""
        F = np.eye(4)
        F[0, 2] = F[1, 3] = dt_s
        self._x = F @ self._x
        self._P = F @ self._P @ F.T
        a = ACCELERATION_MSEC2**2
        for i in (0, 1):
            self._P[i, i] += a * dt_s**4 / 4 + odometry_var * dt_s**2
            self._P[i, i + 2] += a * dt_s**3 / 2
            self._P[i + 2, i] += a * dt_s**3 / 2
            self._P[i + 2, i + 2] += a * dt_s**2
        self._odometry_var = odometry_var

    def see(self, at_m: F64, cov: F64) -> None:
        S = self._P[:2, :2] + cov
        innovation = at_m - self._x[:2]
        if float(innovation @ np.linalg.solve(S, innovation)) > 16.0:
            self._begin(at_m, cov)  # another part of it, or another thing: no motion can be read from the jump
            return
        gain = self._P[:, :2] @ np.linalg.inv(S)
        self._x = self._x + gain @ innovation
        self._P = self._P - gain @ self._P[:2, :]
        self._decide()

    def interrupt(self) -> None:
        """Seen in part only: its centre says nothing."""
        if not self.moving:
            self._begin(self._x[:2], np.eye(2) * 0.25)

    def _begin(self, at_m: F64, cov: F64) -> None:
        self._x = np.concatenate([at_m, np.zeros(2)])
        self._P = np.zeros((4, 4))
        self._P[:2, :2] = cov
        self._P[2, 2] = self._P[3, 3] = FIRST_SPEED_SD_MSEC**2
        self._start = at_m.copy()
        self._run = 0
        self._odometry_var = 0.0
        self.moving = False

    def _decide(self) -> None:
        v = self._x[2:]
        speed = math.hypot(*v)
        if self.moving:
            self._run = self._run + 1 if speed < STOP_MSEC else 0
            if self._run >= STOP_LOOKS:
                self._begin(self._x[:2], self._P[:2, :2])
            return
        u = v / max(speed, 1e-6)
        sd = math.sqrt(max(float(u @ self._P[2:, 2:] @ u), 0.0) + self._odometry_var)
        gone_m = float((self._x[:2] - self._start) @ u)
        stands_out = speed > START_MSEC and speed > START_SIGMAS * sd and gone_m > SHORTEST_WAY_M
        self._run = self._run + 1 if stands_out else 0
        if self._run >= START_LOOKS:
            self.moving, self._run = True, 0
