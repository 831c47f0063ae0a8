"""A Project Aria recording in order of device time. Runs in the reader child: the one module that opens the native
reader (``projectaria_tools``), which may die under any line of it.

Every record of every stream is accounted for: read, counted (``Kind.OTHER`` and frames outside the plan are never
touched), or reported as lost. A record's device time is the only time used; one that has none (-1), or a time more
than a minute away from the rest of the recording, can't be placed: such records of counted streams are counted at the
end, of others they are noted and left out. Times in nanoseconds, numbers in SI units as listed in ``wire.WIDTH``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from projectaria_tools.core import data_provider
from projectaria_tools.core.sensor_data import TimeDomain

from handrail.streams.cameras import Rig
from handrail.streams.errors import SourceError
from handrail.streams.reader import wire
from handrail.streams.reader.calibration import rig_from
from handrail.streams.reader.chatter import Chatter, one_line
from handrail.streams.reader.order import in_order, lap_shift_ns
from handrail.streams.reader.plan import planned_frames
from handrail.streams.reader.readings import audio_block, believable, reading_of
from handrail.streams.samples import I64, Kind
from handrail.streams.source import DecodePlan

WINDOW_NS = 10_000_000  # packed readings span at most this
ANSWER_NS = 200_000_000  # one answer covers about this: one RGB frame (150 ms) does not hold up the stereo pairs
WINDOW_RECORDS = 4096  # damaged times may pile up in one window

_CAMERAS = {214: Kind.RGB, 1201: Kind.SLAM, 211: Kind.EYE}  # by the number before the dash of a VRS stream id
_SENSORS = {
    "IMU": Kind.IMU, "MAGNETOMETER": Kind.MAG, "BAROMETER": Kind.BARO, "AUDIO": Kind.AUDIO, "EYE_GAZE": Kind.GAZE,
    "HAND_POSE": Kind.HANDS, "VIO": Kind.POSE, "VIO_HIGH_FREQ": Kind.POSE,
}  # fmt: skip

_ONE_BY_ONE = {Kind.GAZE, Kind.HANDS}  # never packed: each is a sample of its own


@dataclass(slots=True)
class _Stream:
    id: Any
    label: str
    kind: Kind
    times: I64  # device ns by index; -1 where there is none
    read: Callable[[int], list[float]] | None  # one packed reading; None for frames, audio and counted streams
    size: tuple[int, int] | None = None  # px, cameras only
    audio: tuple[float, int] = (0.0, 0)  # rate in Hz, channels


@dataclass(slots=True)
class _Window:
    """What one 10 ms window of the recording gathers, per stream."""

    items: list[wire.Item] = field(default_factory=list)
    rows: dict[int, tuple[list[int], list[list[float]]]] = field(default_factory=dict)
    counted: dict[int, tuple[int, int]] = field(default_factory=dict)  # count, last ns
    lost: dict[int, tuple[int, int, str]] = field(default_factory=dict)  # count, last ns, first cause

    def lose(self, stream: int, device_ns: int, cause: str, count: int = 1) -> None:
        before, _, first = self.lost.get(stream, (0, 0, cause))
        self.lost[stream] = (before + count, device_ns, first)


class Recording:
    def __init__(self, path: str, plan: DecodePlan, ring: wire.FrameRing, chatter: Chatter) -> None:
        """Raises SourceError where nothing of the file can be read."""
        self._ring, self._chatter = ring, chatter
        provider = data_provider.create_vrs_data_provider(path)
        if provider is None:
            raise SourceError("the native reader can't open it")
        self._provider = provider
        self._notes: list[str] = []
        self._streams = self._find_streams()
        self._order = in_order([s.times for s in self._streams])
        self._time, self._of, self._index = self._order.time, self._order.stream, self._order.index
        if not len(self._time):
            raise SourceError("no stream in it has a record with a device time")
        self._unplaced = self._place()
        self._open_calibration()
        pair = self._rig.stereo_pair or ()
        self._loop_ns = lap_shift_ns(self._order, [i for i, s in enumerate(self._streams) if s.label in pair])
        self._plan, self._lap, self._decoded_ns = plan, -1, dict[str, int]()
        self._plan_lap(0)
        self._damage = list(dict.fromkeys(chatter.complaints()))[:5]

    def opened(self) -> wire.Opened:
        first, last = int(self._time[0]), int(self._time[-1])
        return wire.Opened(
            streams=tuple(wire.StreamInfo(s.label, s.kind) for s in self._streams),
            rig=self._rig.to_json(), records=len(self._time), first_ns=first, last_ns=last,
            loop_ns=self._loop_ns, frames=tuple(len(s.times) for s in self._streams), notes=tuple(self._notes),
            damage=tuple(self._damage),
        )  # fmt: skip

    # ---- opening -----------------------------------------------------------------------------------------------

    def _find_streams(self) -> list[_Stream]:
        streams = []
        for stream_id in self._provider.get_all_streams():
            try:
                streams.append(self._stream(stream_id))
            except Exception as e:  # native errors come as several types; one bad stream leaves the others usable
                self._notes.append(f"stream {stream_id}: can't be read ({one_line(str(e) or repr(e))})")
        return sorted(streams, key=lambda s: s.label)

    def _stream(self, stream_id: Any) -> _Stream:
        p = self._provider
        label = p.get_label_from_stream_id(stream_id) or str(stream_id)
        sensor = p.get_sensor_data_type(stream_id).name
        number = int(str(stream_id).split("-")[0])
        kind = _CAMERAS.get(number, Kind.OTHER) if sensor == "IMAGE" else _SENSORS.get(sensor, Kind.OTHER)
        times = np.array(p.get_timestamps_ns(stream_id, TimeDomain.DEVICE_TIME), dtype=np.int64)
        stream = _Stream(stream_id, label, kind, times, reading_of(p, stream_id, sensor))
        if sensor == "IMAGE":
            c = p.get_image_configuration(stream_id)
            stream.size = (int(c.image_width), int(c.image_height))
        elif kind is Kind.AUDIO:
            a = p.get_audio_configuration(stream_id)
            stream.audio = (float(a.sample_rate), int(a.num_channels))
        return stream

    def _place(self) -> list[wire.Counted]:
        """Note what has no place in time; what of it is counted at the end."""
        counts: list[wire.Counted] = []
        for i, (stream, missing) in enumerate(zip(self._streams, self._order.unplaced, strict=True)):
            if missing:
                counted = stream.kind is Kind.OTHER
                what = "counted at the end" if counted else "left out"
                self._notes.append(f"{stream.label}: {missing} records have no usable device time: {what}")
                counts += [wire.Counted(i, int(self._order.time[-1]), missing)] if counted else []
        return counts

    def _open_calibration(self) -> None:
        version = self._provider.get_device_version().name
        sizes = {s.label: s.size for s in self._streams if s.size is not None}
        recorded = {s.label for s in self._streams if len(s.times)}
        try:
            calibration = self._provider.get_device_calibration()
        except Exception as e:  # native errors come as several types
            calibration = None
            self._notes.append(f"calibration can't be read ({one_line(str(e) or repr(e))})")
        self._rig, notes = rig_from(calibration, 2 if version == "Gen2" else 1, sizes, recorded)
        self._notes += [*notes, *_missing(self._streams, self._rig)]

    def _plan_lap(self, lap: int) -> None:
        """Choose the frames to decode in that lap: the rates of the plan hold across the seams too."""
        if lap == self._lap:
            return
        at = {s.label: np.flatnonzero(self._of == i) for i, s in enumerate(self._streams) if s.size is not None}
        kinds = {s.label: s.kind for s in self._streams}
        times = {label: self._time[positions] for label, positions in at.items()}
        if lap < self._lap:
            self._lap, self._decoded_ns = -1, {}
        while self._lap < lap:
            self._lap += 1
            self._decoded_ns = {label: t - self._loop_ns for label, t in self._decoded_ns.items()}
            start_ns = int(self._time[0]) - self._lap * self._loop_ns
            masks = planned_frames(self._plan, kinds, times, self._rig.stereo_pair, self._decoded_ns, start_ns)
            self._planned = np.zeros(len(self._time), dtype=bool)
            for label, mask in masks.items():
                self._planned[at[label][mask]] = True
                if mask.any():
                    self._decoded_ns[label] = int(times[label][mask][-1])

    # ---- reading -----------------------------------------------------------------------------------------------

    def read(self, request: wire.Read) -> wire.Batch:
        """The windows that make up one answer; the last one also carries what has no place in time."""
        start, skip = request.position, frozenset(request.skip)
        self._plan_lap(request.lap)
        self._ring.rewind()
        items: list[wire.Item] = []
        position, total = start, len(self._time)
        while position < total:
            end = self._window_end(position)
            if position > start and not self._ring.has_room(int(self._planned[position:end].sum())):
                break
            items += self._window(position, end, skip)
            position = end
            if int(self._time[position - 1] - self._time[start]) >= ANSWER_NS:
                break
        self._ring.progress = -1
        if position == total:
            items += self._unplaced
        return wire.Batch(tuple(items), position)

    def _window_end(self, start: int) -> int:
        end = int(np.searchsorted(self._time, self._time[start] + WINDOW_NS))
        return min(end, start + WINDOW_RECORDS)

    def _window(self, start: int, end: int, skip: frozenset[int]) -> list[wire.Item]:
        window = _Window()
        for position in range(start, end):
            of, index, t = int(self._of[position]), int(self._index[position]), int(self._time[position])
            if position in skip:
                window.lose(of, t, "the reader died on it")
                continue
            try:
                self._record(window, position, of, index, t)
            except Exception as e:  # native errors come as several types; each record stands alone
                self._chatter.complaints()  # these are its own, not the next record's
                window.lose(of, t, one_line(str(e) or repr(e)))
        self._pack(window)
        return sorted(window.items, key=lambda item: item.device_ns)

    def _record(self, window: _Window, position: int, of: int, index: int, t: int) -> None:
        stream = self._streams[of]
        if stream.read is not None:
            row = self._native(position, stream.read, index)
            if len(row) != wire.WIDTH[stream.kind]:
                raise SourceError(f"{len(row)} values where {wire.WIDTH[stream.kind]} belong")
            times, rows = window.rows.setdefault(of, ([], []))
            times.append(t)
            rows.append(row)
        elif stream.kind is Kind.AUDIO:
            data, record = self._native(position, self._provider.get_audio_data_by_index, stream.id, index)
            rate_hz, channels = stream.audio
            first, pcm = audio_block(data, record, channels)
            if not 0 <= t - first < 10**9:
                raise SourceError(f"an audio block that spans {(t - first) / 1e9:.3g} s")
            window.items.append(wire.Audio(of, t, first, rate_hz, channels, pcm))
        elif self._planned[position]:
            pixels, record = self._native(position, self._decoded, stream.id, index)
            window.items.append(self._frame(of, index, t, pixels, record))
        elif stream.size is not None:
            window.items.append(wire.Frame(of, t, *stream.size, index, math.nan, math.nan, None))
        else:
            count, _ = window.counted.get(of, (0, 0))
            window.counted[of] = (count + 1, t)

    def _native(self, position: int, read: Callable[..., Any], *args: Any) -> Any:
        """Read one record, leaving a trace of which. Raises what it raises, and SourceError for what it only prints."""
        self._ring.progress = position
        result = read(*args)
        if complaints := self._chatter.complaints():
            raise SourceError(complaints[-1])
        return result

    def _decoded(self, stream_id: Any, index: int) -> tuple[Any, Any]:
        image, record = self._provider.get_image_data_by_index(stream_id, index)
        if not image.is_valid():
            raise SourceError("its image can't be decoded")
        return np.ascontiguousarray(image.to_numpy_array()), record

    def _frame(self, of: int, index: int, t: int, pixels: Any, record: Any) -> wire.Frame:
        size = self._streams[of].size
        assert size is not None
        width, height = size
        if pixels.dtype != np.uint8 or pixels.shape[:2] != (height, width) or pixels.ndim not in (2, 3):
            raise SourceError(f"expected {width}x{height} pixels of 8 bit, got {pixels.shape} of {pixels.dtype}")
        slot = self._ring.put(pixels)
        if slot is None:
            raise SourceError("more decoded frames at one time than there is room for")
        exposure_s, gain = float(record.exposure_duration), float(record.gain)
        return wire.Frame(of, t, width, height, index, exposure_s, gain, slot)

    def _pack(self, window: _Window) -> None:
        for of, (times, values) in window.rows.items():
            kind = self._streams[of].kind
            t, v = np.array(times, dtype="<i8"), np.array(values, dtype="<f8").reshape(len(times), wire.WIDTH[kind])
            good = believable(kind, v)
            if not good.all():
                window.lose(of, int(t[~good][-1]), "values no sensor gives", int(np.count_nonzero(~good)))
            t, v = t[good], v[good]
            step = 1 if kind in _ONE_BY_ONE else max(len(t), 1)
            for i in range(0, len(t), step):
                part = slice(i, i + step)
                window.items.append(wire.Readings(of, int(t[part][-1]), t[part].tobytes(), v[part].tobytes()))
        window.items += [wire.Counted(of, t, n) for of, (n, t) in window.counted.items()]
        window.items += [wire.Lost(of, t, n, cause) for of, (n, t, cause) in window.lost.items()]


def _missing(streams: list[_Stream], rig: Rig) -> list[str]:
    """One line for each thing guidance would like to have and this recording lacks."""
    have = {s.kind for s in streams if len(s.times)}
    notes = []
    if rig.stereo_pair is None:
        notes.append("no forward SLAM pair with its calibration: distances can't be judged")
    if rig.main_imu is None:
        notes.append("no IMU with its calibration: the floor can't be told from the wall by gravity")
    if lacking := [kind.value for kind in (Kind.GAZE, Kind.HANDS, Kind.POSE) if kind not in have]:
        notes.append(f"no {', '.join(lacking)} in the recording (Gen 1 has none; MPS output beside it may)")
    return notes
