"""Whether a payload is fit for use: the kind it should be, the shape it claims, numbers that are numbers.

Refuses what native decoders and damaged recordings have been seen to hand over: NaN, missing timestamps (-1), truncated
or transposed arrays, rotations that are none. Doesn't judge what an image shows or whether a value is plausible.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from handrail.streams.samples import (
    AudioBlock,
    BaroBatch,
    Gaze,
    Hand,
    Hands,
    ImageFrame,
    ImuBatch,
    Kind,
    MagBatch,
    PoseBatch,
    Sample,
)

LEAST_GRAVITY_MSEC2 = 1.0  # less has no direction: VIO hasn't found it
QUATERNION_TOLERANCE = 0.1  # zeros and garbage are no rotation

Packed = ImuBatch | MagBatch | BaroBatch | PoseBatch

# Columns of the packed payloads: name -> shape of one reading.
COLUMNS: dict[Kind, dict[str, tuple[int, ...]]] = {
    Kind.IMU: {"accel_msec2": (3,), "gyro_radsec": (3,)},
    Kind.MAG: {"field_tesla": (3,)},
    Kind.BARO: {"pressure_pa": (), "temperature_c": ()},
    Kind.POSE: {
        "position_m": (3,), "quaternion_xyzw": (4,), "velocity_msec": (3,), "angular_velocity_radsec": (3,),
        "quality": (),
    },
}
_PAYLOAD: dict[Kind, type] = {
    Kind.RGB: ImageFrame, Kind.SLAM: ImageFrame, Kind.EYE: ImageFrame, Kind.AUDIO: AudioBlock, Kind.GAZE: Gaze,
    Kind.HANDS: Hands, Kind.IMU: ImuBatch, Kind.MAG: MagBatch, Kind.BARO: BaroBatch, Kind.POSE: PoseBatch,
}


def readings(sample: Sample) -> int:
    """As ``Sample.count``, but 1 where the payload is too broken to be counted."""
    try:
        return sample.count
    except (TypeError, AttributeError):
        return 1


def fit(sample: Sample) -> bool:
    """Of a sample that is one reading (frame, audio block, gaze, hands): can it be used?"""
    payload = sample.payload
    if sample.device_ns < 0 or not isinstance(payload, _PAYLOAD.get(sample.stream.kind, ())):
        return False
    match payload:
        case ImageFrame():
            return _fit_image(payload)
        case AudioBlock():
            return payload.pcm.ndim == 2 and payload.pcm.dtype == np.int32 and _positive(payload.rate_hz)
        case Gaze():
            angles = (
                payload.yaw_rad, payload.pitch_rad, payload.yaw_low_rad, payload.yaw_high_rad, payload.pitch_low_rad,
                payload.pitch_high_rad,
            )
            return all(map(math.isfinite, angles)) and (payload.depth_m is None or math.isfinite(payload.depth_m))
        case Hands(left, right):
            return all(_fit_hand(hand) for hand in (left, right) if hand is not None)
        case _:
            return False


def fit_rows(sample: Sample) -> NDArray[np.bool_] | None:
    """Of a packed sample: which of its N readings can be used [N]; None when the whole has a wrong kind or shape."""
    payload, kind = sample.payload, sample.stream.kind
    if not isinstance(payload, Packed) or not isinstance(payload, _PAYLOAD.get(kind, ())):
        return None
    times = payload.device_ns
    if times.ndim != 1 or times.dtype != np.int64:
        return None
    rows = times >= 0
    for name, shape in COLUMNS[kind].items():
        column: NDArray[np.float64] = getattr(payload, name)
        if column.shape != (len(times), *shape) or column.dtype != np.float64:
            return None
        rows &= np.isfinite(column).reshape(len(times), math.prod(shape)).all(axis=1)
    if isinstance(payload, PoseBatch):
        if not (_finite(payload.gravity_msec2, (3,)) and np.linalg.norm(payload.gravity_msec2) > LEAST_GRAVITY_MSEC2):
            return None
        with np.errstate(over="ignore", invalid="ignore"):  # rows that aren't finite are out already
            rows &= np.abs(np.linalg.norm(payload.quaternion_xyzw, axis=1) - 1.0) < QUATERNION_TOLERANCE
    return rows


def _fit_image(frame: ImageFrame) -> bool:
    if frame.width <= 0 or frame.height <= 0 or not math.isfinite(frame.exposure_s) or not math.isfinite(frame.gain):
        return False
    if frame.pixels is None:
        return True
    size = (frame.height, frame.width)
    return frame.pixels.dtype == np.uint8 and frame.pixels.shape in (size, (*size, 3))


def _fit_hand(hand: Hand) -> bool:
    return (
        math.isfinite(hand.confidence)
        and _finite(hand.landmarks_m, (21, 3)) and _finite(hand.wrist_m, (3,)) and _finite(hand.palm_m, (3,))
        and (hand.palm_normal is None or _finite(hand.palm_normal, (3,)))
    )


def _finite(values: NDArray[np.float64], shape: tuple[int, ...]) -> bool:
    return values.shape == shape and bool(np.isfinite(values).all())


def _positive(value: float) -> bool:
    return math.isfinite(value) and value > 0
