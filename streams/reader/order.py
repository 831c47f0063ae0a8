"""The records of all streams in one order of device time, whatever order they were written in. Pure numpy; times in ns.

A time of -1 is missing. A time that lies a minute or more away from where most are can only be damage: played at its
place, it would make the wearer wait for it for years.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from handrail.streams.samples import I64

PLAUSIBLE_GAP_NS = 60_000_000_000


@dataclass(frozen=True, slots=True)
class Order:
    """N records that have a place in time, by time, then stream, then place in the stream."""

    time: I64  # [N]
    stream: I64  # [N]
    index: I64  # [N] place in its stream
    unplaced: tuple[int, ...]  # per stream: records without a usable time


def in_order(times: Sequence[I64]) -> Order:
    """``times`` [streams][records], each stream's in the order in which it was written."""
    lengths = [len(t) for t in times]
    time = np.concatenate([*times, np.zeros(0, dtype=np.int64)])
    stream = np.repeat(np.arange(len(times)), lengths)
    index = np.concatenate([*(np.arange(n) for n in lengths), np.zeros(0, dtype=np.int64)])
    placed = plausible(time)
    unplaced = np.bincount(stream[~placed], minlength=len(times))
    order = np.flatnonzero(placed)[np.lexsort((index[placed], stream[placed], time[placed]))]
    return Order(time[order], stream[order], index[order], tuple(unplaced.tolist()))


def plausible(times: I64) -> NDArray[np.bool_]:
    """Which times [N] lie with most of the others: in the fullest run without a gap of a minute."""
    ok = times >= 0
    if not ok.any():
        return np.asarray(ok)
    ordered = np.sort(times[ok])
    runs = np.split(ordered, np.flatnonzero(np.diff(ordered) > PLAUSIBLE_GAP_NS) + 1)
    run = max(runs, key=len)
    return np.asarray(ok & (times >= run[0]) & (times <= run[-1]))


def lap_shift_ns(order: Order, rhythm: Sequence[int]) -> int:
    """From one lap of a looped recording to the next: laps don't overlap, and streams ``rhythm`` keep their spacing."""
    shifts = [int(order.time[-1] - order.time[0]) + 1_250_000]  # the high-rate streams' spacing
    for stream in rhythm:
        times = order.time[order.stream == stream]
        if len(times) > 1:
            shifts.append(int(times[-1] - times[0] + np.median(np.diff(times))))
    return max(shifts)
