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
BENT_SIGMAS = 3.0  # farther than this from the chord, a front has a corner
FEWEST_BENT = 8  # columns in which a corner can be told from noise
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
    straight = _straight(x, y, BENT_SIGMAS * noise_m)
    x, y, weight = x[straight], y[straight], weight[straight]
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
    sd = noise_m / (line.spread * math.sqrt(len(x) / TOGETHER))
    facing = math.atan2(line.y, line.x) + 0.5 * math.pi
    share = FACING_SD_RAD**2 / (FACING_SD_RAD**2 + sd**2)
    turn = math.remainder(line.angle - facing, math.pi)
    along = (x - line.x) * math.cos(facing + turn) + (y - line.y) * math.sin(facing + turn)
    return Front(
        line.x, line.y, facing + share * turn, sd * math.sqrt(share),
        float(along.min()) - end_m, float(along.max()) + end_m,
    )


def _straight(x: F64, y: F64, most_off_m: float) -> slice:
    """The straight part of a front that has corners: one line through both sides of a cabinet has its foot beside it.

    Cut where it is farthest from its chord (Douglas and Peucker), the nearest part kept: at a corner, the longer.
    """
    first, last = 0, len(x)
    while last - first >= FEWEST_BENT:
        px, py = _smooth(x[first:last]), _smooth(y[first:last])
        dx, dy = px[-1] - px[0], py[-1] - py[0]
        off = np.abs(dx * (py - py[0]) - dy * (px - px[0])) / max(math.hypot(dx, dy), 1e-6)
        corner = int(off.argmax())
        if off[corner] <= most_off_m:
            break
        nearest = int((px * px + py * py).argmin())
        before = nearest < corner if abs(nearest - corner) > 1 else 2 * corner > last - first
        first, last = (first, first + corner + 2) if before else (first + corner + 1, last)
    return slice(first, last)


def _smooth(values: F64) -> F64:
    """[N] to [N - 2], over three columns."""
    return np.asarray(values[:-2] + values[1:-1] + values[2:]) / 3.0


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
