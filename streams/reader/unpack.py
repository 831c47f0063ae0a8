"""What the reader child sent, as payloads of samples. Runs in the main process; knows no process and no order."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from handrail.streams.errors import SourceError
from handrail.streams.reader import wire
from handrail.streams.samples import (
    F64,
    AudioBlock,
    BaroBatch,
    Gaze,
    Hand,
    Hands,
    ImageFrame,
    ImuBatch,
    Kind,
    MagBatch,
    Other,
    Payload,
    PoseBatch,
    Sample,
)


def payload_of(item: wire.Item, kind: Kind, pixels: NDArray[np.uint8] | None, first_number: int) -> Payload:
    """``pixels`` and ``first_number`` (of the lap) are for frames. Raises SourceError for an item that can't be."""
    match item:
        case wire.Frame():
            return ImageFrame(pixels, item.width, item.height, item.exposure_s, item.gain, first_number + item.number)
        case wire.Audio():
            pcm = np.frombuffer(item.pcm, dtype="<i4")
            if item.channels <= 0 or len(pcm) % item.channels:
                raise SourceError(f"the Aria reader sent {len(pcm)} audio values for {item.channels} channels")
            return AudioBlock(pcm.reshape(-1, item.channels), item.rate_hz, item.first_ns)
        case wire.Readings() if kind in wire.WIDTH:
            return _numbers(item, kind)
        case wire.Counted():
            return Other(item.count)
    raise SourceError(f"the Aria reader sent {type(item).__name__} for a stream of kind {kind}")


def _numbers(item: wire.Readings, kind: Kind) -> Payload:
    t, v = wire.unpack_readings(item, wire.WIDTH[kind])
    match kind:
        case Kind.IMU:
            return ImuBatch(t, v[:, :3], v[:, 3:])
        case Kind.MAG:
            return MagBatch(t, v)
        case Kind.BARO:
            return BaroBatch(t, v[:, 0], v[:, 1])
        case Kind.POSE:
            return PoseBatch(t, v[:, :3], v[:, 3:7], v[:, 7:10], v[:, 10:13], v[-1, 13:16], v[:, 16], causal=True)
        case Kind.GAZE:
            yaw, pitch, depth = v[-1].tolist()
            return Gaze(yaw, pitch, depth if depth > 0 else None, yaw, yaw, pitch, pitch)
        case _:
            return Hands(_hand(v[-1, :73]), _hand(v[-1, 73:]))


def _hand(v: F64) -> Hand | None:
    if np.isnan(v[0]):
        return None
    normal = None if np.isnan(v[7]) else v[7:10]
    return Hand(float(v[0]), v[10:73].reshape(21, 3), v[1:4], v[4:7], normal)


def shifted(sample: Sample, shift_ns: int) -> Sample:
    """The same sample that much later in device time."""
    payload = sample.payload
    if shift_ns:
        match payload:
            case ImuBatch() | MagBatch() | BaroBatch() | PoseBatch():
                payload = replace(payload, device_ns=payload.device_ns + shift_ns)
            case AudioBlock():
                payload = replace(payload, first_device_ns=payload.first_device_ns + shift_ns)
    return replace(sample, device_ns=sample.device_ns + shift_ns, payload=payload)
