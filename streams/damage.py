"""What a fault does to one sample: frozen, shifted in time, black, saturated, not a number, misshapen, cut short.

Pure functions from a payload to a damaged copy; arrays of the original are never written to. Knows no time spans and no
order of arrival (``faults``). Undecoded frames stay as they are.
"""

from __future__ import annotations

import math
from dataclasses import replace
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from handrail.streams.checks import Packed
from handrail.streams.samples import F64, I64, AudioBlock, Gaze, ImageFrame, ImuBatch, Payload, PoseBatch, Sample

IMU_FULL_SCALE_MSEC2 = 156.9  # 16 g
IMU_FULL_SCALE_RADSEC = 34.9  # 2000 degrees a second


class What(StrEnum):
    GAP = "gap"  # nothing arrives
    FREEZE = "freeze"  # new timestamps, the old content
    DUPLICATE = "duplicate"  # everything arrives twice
    REORDER = "reorder"  # neighbours arrive in the wrong order
    CLOCK_FORWARD = "clock_forward"  # capture times jump ahead by ``amount_s``
    CLOCK_BACK = "clock_back"
    NAN = "nan"
    BLACK = "black"
    SATURATED = "saturated"
    WRONG_SHAPE = "wrong_shape"
    TRUNCATED = "truncated"  # arrays shorter than they say
    DELAYED = "delayed"  # arrives ``amount_s`` later, with its true capture time


def frozen(payload: Payload, first: Payload) -> Payload:
    """``payload`` with its own times, sizes and numbers, and the content of ``first``."""
    match payload, first:
        case ImageFrame(), ImageFrame() if payload.pixels is not None:
            return replace(payload, pixels=first.pixels)
        case AudioBlock(), AudioBlock():
            return replace(payload, pcm=first.pcm)
        case ImuBatch(times), ImuBatch():
            return ImuBatch(times, _held(first.accel_msec2, times), _held(first.gyro_radsec, times))
        case PoseBatch(times), PoseBatch():
            return replace(
                payload, position_m=_held(first.position_m, times), quaternion_xyzw=_held(first.quaternion_xyzw, times),
                velocity_msec=_held(first.velocity_msec, times),
                angular_velocity_radsec=_held(first.angular_velocity_radsec, times),
            )
        case Gaze(), Gaze():
            return first
        case _:
            return payload


def _held(column: F64, times: I64) -> F64:
    """The first reading again and again."""
    return np.repeat(column[:1], len(times), axis=0)


def shifted(sample: Sample, by_ns: int) -> Sample:
    payload = sample.payload
    if isinstance(payload, Packed):
        payload = replace(payload, device_ns=payload.device_ns + by_ns)
    elif isinstance(payload, AudioBlock):
        payload = replace(payload, first_device_ns=payload.first_device_ns + by_ns)
    return replace(sample, device_ns=sample.device_ns + by_ns, payload=payload)


def damaged(payload: Payload, what: What, random: np.random.Generator) -> Payload:
    match payload:
        case ImageFrame(pixels=None):
            return payload
        case ImageFrame(pixels=pixels):
            assert pixels is not None
            return replace(payload, pixels=_damaged_pixels(pixels, what))
        case ImuBatch():
            return _damaged_imu(payload, what, random)
        case AudioBlock(pcm):
            return replace(payload, pcm={
                What.SATURATED: np.where(pcm < 0, np.iinfo(np.int32).min, np.iinfo(np.int32).max).astype(np.int32),
                What.WRONG_SHAPE: pcm.reshape(-1),
                What.TRUNCATED: pcm[: len(pcm) // 2],
            }[what])
        case Gaze():
            return replace(payload, yaw_rad=math.nan, pitch_rad=math.nan)
        case PoseBatch(position_m=position, quaternion_xyzw=quaternion):
            match what:
                case What.NAN:
                    return replace(payload, position_m=_with_nan(position, random))
                case What.TRUNCATED:
                    return replace(payload, position_m=position[: len(position) // 2])
                case _:
                    return replace(payload, quaternion_xyzw=quaternion[:, :3])
        case _:
            raise AssertionError(f"{type(payload).__name__} x {what} passed the table of what is supported")


def _damaged_pixels(pixels: NDArray[np.uint8], what: What) -> NDArray[np.uint8]:
    match what:
        case What.BLACK:
            return np.zeros_like(pixels)
        case What.SATURATED:
            return np.full_like(pixels, 255)
        case What.TRUNCATED:
            return pixels[: len(pixels) // 2]
        case _:
            return np.stack([pixels, pixels], axis=-1)


def _damaged_imu(batch: ImuBatch, what: What, random: np.random.Generator) -> ImuBatch:
    accel, gyro = batch.accel_msec2, batch.gyro_radsec
    match what:
        case What.NAN:
            return replace(batch, gyro_radsec=_with_nan(gyro, random))
        case What.SATURATED:
            return replace(
                batch, accel_msec2=np.copysign(IMU_FULL_SCALE_MSEC2, accel),
                gyro_radsec=np.copysign(IMU_FULL_SCALE_RADSEC, gyro),
            )
        case What.TRUNCATED:
            return replace(batch, gyro_radsec=gyro[: len(gyro) // 2])
        case _:
            return replace(batch, accel_msec2=accel[:, :2])


def _with_nan(column: F64, random: np.random.Generator) -> F64:
    """About half of the readings lost, at least one."""
    lost = random.random(len(column)) < 0.5
    lost[random.integers(len(column))] = True
    return np.where(lost[:, None], np.nan, column)
