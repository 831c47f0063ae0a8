"""What crosses between the runtime and the reader child: msgpack messages, and decoded frames in a shared ``memfd``.

Knows no recording and no process. Nothing from the wire is believed: types are checked by msgspec, sizes against what
they claim, frames against the bounds of the ring. Times are device nanoseconds; numbers are packed little-endian.
"""

from __future__ import annotations

import fcntl
import mmap
import os
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from handrail.streams.errors import SourceError
from handrail.streams.samples import F64, I64, Kind
from handrail.streams.source import DecodePlan

# Values per reading of each packed kind, as ``readings`` writes and ``unpack`` reads them.
WIDTH: dict[Kind, int] = {
    Kind.IMU: 6,  # accel xyz (m/s^2), gyro xyz (rad/s)
    Kind.MAG: 3,  # tesla
    Kind.BARO: 2,  # pascal, degrees Celsius
    Kind.POSE: 17,  # position 3 (m), quaternion xyzw 4, velocity 3, angular velocity 3, gravity 3, quality 1
    Kind.GAZE: 3,  # yaw, pitch (rad), depth (m); NaN: not known
    Kind.HANDS: 146,  # per side: confidence, wrist 3, palm 3, palm normal 3, landmarks 63 (m); NaN: not seen
}


class Open(msgspec.Struct, frozen=True, tag="open"):
    path: str
    plan: DecodePlan


class Read(msgspec.Struct, frozen=True, tag="read"):
    """The records from ``position`` of the recording's order of time, about 200 ms of them, without ``skip``."""

    position: int
    lap: int  # of a looped recording: the decoding plan goes on across seams
    skip: tuple[int, ...]


Request = Open | Read


class StreamInfo(msgspec.Struct, frozen=True):
    label: str
    kind: Kind


class Opened(msgspec.Struct, frozen=True, tag="opened"):
    streams: tuple[StreamInfo, ...]
    rig: dict[str, Any]  # Rig.to_json()
    records: int  # positions run from 0 to here
    first_ns: int
    last_ns: int
    loop_ns: int  # shift of device time from one lap of a looped recording to the next
    frames: tuple[int, ...]  # per stream: records, so that frame numbers go on counting from lap to lap
    notes: tuple[str, ...]
    damage: tuple[str, ...]  # what native code complained of; records may be missing without any other sign


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    detail: str
    missing: bool = False  # projectaria_tools can't be imported


class Readings(msgspec.Struct, frozen=True, tag="readings"):
    """Packed numbers of one stream; ``device_ns`` is the last reading's."""

    stream: int
    device_ns: int
    times: bytes  # int64 [N]
    values: bytes  # float64 [N, WIDTH[kind]]


class Slot(msgspec.Struct, frozen=True):
    """A decoded frame's place in the ring."""

    index: int
    generation: int
    offset: int  # bytes
    shape: tuple[int, ...]


class Frame(msgspec.Struct, frozen=True, tag="frame"):
    stream: int
    device_ns: int
    width: int
    height: int
    number: int  # position in its stream
    exposure_s: float  # NaN where the frame was not decoded
    gain: float
    slot: Slot | None


class Audio(msgspec.Struct, frozen=True, tag="audio"):
    stream: int
    device_ns: int
    first_ns: int
    rate_hz: float
    channels: int
    pcm: bytes  # int32 [N, channels], full scale


class Counted(msgspec.Struct, frozen=True, tag="counted"):
    stream: int
    device_ns: int
    count: int


class Lost(msgspec.Struct, frozen=True, tag="lost"):
    """Records that could not be read."""

    stream: int
    device_ns: int
    count: int
    detail: str


Item = Readings | Frame | Audio | Counted | Lost


class Batch(msgspec.Struct, frozen=True, tag="batch"):
    items: tuple[Item, ...]  # by device_ns
    position: int  # where to go on


class Fresh(msgspec.Struct, frozen=True, tag="fresh"):
    """A ``Read`` came before any ``Open``: this child took the place of one that died while nobody asked."""


Answer = Opened | Failed | Batch | Fresh

encode = msgspec.msgpack.Encoder().encode
_requests = msgspec.msgpack.Decoder(Request)
_answers: msgspec.msgpack.Decoder[Answer] = msgspec.msgpack.Decoder(Answer)


def decode_request(message: bytes) -> Request:
    return _requests.decode(message)


def decode_answer(message: bytes) -> Answer:
    """Raises SourceError for anything that isn't an answer."""
    try:
        return _answers.decode(message)
    except (msgspec.DecodeError, UnicodeDecodeError) as e:
        raise SourceError(f"the Aria reader broke its protocol: {e}") from e


def unpack_readings(item: Readings, width: int) -> tuple[I64, F64]:
    """Times [N] and values [N, width]. Raises SourceError where the lengths don't fit each other."""
    count = len(item.times) // 8
    if not count or len(item.times) != 8 * count or len(item.values) != 8 * count * width:
        raise SourceError(f"the Aria reader sent {len(item.times)} + {len(item.values)} bytes, not rows of {width}")
    times = np.frombuffer(item.times, dtype="<i8").copy()
    return times, np.frombuffer(item.values, dtype="<f8").reshape(count, width).copy()


class FrameRing:
    """Decoded frames and the child's progress, in memory that both processes map.

    The child fills slots from the start for each answer; the main process copies them out before it asks again. Each
    slot's generation is odd while it is written and checked before and after copying, so a frame that was overwritten
    comes out as an error, never as pixels. The memory is sparse: only what frames touch exists.
    """

    SLOTS = 64
    DATA_AT = 4096
    BYTES = 96 << 20  # of frames; the largest Aria frame (2880x2880 RGB) takes 25 MB

    def __init__(self, fd: int) -> None:
        self._memory = mmap.mmap(fd, self.DATA_AT + self.BYTES)
        self._progress = np.frombuffer(self._memory, dtype=np.int64, count=1)
        self._generations = np.frombuffer(self._memory, dtype=np.int64, count=self.SLOTS, offset=64)
        self._data = np.frombuffer(self._memory, dtype=np.uint8, offset=self.DATA_AT)
        self._slots_used = 0
        self._bytes_used = 0

    @classmethod
    def create_fd(cls) -> int:
        """A descriptor to pass to the child. Sealed: a broken child can't shrink what the main process has mapped."""
        fd = os.memfd_create("handrail-frames", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(fd, cls.DATA_AT + cls.BYTES)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
        return fd

    @property
    def progress(self) -> int:
        """The position that the child is reading, -1 when none: where it died, if it did."""
        return int(self._progress[0])

    @progress.setter
    def progress(self, position: int) -> None:
        self._progress[0] = position

    def rewind(self) -> None:
        self._slots_used = self._bytes_used = 0

    def has_room(self, frames: int) -> bool:
        """For that many more frames, going by the largest that an Aria camera makes in practice (10 MB)."""
        return self._slots_used + frames <= self.SLOTS and self._bytes_used + frames * (10 << 20) <= self.BYTES

    def put(self, pixels: NDArray[np.uint8]) -> Slot | None:
        """Copy a frame in; None when it does not fit."""
        index, offset, end = self._slots_used, self._bytes_used, self._bytes_used + pixels.nbytes
        if index == self.SLOTS or end > self.BYTES:
            return None
        generation = (int(self._generations[index]) | 1) + 1
        self._generations[index] = generation - 1  # odd: being written
        self._data[offset:end] = pixels.reshape(-1)
        self._generations[index] = generation
        self._slots_used, self._bytes_used = index + 1, -(-end // 64) * 64
        return Slot(index, generation, offset, pixels.shape)

    def take(self, slot: Slot) -> NDArray[np.uint8]:
        """Copy a frame out, [H, W] or [H, W, 3]. Raises SourceError for a slot that is out of bounds or rewritten."""
        size = int(np.prod(slot.shape, dtype=np.int64)) if all(0 < n <= 8192 for n in slot.shape) else 0
        colours_fit = len(slot.shape) == 2 or (len(slot.shape) == 3 and slot.shape[2] == 3)
        inside = 0 <= slot.index < self.SLOTS and 0 <= slot.offset and slot.offset + size <= self.BYTES
        if not (size and colours_fit and inside):
            raise SourceError(f"the Aria reader sent an impossible frame: {slot.shape} at {slot.offset}")
        before = int(self._generations[slot.index])
        pixels = self._data[slot.offset : slot.offset + size].reshape(slot.shape).copy()
        if before != slot.generation or int(self._generations[slot.index]) != slot.generation:
            raise SourceError(f"a decoded frame was overwritten before it was used (slot {slot.index})")
        return pixels

    def close(self) -> None:
        del self._progress, self._generations, self._data
        self._memory.close()
