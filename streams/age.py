"""How old a sample is: the offset between the device clock and the loop's, learnt from what arrives. Nanoseconds.

``host_ns - device_ns`` of a sample is that offset plus the time it took to get here. Its running minimum over the
low-latency streams (IMU, magnetometer, barometer) is the offset plus their shortest way, about 10 ms. So a frame that
waited 3.7 s in a queue comes out 3.7 s old, although it has only just arrived.

The minimum may creep up by ``DRIFT``: two crystals part by up to 100 us a second, 0.4 s in an hour, and a minimum kept
for ever would call everything stale one day. A real lag of seconds can't hide in that (6 ms a minute).

A damaged timestamp must not poison the minimum for ever. A reading from the future, or older than one before it in its
stream, is odd and changes nothing; when the low-latency streams bring nothing but odd ones for ``PERSISTENT_NS``, the
device clock was set anew, and all that was learnt is forgotten.

Doesn't know what is in a sample, nor which age is too old.
"""

from __future__ import annotations

from enum import Enum, auto

from handrail.streams.errors import StaleError
from handrail.streams.samples import Kind, Stream

LOW_LATENCY = frozenset({Kind.IMU, Kind.MAG, Kind.BARO})
DRIFT = 100e-6
FUTURE_NS = 500_000_000  # captured this long after now: its timestamp is damaged
PERSISTENT_NS = 300_000_000


class Arrival(Enum):
    ORDINARY = auto()
    FUTURE = auto()  # its timestamp can't be believed
    RESTARTED = auto()  # the device clock was set anew: nothing older can be compared with this


class DeviceClock:
    """The device clock as seen from the loop's. ``offset_ns`` is None until something has arrived."""

    def __init__(self) -> None:
        self.offset_ns: int | None = None
        self._low_latency = False  # whether the offset rests on low-latency streams
        self._agreed = False  # a second arrival has said the same: a damaged first one must not set the clock
        self._last_host_ns = 0
        self._newest_ns: dict[str, int] = {}
        self._odd_since_ns: int | None = None

    def observe(self, stream: Stream, device_ns: int, host_ns: int) -> Arrival:
        """Take in an arrival; arrivals come in order of ``host_ns``. All streams lead while no low-latency one has."""
        low_latency = stream.kind in LOW_LATENCY
        if low_latency and not self._low_latency:
            self._forget(low_latency=True)
        way_ns = host_ns - device_ns
        future = self.offset_ns is not None and way_ns < self.offset_ns - FUTURE_NS
        if low_latency != self._low_latency:
            return Arrival.FUTURE if future else Arrival.ORDINARY
        if self.offset_ns is None or (not self._agreed and abs(way_ns - self.offset_ns) > FUTURE_NS):
            first = self.offset_ns is None
            self._start(stream, device_ns, host_ns)
            return Arrival.ORDINARY if first else Arrival.RESTARTED
        if future or device_ns < self._newest_ns.get(stream.label, device_ns):
            return self._odd(stream, device_ns, host_ns, future)
        self._agreed = True
        self._odd_since_ns = None
        self._newest_ns[stream.label] = device_ns
        crept_ns = round(max(0, host_ns - self._last_host_ns) * DRIFT)
        self.offset_ns, self._last_host_ns = min(way_ns, self.offset_ns + crept_ns), host_ns
        return Arrival.ORDINARY

    def age_ns(self, device_ns: int, now_ns: int) -> int:
        """Time since capture, less the shortest way. Raises StaleError while nothing has arrived to learn from."""
        if self.offset_ns is None:
            raise StaleError("age: expected a sample to learn the device clock from, none has arrived; wait for one")
        return now_ns - device_ns - self.offset_ns

    def _odd(self, stream: Stream, device_ns: int, host_ns: int, future: bool) -> Arrival:
        if self._odd_since_ns is None:
            self._odd_since_ns = host_ns
        if host_ns - self._odd_since_ns >= PERSISTENT_NS:
            self._start(stream, device_ns, host_ns)
            return Arrival.RESTARTED
        return Arrival.FUTURE if future else Arrival.ORDINARY

    def _start(self, stream: Stream, device_ns: int, host_ns: int) -> None:
        self._forget(self._low_latency)
        self.offset_ns, self._last_host_ns = host_ns - device_ns, host_ns
        self._newest_ns[stream.label] = device_ns

    def _forget(self, low_latency: bool) -> None:
        self.offset_ns, self._low_latency, self._agreed, self._odd_since_ns = None, low_latency, False, None
        self._newest_ns.clear()
