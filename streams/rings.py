"""The two rings behind the rolling buffer: of whole samples, and of numpy columns for hundreds of readings a second.

Both hold readings in strictly increasing order of capture, bounded by age and count, and hand out views that stay as
they are: a ring never overwrites what it has written. Knows no clock and judges no payload. Nanoseconds.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from handrail.streams.checks import COLUMNS, Packed
from handrail.streams.samples import BaroBatch, ImuBatch, Kind, MagBatch, PoseBatch, Sample, Stream


@dataclass(frozen=True, slots=True)
class Bound:
    age_ns: int  # of the oldest reading, against the newest of its stream
    count: int  # readings


class View(Protocol):
    """What a ring held at one moment."""

    @property
    def times(self) -> Sequence[int] | NDArray[np.int64]:
        """Capture times, strictly increasing."""
        ...

    def span(self, low: int, high: int) -> tuple[Sample, ...]:
        """Readings number ``low`` to ``high - 1`` (at least one): as they came, or as one packed sample."""
        ...


@dataclass(frozen=True, slots=True)
class _SampleView:
    times: tuple[int, ...]
    held: tuple[Sample, ...]

    def span(self, low: int, high: int) -> tuple[Sample, ...]:
        return self.held[low:high]


class SampleRing:
    """Whole samples. It is short, so every change makes new tuples, and old views keep theirs."""

    def __init__(self, bound: Bound) -> None:
        self._bound = bound
        self._view = _SampleView((), ())

    def view(self) -> View:
        return self._view

    def append(self, sample: Sample) -> bool:
        """False: captured no later than the newest held, not taken."""
        times, held = self._view.times, self._view.held
        if times and sample.device_ns <= times[-1]:
            return False
        too_old = bisect_right(times, sample.device_ns - self._bound.age_ns - 1)
        first = max(too_old, len(times) + 1 - self._bound.count)
        self._view = _SampleView((*times[first:], sample.device_ns), (*held[first:], sample))
        return True


@dataclass(frozen=True, slots=True)
class _ColumnView:
    stream: Stream
    block: dict[str, NDArray[Any]]
    start: int  # the view is rows start to stop - 1 of the block
    stop: int

    @property
    def times(self) -> NDArray[np.int64]:
        times: NDArray[np.int64] = self.block["device_ns"][self.start : self.stop]
        return times

    def span(self, low: int, high: int) -> tuple[Sample, ...]:
        columns = {name: column[self.start + low : self.start + high] for name, column in self.block.items()}
        for column in columns.values():
            column.flags.writeable = False
        last_ns, host_ns = int(columns["device_ns"][-1]), int(columns["host_ns"][-1])
        return (Sample(self.stream, last_ns, host_ns, _packed(self.stream.kind, columns)),)


class ColumnRing:
    """Packed readings in one block. A full block is left to its views, and what is still held moves to a new one of
    twice that length: each reading is copied about twice in all, and every view is contiguous."""

    def __init__(self, stream: Stream, bound: Bound) -> None:
        self._stream, self._bound = stream, bound
        self._block = self._new_block(0)
        self._start = self._stop = 0

    def view(self) -> View:
        return _ColumnView(self._stream, self._block, self._start, self._stop)

    def extend(self, sample: Sample, rows: NDArray[np.bool_]) -> Sample | None:
        """Take those of ``rows`` [N] that were captured later than all before them; returns these, None: none."""
        columns = _columns_of(sample)
        times = columns["device_ns"]
        newest_ns = self._block["device_ns"][self._stop - 1] if self._stop > self._start else -1
        ranked = np.maximum.accumulate(np.where(rows, times, -1))
        fresh = rows & (times > np.concatenate(([newest_ns], np.maximum(ranked[:-1], newest_ns))))
        count = int(np.count_nonzero(fresh))
        if count == 0:
            return None
        # Most batches are whole, and a slice costs less than picking rows.
        self._write({name: column if count == len(fresh) else column[fresh] for name, column in columns.items()}, count)
        self._expire()
        return _ColumnView(self._stream, self._block, self._stop - count, self._stop).span(0, count)[0]

    def _write(self, columns: dict[str, NDArray[Any]], count: int) -> None:
        if self._stop + count > len(self._block["device_ns"]):
            self._move(room=count)
        for name, column in self._block.items():
            column[self._stop : self._stop + count] = columns[name]
        self._stop += count

    def _expire(self) -> None:
        held = self._block["device_ns"][self._start : self._stop]
        too_old = int(np.searchsorted(held, held[-1] - self._bound.age_ns))
        self._start = max(self._start + too_old, self._stop - self._bound.count)

    def _move(self, room: int) -> None:
        held = self._stop - self._start
        block = self._new_block(2 * held + room)
        for name, column in self._block.items():
            block[name][:held] = column[self._start : self._stop]
        self._block, self._start, self._stop = block, 0, held

    def _new_block(self, rows: int) -> dict[str, NDArray[Any]]:
        block: dict[str, NDArray[Any]] = {"device_ns": np.empty(rows, np.int64), "host_ns": np.empty(rows, np.int64)}
        for name, shape in COLUMNS[self._stream.kind].items():
            block[name] = np.empty((rows, *shape), np.float64)
        if self._stream.kind is Kind.POSE:
            block["gravity_msec2"] = np.empty((rows, 3), np.float64)
            block["causal"] = np.empty(rows, np.bool_)
        return block


def _columns_of(sample: Sample) -> dict[str, NDArray[Any]]:
    payload, count = sample.payload, sample.count
    columns: dict[str, NDArray[Any]] = {name: getattr(payload, name) for name in COLUMNS[sample.stream.kind]}
    columns["device_ns"] = getattr(payload, "device_ns")  # noqa: B009 - of any packed payload
    columns["host_ns"] = np.full(count, sample.host_ns, np.int64)
    if isinstance(payload, PoseBatch):
        columns["gravity_msec2"] = np.broadcast_to(payload.gravity_msec2, (count, 3))
        columns["causal"] = np.full(count, payload.causal)
    return columns


def _packed(kind: Kind, c: dict[str, NDArray[Any]]) -> Packed:
    """The batch of these columns. Poses take the newest gravity, and are causal when all of them are."""
    match kind:
        case Kind.IMU:
            return ImuBatch(c["device_ns"], c["accel_msec2"], c["gyro_radsec"])
        case Kind.MAG:
            return MagBatch(c["device_ns"], c["field_tesla"])
        case Kind.BARO:
            return BaroBatch(c["device_ns"], c["pressure_pa"], c["temperature_c"])
        case _:
            return PoseBatch(
                c["device_ns"], c["position_m"], c["quaternion_xyzw"], c["velocity_msec"],
                c["angular_velocity_radsec"], c["gravity_msec2"][-1], c["quality"], bool(c["causal"].all()),
            )
