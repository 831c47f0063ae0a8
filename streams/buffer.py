"""The last few seconds of every stream, to be asked by capture time. Nanoseconds of the device clock throughout.

One ring per stream, bounded by age and count. IMU-class streams are numpy columns, all others the samples themselves.
What was once written in a ring is never overwritten, so that every answer is a view, without a copy, that later samples
don't change: a ``Snapshot`` taken for time t stays what was known then. Not inserted, but counted: late readings
(captured no later than the newest one held of their stream), and unfit ones (``checks``, or from the future).

Doesn't know what frames show, and lets nobody write into what it hands out.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from handrail.streams.age import FUTURE_NS, Arrival, DeviceClock
from handrail.streams.checks import COLUMNS, fit, fit_rows, readings
from handrail.streams.errors import StaleError
from handrail.streams.rings import Bound, ColumnRing, SampleRing, View
from handrail.streams.samples import Kind, Notice, Sample

_NOTHING: View = SampleRing(Bound(0, 0)).view()
_END_OF_TIME = (1 << 63) - 1
NS_PER_MS = 1_000_000


# Three seconds of frames, ten of sound, and of the sensors as much as a question looks back to (ten seconds, and the
# six before that an IMU's window begins in), at nominal Gen 2 rates; the count holds when more than that comes.
BOUNDS: Mapping[Kind, Bound] = {
    Kind.RGB: Bound(3_000_000_000, 32), Kind.SLAM: Bound(3_000_000_000, 128), Kind.EYE: Bound(3_000_000_000, 128),
    Kind.AUDIO: Bound(10_000_000_000, 1024), Kind.GAZE: Bound(17_000_000_000, 2048),
    Kind.HANDS: Bound(17_000_000_000, 1024), Kind.IMU: Bound(17_000_000_000, 16384),
    Kind.POSE: Bound(17_000_000_000, 16384), Kind.MAG: Bound(17_000_000_000, 2048),
    Kind.BARO: Bound(17_000_000_000, 1024),
}


@dataclass(frozen=True, slots=True)
class StreamStatistics:
    """Per reading, not per batch. ``received`` holds all the others too."""

    received: int
    dropped: int  # unfit, or from the future
    late: int  # captured no later than the newest held
    held: int  # in the ring now


@dataclass(slots=True)
class _Tally:
    received: int = 0
    dropped: int = 0
    late: int = 0


class Snapshot:
    """What was held of every stream at one moment, up to one capture time. Never changes."""

    def __init__(self, views: Mapping[str, View], device_ns: int) -> None:
        self.device_ns = device_ns
        self._views = {label: (view, bisect_right(view.times, device_ns)) for label, view in views.items()}

    def closest(self, label: str, device_ns: int, tolerance_ns: int) -> Sample | None:
        """The reading captured nearest to ``device_ns`` (of two equally near, the earlier); None beyond tolerance."""
        view, end = self._views.get(label, (_NOTHING, 0))
        after = bisect_right(view.times, device_ns, 0, end)
        near = [i for i in (after - 1, after) if 0 <= i < end]
        if not near:
            return None
        best = min(near, key=lambda i: abs(int(view.times[i]) - device_ns))
        return view.span(best, best + 1)[0] if abs(int(view.times[best]) - device_ns) <= tolerance_ns else None

    def window(self, label: str, from_ns: int, to_ns: int) -> tuple[Sample, ...]:
        """Readings captured after ``from_ns`` and up to ``to_ns``: (from, to], so that windows in a row share none.

        IMU-class streams come as one sample that holds them all, or none.
        """
        view, end = self._views.get(label, (_NOTHING, 0))
        low, high = bisect_right(view.times, from_ns, 0, end), bisect_right(view.times, to_ns, 0, end)
        return view.span(low, high) if low < high else ()

    def newest(self, label: str) -> Sample | None:
        view, end = self._views.get(label, (_NOTHING, 0))
        return view.span(end - 1, end)[0] if end else None


class RollingBuffer:
    """See the module. ``bounds`` per kind; kinds without one are counted and not held."""

    def __init__(self, bounds: Mapping[Kind, Bound] = BOUNDS) -> None:
        self.clock = DeviceClock()
        self.restarts = 0  # how often the device clock was set anew: no time from before can be compared with one after
        self._bounds = bounds
        self._samples: dict[str, SampleRing] = {}
        self._columns: dict[str, ColumnRing] = {}
        self._tallies: dict[str, _Tally] = {}

    def add(self, sample: Sample) -> Sample | None:
        """Take in a sample; arrivals come in order of ``host_ns``. Returns what of it may be used, None: nothing.

        Of a packed sample these are its fit and timely readings. A seam empties the rings: what came before lies
        elsewhere.
        """
        if isinstance(sample.payload, Notice):
            if sample.payload.what == "seam":
                self._empty()
            return None
        tally = self._tallies.setdefault(sample.stream.label, _Tally())
        count = readings(sample)
        tally.received += count
        bound = self._bounds.get(sample.stream.kind)
        if bound is None:
            return None
        taken, late = self._add_rows(sample, bound) if sample.stream.kind in COLUMNS else self._add_whole(sample, bound)
        tally.late += late
        tally.dropped += count - late - (0 if taken is None else readings(taken))
        return taken

    def closest(self, label: str, device_ns: int, tolerance_ns: int) -> Sample | None:
        """As ``Snapshot.closest``, of all that is held now."""
        return self._now(label).closest(label, device_ns, tolerance_ns)

    def window(self, label: str, from_ns: int, to_ns: int) -> tuple[Sample, ...]:
        """As ``Snapshot.window``, of all that is held now."""
        return self._now(label).window(label, from_ns, to_ns)

    def latest(self, label: str, max_age_ms: float, now_ns: int) -> Sample:
        """The newest reading. Raises StaleError when there is none or it was captured longer ago than that."""
        sample = self._now(label).newest(label)
        if sample is None:
            raise StaleError(f"{label}: expected a sample at most {max_age_ms:g} ms old, none is held; wait for one")
        age_ms = self.age_ns(sample.device_ns, now_ns) / NS_PER_MS
        if age_ms > max_age_ms:
            raise StaleError(f"{label}: expected a sample at most {max_age_ms:g} ms old, the newest is {age_ms:.0f} ms")
        return sample

    def snapshot(self, device_ns: int) -> Snapshot:
        """All that is held now and was captured up to ``device_ns``, without a copy."""
        return Snapshot({label: ring.view() for label, ring in self._rings()}, device_ns)

    def age_ns(self, device_ns: int, now_ns: int) -> int:
        """How long ago that was on the loop's clock. Raises StaleError before anything has arrived to tell from."""
        return self.clock.age_ns(device_ns, now_ns)

    def statistics(self) -> dict[str, StreamStatistics]:
        """Per stream label, in order of first arrival."""
        held = {label: len(ring.view().times) for label, ring in self._rings()}
        return {
            label: StreamStatistics(tally.received, tally.dropped, tally.late, held.get(label, 0))
            for label, tally in self._tallies.items()
        }

    def _now(self, label: str) -> Snapshot:
        ring = self._samples.get(label) or self._columns.get(label)
        return Snapshot({} if ring is None else {label: ring.view()}, _END_OF_TIME)

    def _rings(self) -> Iterator[tuple[str, SampleRing | ColumnRing]]:
        return chain(self._samples.items(), self._columns.items())

    def _empty(self) -> None:
        self._samples.clear()
        self._columns.clear()

    def _believed(self, sample: Sample, device_ns: int) -> bool:
        arrival = self.clock.observe(sample.stream, device_ns, sample.host_ns)
        if arrival is Arrival.RESTARTED:
            self.restarts += 1
            self._empty()
        return arrival is not Arrival.FUTURE

    def _add_whole(self, sample: Sample, bound: Bound) -> tuple[Sample | None, int]:
        """(what was taken, how many were late) of a sample that is one reading."""
        if not fit(sample) or not self._believed(sample, sample.device_ns):
            return None, 0
        ring = self._samples.setdefault(sample.stream.label, SampleRing(bound))
        return (sample, 0) if ring.append(sample) else (None, 1)

    def _add_rows(self, sample: Sample, bound: Bound) -> tuple[Sample | None, int]:
        """(what was taken, how many were late) of a packed sample."""
        rows = fit_rows(sample)
        if rows is None or not rows.any():
            return None, 0
        times: NDArray[np.int64] = getattr(sample.payload, "device_ns")  # noqa: B009 - of any packed payload
        if not self._believed(sample, int(times[rows][-1])):
            return None, 0
        assert self.clock.offset_ns is not None
        rows = rows & (times <= sample.host_ns - self.clock.offset_ns + FUTURE_NS)
        ring = self._columns.get(sample.stream.label)
        if ring is None:
            ring = self._columns[sample.stream.label] = ColumnRing(sample.stream, bound)
        taken = ring.extend(sample, rows)
        return taken, int(rows.sum()) - (0 if taken is None else readings(taken))
