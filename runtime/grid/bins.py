"""Rows of features at any times -> 64 equal bins of an interval: the mean of what is known in each, and what is not.

Knows neither sensors nor units. Times are nanoseconds of one clock, any order.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]
I64 = NDArray[np.int64]
Mask = NDArray[np.bool_]
Rows = tuple[I64, F64]  # device times [N] in ns, features [N, D]; NaN: not known

BINS = 64
STREAMS: dict[str, int] = {"imu": 1024, "magbaro": 9, "gaze": 8, "hands": 20, "trajectory": 18}  # -> features


@dataclass(frozen=True, slots=True)
class Grid:
    """One stream on the grid. A bin is valid when any of its features is known.

    ``known`` is for the parts of a stream that can be missing alone: one hand, one IMU, the depth of a gaze. Its
    place in ``values`` is 0, and it is 0 after ``Statistics.apply`` too: the mean, not a reading of nothing.
    """

    values: F32  # [64, D], 0 where not known
    valid: Mask  # [64]
    known: Mask | None = None  # [64, D]; None: every feature of a valid bin

    def mask(self) -> Mask:
        """[64, D]: which values are readings."""
        valid = np.broadcast_to(self.valid[:, None], self.values.shape)
        return valid if self.known is None else valid & self.known


def bin_of(t_ns: I64, start_ns: int, end_ns: int) -> I64:
    """The bin of each time [N] that lies in [start, end). Raises ValueError when the interval is empty."""
    if end_ns <= start_ns:
        raise ValueError(f"grid: expected an interval that ends after its start, got [{start_ns}, {end_ns})")
    return np.asarray((t_ns - start_ns) * BINS // (end_ns - start_ns))


def bin_means(t_ns: I64, values: F64, start_ns: int, end_ns: int) -> Grid:
    """Times [N] and features [N, D] -> the mean per bin and feature of the finite entries in [start, end).

    A row in which nothing is finite doesn't count. Raises ValueError when the interval is empty.
    """
    inside = (t_ns >= start_ns) & (t_ns < end_ns)
    bins, rows = bin_of(t_ns[inside], start_ns, end_ns), values[inside]
    features = values.shape[1]
    finite = np.isfinite(rows)
    cells = (bins[:, None] * features + np.arange(features))[finite]
    count = np.bincount(cells, minlength=BINS * features).reshape(BINS, features)
    total = np.bincount(cells, weights=rows[finite], minlength=BINS * features).reshape(BINS, features)
    with np.errstate(over="ignore"):
        mean = (total / np.maximum(count, 1)).astype(np.float32)
    known = (count > 0) & np.isfinite(mean)  # what overflows is no reading
    return Grid(np.where(known, mean, np.float32(0)), np.asarray(known.any(axis=1)), known)
