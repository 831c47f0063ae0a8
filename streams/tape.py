"""Tapes: the samples of any source, kept as they were captured, to be played again bit for bit (``tape:PATH``).

A simulated walk takes seconds to draw; its tape plays in real time. Pixels are kept without loss (PNG), everything
else as numbers. A tape is read whole and checked (a CRC for each record, and a last record that counts them) before the
first sample is given out, so damage is told at once. Knows no kind of source. Nothing in it can run code.

File: ``MAGIC``, then records of a length and a CRC-32 (both 4 bytes, little-endian) and a MessagePack value: first the
source's information and plan, then one record a sample, at the end the number of samples.
"""

from __future__ import annotations

import asyncio
import dataclasses
import struct
import zlib
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, BinaryIO

import cv2
import msgspec
import numpy as np
from numpy.typing import NDArray

from handrail.streams import samples as kinds
from handrail.streams.cameras import Rig
from handrail.streams.errors import OutputError, SourceError
from handrail.streams.pacing import paced
from handrail.streams.samples import ImageFrame, Kind, Sample, Stream
from handrail.streams.source import DecodePlan, SourceInfo

MAGIC = b"HANDRAIL TAPE 1\n"
MAX_RECORD = 64 << 20  # bytes; a longer one is damage
_HEAD = struct.Struct("<II")
_PIXELS, _ARRAY = 1, 2  # MessagePack extension codes
_PNG = [cv2.IMWRITE_PNG_COMPRESSION, 1, cv2.IMWRITE_PNG_STRATEGY, cv2.IMWRITE_PNG_STRATEGY_RLE]
_DTYPES = ("<f8", "<i8", "<i4", "<f4", "|u1", "|b1")
_CLASSES = {
    c.__name__: c
    for c in (
        kinds.ImageFrame, kinds.ImuBatch, kinds.MagBatch, kinds.BaroBatch, kinds.AudioBlock, kinds.Gaze, kinds.Hand,
        kinds.Hands, kinds.PoseBatch, kinds.Other, kinds.Notice,
    )
}  # fmt: skip


async def write_tape(path: Path, info: SourceInfo, plan: DecodePlan, captured: AsyncIterator[Sample]) -> int:
    """Keep samples, which must come in order of capture; returns how many. The file is whole or is not there.

    Raises OutputError when it can't be written, the samples are out of order, or the source is live: frames of people
    who never asked to be filmed must not be kept before they are blurred, and there is no blurrer yet.
    """
    if not info.recorded:
        raise OutputError(f"{path.name}: {info.uri} is live; its frames can't be kept until they are blurred")
    partial = path.with_name(path.name + ".partial")
    try:
        with partial.open("wb") as file:
            file.write(MAGIC)
            _put(file, {"info": _pack_info(info), "plan": dataclasses.asdict(plan)})
            count, last_ns = 0, -(1 << 63)
            async for sample in captured:
                if sample.device_ns < last_ns:
                    raise OutputError(
                        f"{path.name}: a sample of {sample.stream.label} is older than the one before it; "
                        "a tape takes samples in order of capture"
                    )
                last_ns = sample.device_ns
                _put(file, [sample.stream.label, sample.stream.kind.value, last_ns, _pack(sample.payload)])
                count += 1
            _put(file, {"samples": count})
        partial.replace(path)
    except OSError as e:
        raise OutputError(f"{path.name}: the tape can't be written ({e.strerror})") from e
    finally:
        partial.unlink(missing_ok=True)
    return count


class Tape:
    """A ``Source``; its information is that of the source it was taken from. Samples come at the same times."""

    def __init__(self, name: str, info: SourceInfo, records: list[memoryview]) -> None:
        self._name = name
        self._records = records
        self.info = info

    def samples(self) -> AsyncIterator[Sample]:
        return paced(self.captured(), self.info.first_device_ns)

    async def captured(self) -> AsyncIterator[Sample]:
        """In order of capture, unpaced. Pictures are decoded in a thread, so that the loop isn't held up."""
        loop = asyncio.get_running_loop()
        for record in self._records:
            sample = _sample(record, self._name)
            if isinstance(sample.payload, ImageFrame) and isinstance(sample.payload.pixels, _Png):
                pixels = await loop.run_in_executor(None, sample.payload.pixels.decode, self._name)
                sample = dataclasses.replace(sample, payload=dataclasses.replace(sample.payload, pixels=pixels))
            yield sample


@asynccontextmanager
async def open_tape(path: str, plan: DecodePlan, options: Mapping[str, str]) -> AsyncIterator[Tape]:
    """Raises SourceError: no such file, damaged, made with another decode plan, or an option (there are none)."""
    if options:
        raise SourceError(f"tape option {min(options)!r} is unknown: a tape takes none")
    name = Path(path).name
    try:
        content = await asyncio.to_thread(_content, Path(path))
    except OSError as e:
        raise SourceError(f"{name}: the tape can't be read ({e.strerror})") from e
    records = await asyncio.to_thread(_records, name, content)
    info, made_for = _header(name, records[0])
    if made_for != plan:
        raise SourceError(f"{name}: this tape was made for {made_for}, not {plan}; open it so, or make another")
    yield Tape(name, info, records[1:-1])


# Reading


def _content(path: Path) -> bytes:
    if path.is_fifo():
        raise SourceError(f"{path.name}: expected a tape in a file, got a pipe, which may never end")
    return path.read_bytes()


def _records(name: str, content: bytes) -> list[memoryview]:
    """Split and check the whole file."""
    if not content.startswith(MAGIC):
        raise SourceError(f"{name}: expected a tape, but the file does not begin like one")
    view, at = memoryview(content), len(MAGIC)
    records: list[memoryview] = []
    while at < len(view):
        if at + _HEAD.size > len(view):
            raise SourceError(f"{name}: damaged tape, cut off at byte {at}")
        length, crc = _HEAD.unpack_from(view, at)
        body = view[at + _HEAD.size : at + _HEAD.size + length]
        if len(body) < length or length > MAX_RECORD or zlib.crc32(body) != crc:
            raise SourceError(f"{name}: damaged tape at byte {at} (record {len(records)})")
        records.append(body)
        at += _HEAD.size + length
    last = _decode(records[-1], name) if len(records) > 1 else None
    if not (isinstance(last, dict) and last.get("samples") == len(records) - 2):
        raise SourceError(f"{name}: damaged tape, its end is missing")
    return records


def _header(name: str, record: memoryview) -> tuple[SourceInfo, DecodePlan]:
    try:
        head = _decode(record, name)
        info = head["info"]
        rig = Rig.from_json(info.pop("rig"))
        streams = tuple(Stream(label, Kind(kind)) for label, kind in info.pop("streams"))
        notes = tuple(info.pop("notes"))
        return SourceInfo(rig=rig, streams=streams, notes=notes, **info), msgspec.convert(head["plan"], DecodePlan)
    except (KeyError, TypeError, ValueError, AttributeError, msgspec.MsgspecError) as e:
        raise SourceError(f"{name}: damaged tape, its first record makes no sense ({e})") from e


def _sample(record: memoryview, name: str) -> Sample:
    try:
        label, kind, device_ns, payload = _decode(record, name)
        return Sample(Stream(label, Kind(kind)), device_ns, 0, _unpack(payload))
    except (KeyError, TypeError, ValueError) as e:
        raise SourceError(f"{name}: damaged tape, a sample makes no sense ({e})") from e


def _decode(record: memoryview, name: str) -> Any:
    try:
        return msgspec.msgpack.decode(record, ext_hook=_extension)
    except (msgspec.DecodeError, ValueError, TypeError) as e:
        raise SourceError(f"{name}: damaged tape ({e})") from e


@dataclasses.dataclass(frozen=True, slots=True)
class _Png:
    """A picture not decoded yet."""

    data: bytes

    def decode(self, name: str) -> NDArray[np.uint8]:
        pixels = cv2.imdecode(np.frombuffer(self.data, dtype=np.uint8), cv2.IMREAD_UNCHANGED)
        if pixels is None or pixels.dtype != np.uint8:
            raise SourceError(f"{name}: damaged tape, a picture can't be decoded")
        return np.asarray(pixels)


def _extension(code: int, data: memoryview) -> Any:
    if code == _PIXELS:
        return _Png(bytes(data))
    dtype, shape, values = msgspec.msgpack.decode(data)
    if code != _ARRAY or dtype not in _DTYPES:
        raise ValueError(f"unknown kind of array {code} {dtype!r}")
    return np.frombuffer(values, dtype=dtype).reshape(shape)


def _unpack(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return _CLASSES[value.pop("is")](**{name: _unpack(field) for name, field in value.items()})


# Writing


def _put(file: BinaryIO, value: Any) -> None:
    body = msgspec.msgpack.encode(value)
    file.write(_HEAD.pack(len(body), zlib.crc32(body)))
    file.write(body)


def _pack_info(info: SourceInfo) -> dict[str, Any]:
    return {
        "uri": info.uri,
        "rig": info.rig.to_json(),
        "streams": [(s.label, s.kind.value) for s in info.streams],
        "first_device_ns": info.first_device_ns,
        "duration_s": info.duration_s,
        "recorded": info.recorded,
        "notes": info.notes,
    }


def _pack(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return _pack_array(value)
    if dataclasses.is_dataclass(value):
        fields = {f.name: _pack(getattr(value, f.name)) for f in dataclasses.fields(value)}
        return {"is": type(value).__name__, **fields}
    return value


def _pack_array(array: NDArray[Any]) -> msgspec.msgpack.Ext:
    if array.dtype == np.uint8 and (array.ndim == 2 or array.shape[2:] == (3,)):
        done, png = cv2.imencode(".png", array, _PNG)
        assert done
        return msgspec.msgpack.Ext(_PIXELS, png.tobytes())
    array = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
    if array.dtype.str not in _DTYPES:
        raise TypeError(f"a tape holds arrays of {', '.join(_DTYPES)}, not {array.dtype.str}")
    return msgspec.msgpack.Ext(_ARRAY, msgspec.msgpack.encode((array.dtype.str, array.shape, array.tobytes())))
