"""Raw readings of an IMU -> five-second windows at 50 Hz for an IMU encoder, and its answers as rows of the grid.

One window per bin and IMU, ending at the last reading in that bin and made of no later one. A value of a window is the
mean of the signal over its 20 ms: the readings come at 800 or 1000 Hz, and every twentieth alone would fold the
vibrations of a step into the signal. Raw units in the IMU's own frame (m/s^2 and rad/s), as PRIMUS was trained on
(Das et al. 2025). Knows no encoder: that is a function the caller brings.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from handrail.runtime.grid.bins import BINS, F32, I64, STREAMS, Rows, bin_of
from handrail.streams.samples import ImuBatch

AXES, LENGTH, STEP_NS = 6, 250, 20_000_000  # of a window: five seconds at 50 Hz
WINDOW_NS = LENGTH * STEP_NS
LARGEST_GAP_NS = 100_000_000  # a window with a longer one is not used
LARGEST = 1e4  # m/s^2 or rad/s; nothing reads more, and the running integral would drown in it
ENCODED = 512

Encoder = Callable[[F32], F32]  # [W, 6, 250] -> [W, 512]


def windows(batch: ImuBatch, start_ns: int, end_ns: int) -> tuple[I64, F32]:
    """The ends [W] and windows [W, 6, 250] (acceleration xyz, angular rate xyz) of the bins of [start, end) that have
    one. Readings before ``start_ns`` are used where they are given; times strictly increasing."""
    readings = np.hstack([batch.accel_msec2, batch.gyro_radsec])
    good = (np.abs(readings) <= LARGEST).all(axis=1) & (batch.device_ns < end_ns)
    t_ns, readings = batch.device_ns[good], readings[good]
    if not len(t_ns):
        return np.empty(0, np.int64), np.empty((0, AXES, LENGTH), np.float32)
    gap_ns = np.diff(t_ns, prepend=t_ns[0] - LARGEST_GAP_NS - 1)
    whole_since_ns = np.maximum.accumulate(np.where(gap_ns > LARGEST_GAP_NS, t_ns, np.iinfo(np.int64).min))
    last = np.diff(bin_of(t_ns, start_ns, end_ns), append=BINS) != 0
    ends_ns = t_ns[last & (t_ns >= start_ns) & (t_ns - WINDOW_NS >= whole_since_ns)]

    seconds = (t_ns - t_ns[0]) / 1e9
    steps = (readings[1:] + readings[:-1]) / 2 * np.diff(seconds)[:, None]
    integral = np.vstack([np.zeros(6), np.cumsum(steps, axis=0)])
    edges_ns = ends_ns[:, None] + np.arange(-LENGTH, 1) * STEP_NS  # [W, 251]
    edges = (edges_ns - t_ns[0]) / 1e9
    at_edges = np.stack([np.interp(edges, seconds, column) for column in integral.T], axis=1)  # [W, 6, 251]
    return ends_ns, (np.diff(at_edges, axis=2) / (STEP_NS / 1e9)).astype(np.float32)


def imu_rows(batches: Sequence[ImuBatch | None], start_ns: int, end_ns: int, encode: Encoder) -> Rows:
    """Two IMUs (1202-1 first, None: missing) -> rows of 2 x 512, the half of the other IMU not known.

    ``encode`` is called once, if there is any window. Raises ValueError for an encoder of another shape.
    """
    found = [None if b is None else windows(b, start_ns, end_ns) for b in batches]
    ends = [f[0] for f in found if f is not None]
    stacked = [f[1] for f in found if f is not None]
    count = sum(map(len, ends))
    values = np.full((count, STREAMS["imu"]), np.nan)
    if not count:
        return np.empty(0, np.int64), values
    encoded = encode(np.concatenate(stacked))
    if encoded.shape != (count, ENCODED):
        raise ValueError(f"IMU encoder: expected {(count, ENCODED)} for {count} windows, got {encoded.shape}")
    row = 0
    for half, f in enumerate(found):
        if f is not None:
            rows = slice(row, row + len(f[0]))
            values[rows, half * ENCODED : (half + 1) * ENCODED] = encoded[rows]
            row = rows.stop
    return np.concatenate(ends), values
