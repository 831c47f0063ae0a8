"""What of a recording one example is about: eight frames, and every reading that a model may know in its time.

In memory as the rest of the project has samples (units in ``streams.samples``), in a file as plain arrays. Knows
neither sources nor models.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import cv2
import msgspec
import numpy as np
from numpy.typing import NDArray

from handrail.streams.cameras import Rig
from handrail.streams.checks import COLUMNS
from handrail.streams.samples import (
    F64,
    I64,
    BaroBatch,
    Gaze,
    Hand,
    Hands,
    ImuBatch,
    Kind,
    MagBatch,
    Payload,
    PoseBatch,
    Sample,
    Stream,
)

U8 = NDArray[np.uint8]
Arrays = dict[str, NDArray[Any]]

FRAMES = 8
READINGS = (*COLUMNS, Kind.GAZE, Kind.HANDS)  # kinds that are kept
_PACKED: dict[Kind, Any] = {Kind.IMU: ImuBatch, Kind.MAG: MagBatch, Kind.BARO: BaroBatch, Kind.POSE: PoseBatch}
_PNG = [cv2.IMWRITE_PNG_COMPRESSION, 1]
_UNSEEN = np.full(73, np.nan)  # a hand: confidence, wrist 3, palm 3, normal 3, landmarks 63


@dataclass(frozen=True, slots=True)
class Clip:
    frames: U8  # [8, H, W, 3] RGB, upright
    frame_ns: I64  # [8] captures; a frame stands twice where the clip has fewer
    start_ns: int  # device time
    end_ns: int
    rig: Rig
    samples: tuple[Sample, ...]  # per packed stream one; none captured after the end, some from before the start

    def to_arrays(self) -> Arrays:
        """Plain arrays, nothing that could run; frames without loss as PNG."""
        arrays: Arrays = {f"frame:{i}": _png(frame) for i, frame in enumerate(self.frames)}
        arrays["frame_ns"], arrays["span_ns"] = self.frame_ns, np.array([self.start_ns, self.end_ns], dtype=np.int64)
        arrays["rig"] = np.frombuffer(msgspec.json.encode(self.rig.to_json()), dtype=np.uint8)
        singles: dict[Stream, list[Sample]] = {}
        for sample in self.samples:
            if sample.stream.kind in COLUMNS:
                arrays |= _columns(sample)
            else:
                singles.setdefault(sample.stream, []).append(sample)
        for stream, of_it in singles.items():
            arrays[f"{stream.kind}:{stream.label}:device_ns"] = np.array([s.device_ns for s in of_it], dtype=np.int64)
            arrays[f"{stream.kind}:{stream.label}:rows"] = np.array([_row(s.payload) for s in of_it])
        return arrays

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> Clip:
        """Inverse of ``to_arrays``. Raises KeyError, ValueError, TypeError or SourceError for what is no clip."""
        start_ns, end_ns = arrays["span_ns"].tolist()
        by_stream: dict[Stream, Arrays] = {}
        for name, values in arrays.items():
            if name.count(":") >= 2:
                kind, rest = name.split(":", 1)
                label, column = rest.rsplit(":", 1)
                by_stream.setdefault(Stream(label, Kind(kind)), {})[column] = values
        return cls(
            frames=np.stack([_unpacked(arrays[f"frame:{i}"]) for i in range(FRAMES)]), frame_ns=arrays["frame_ns"],
            start_ns=start_ns, end_ns=end_ns, rig=Rig.from_json(msgspec.json.decode(arrays["rig"].tobytes())),
            samples=tuple(s for stream, columns in by_stream.items() for s in _samples(stream, columns)),
        )  # fmt: skip


def packed(stream: Stream, columns: Arrays) -> Sample:
    """A stream of a packed kind as one sample. ``columns``: ``device_ns`` and all that the payload holds, by name."""
    values: dict[str, Any] = {name: v.item() if v.ndim == 0 else v for name, v in columns.items()}
    return Sample(stream, int(columns["device_ns"][-1]), 0, _PACKED[stream.kind](**values))


def _columns(sample: Sample) -> Arrays:
    payload: Any = sample.payload
    names = payload.__dataclass_fields__
    return {f"{sample.stream.kind}:{sample.stream.label}:{n}": np.asarray(getattr(payload, n)) for n in names}


def _samples(stream: Stream, columns: Arrays) -> Iterator[Sample]:
    if stream.kind in COLUMNS:
        yield packed(stream, columns)
        return
    for t, row in zip(columns["device_ns"].tolist(), columns["rows"], strict=True):
        yield Sample(stream, t, 0, _gaze(row) if stream.kind is Kind.GAZE else _hands(row))


def _png(frame: U8) -> U8:
    done, png = cv2.imencode(".png", frame, _PNG)
    assert done
    return np.asarray(png, dtype=np.uint8).reshape(-1)


def _unpacked(png: U8) -> U8:
    frame = cv2.imdecode(png, cv2.IMREAD_COLOR)  # written and read without a swap, so RGB stays RGB
    if frame is None:
        raise ValueError("a frame can't be decoded")
    return np.asarray(frame, dtype=np.uint8)


def _row(payload: Payload) -> F64:
    match payload:
        case Gaze() as g:
            depth = np.nan if g.depth_m is None else g.depth_m
            return np.array([
                g.yaw_rad, g.pitch_rad, depth, g.yaw_low_rad, g.yaw_high_rad, g.pitch_low_rad, g.pitch_high_rad,
            ])  # fmt: skip
        case Hands(left, right):
            return np.stack([_hand_row(left), _hand_row(right)])
    raise ValueError(f"expected gaze or hands, got {type(payload).__name__}")


def _gaze(row: F64) -> Gaze:
    yaw, pitch, depth, *bounds = row.tolist()
    return Gaze(yaw, pitch, None if np.isnan(depth) else depth, *bounds)


def _hand_row(hand: Hand | None) -> F64:
    if hand is None:
        return _UNSEEN
    normal = np.full(3, np.nan) if hand.palm_normal is None else hand.palm_normal
    return np.concatenate([[hand.confidence], hand.wrist_m, hand.palm_m, normal, hand.landmarks_m.reshape(-1)])


def _hands(rows: F64) -> Hands:
    left, right = (None if np.isnan(v[0]) else _hand(v) for v in rows)
    return Hands(left, right)


def _hand(v: F64) -> Hand:
    return Hand(float(v[0]), v[10:].reshape(21, 3), v[1:4], v[4:7], None if np.isnan(v[7]) else v[7:10])
