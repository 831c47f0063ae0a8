"""The front of an obstacle as a straight piece of line seen from above, and the point of it that is nearest.

The minimum of noisy ranges would be too near, and anywhere along a surface that faces the wearer. So a line is laid
through the near part of the front, without the columns that look along its sides, and the foot of the perpendicular is
averaged over the angles that noise allows, each kept within the ends: where the angle is poorly known that is the
middle, where it is well known the near end. Metres, radians; a plane frame with the eye in its origin to lay it in, any
afterwards.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

F64 = NDArray[np.float64]

QUANTILES = np.array([-1.28, -0.52, 0.0, 0.52, 1.28])  # middles of five equal parts of a normal distribution
OUTLIER_SIGMAS = 2.5
TOGETHER = 2.0  # neighbouring columns that share a matching window, and its error
FACING_SD_RAD = math.radians(20.0)  # before it is measured, a front is taken to face the eye, give or take


@dataclass(frozen=True, slots=True)
class Front:
    x_m: float  # its middle
    y_m: float
    angle_rad: float  # of the line, modulo half a turn
    angle_sd_rad: float
    low_m: float  # its ends along the line, from the middle
    high_m: float

    def nearest_to(self, x_m: float, y_m: float) -> tuple[float, float, float]:
        """(x, y) of the point nearest to another, and the standard deviation of where it lies along the line."""
        mx, my = self.x_m - x_m, self.y_m - y_m
        angles = self.angle_rad + self.angle_sd_rad * QUANTILES
        ux, uy = np.cos(angles), np.sin(angles)
        foot = np.clip(-(mx * ux + my * uy), self.low_m, self.high_m)
        return self.x_m + float((foot * ux).mean()), self.y_m + float((foot * uy).mean()), float(foot.std())

    def turned(self, angle_rad: float, sd_rad: float) -> Front:
        return replace(self, angle_rad=angle_rad, angle_sd_rad=sd_rad)


def lay_front(x: F64, y: F64, weight: F64, noise_m: float, end_m: float) -> Front:
    """Through points [N], ordered along the front, each off by ``noise_m``; it ends ``end_m`` beyond the last ones."""
    line = _line(x, y, weight)
    for _ in range(5):
        off = np.abs((y - line.y) * math.cos(line.angle) - (x - line.x) * math.sin(line.angle))
        kept = off < max(OUTLIER_SIGMAS * noise_m, 0.7 * float(off.max()))  # the farthest first: they pull the line
        if kept.all() or kept.sum() < 2:
            break
        x, y, weight = x[kept], y[kept], weight[kept]
        line = _line(x, y, weight)
    if len(x) > 4:  # the columns at both ends see half past it
        line = _line(x[1:-1], y[1:-1], weight[1:-1])
    along = (x - line.x) * math.cos(line.angle) + (y - line.y) * math.sin(line.angle)
    sd = noise_m / (line.spread * math.sqrt(len(x) / TOGETHER))
    facing = math.atan2(line.y, line.x) + 0.5 * math.pi
    share = FACING_SD_RAD**2 / (FACING_SD_RAD**2 + sd**2)
    angle = facing + share * math.remainder(line.angle - facing, math.pi)
    return Front(
        line.x, line.y, angle, sd * math.sqrt(share), float(along.min()) - end_m, float(along.max()) + end_m
    )


@dataclass(frozen=True, slots=True)
class _Line:
    x: float  # its middle
    y: float
    angle: float
    spread: float  # root mean square along it


def _line(x: F64, y: F64, weight: F64) -> _Line:
    """Least squares across the line."""
    w = weight / weight.sum()
    mx, my = float(w @ x), float(w @ y)
    dx, dy = x - mx, y - my
    angle = 0.5 * math.atan2(2.0 * float(w @ (dx * dy)), float(w @ (dx * dx) - w @ (dy * dy)))
    along = dx * math.cos(angle) + dy * math.sin(angle)
    return _Line(mx, my, angle, math.sqrt(max(float(w @ (along * along)), 4e-4)))
