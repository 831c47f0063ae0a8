"""What the glasses deliver, one frozen struct per kind, with units. Knows no clock, no source and no consumer.

Streams at hundreds of hertz (IMU, magnetometer, barometer, high-rate poses) travel as packed columns: one ``Sample``
holds N readings, its ``device_ns`` is that of the last one, ``count`` says how many it stands for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

import numpy as np
from numpy.typing import NDArray

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]


class Kind(StrEnum):
    RGB = "rgb"
    SLAM = "slam"
    EYE = "eye"
    IMU = "imu"
    MAG = "mag"
    BARO = "baro"
    AUDIO = "audio"
    GAZE = "gaze"
    HANDS = "hands"
    POSE = "pose"  # VIO at camera rate, open-loop or closed-loop trajectory
    OTHER = "other"  # counted, not parsed (PPG, GPS, Bluetooth, temperature, ...)
    NOTICE = "notice"  # from the source itself, not from the glasses


@dataclass(frozen=True, slots=True)
class Stream:
    """A stream is named by the recording's own label (``slam-front-left``, ``imu-right``, ``eyegaze``, ...)."""

    label: str
    kind: Kind


@dataclass(frozen=True, slots=True)
class ImageFrame:
    """A camera frame as the sensor delivers it (Gen 1 lies on its side). ``pixels`` is None where the plan skips it."""

    pixels: NDArray[np.uint8] | None  # [H, W] grey or [H, W, 3] RGB
    width: int  # px
    height: int  # px
    exposure_s: float
    gain: float
    frame_number: int


@dataclass(frozen=True, slots=True)
class ImuBatch:
    """Raw readings in the IMU's own frame; ``Rig.imus[label]`` rectifies and rotates them into the device frame."""

    device_ns: I64  # [N]
    accel_msec2: F64  # [N, 3]
    gyro_radsec: F64  # [N, 3]


def joined(batches: Sequence[ImuBatch]) -> ImuBatch:
    """Batches of one IMU, at least one, as one."""
    return ImuBatch(
        np.concatenate([b.device_ns for b in batches]),
        np.concatenate([b.accel_msec2 for b in batches]),
        np.concatenate([b.gyro_radsec for b in batches]),
    )


@dataclass(frozen=True, slots=True)
class MagBatch:
    device_ns: I64  # [N]
    field_tesla: F64  # [N, 3], magnetometer frame


@dataclass(frozen=True, slots=True)
class BaroBatch:
    device_ns: I64  # [N]
    pressure_pa: F64  # [N]
    temperature_c: F64  # [N]


@dataclass(frozen=True, slots=True)
class AudioBlock:
    """``Sample.device_ns`` is the time of the block's last sample."""

    pcm: NDArray[np.int32]  # [N, C], full scale is 2^31 whatever the microphone's bits
    rate_hz: float
    first_device_ns: int


@dataclass(frozen=True, slots=True)
class Gaze:
    """Direction of gaze in the cpf frame: yaw positive to the left about y, pitch positive up; depth where known."""

    yaw_rad: float
    pitch_rad: float
    depth_m: float | None
    yaw_low_rad: float
    yaw_high_rad: float
    pitch_low_rad: float
    pitch_high_rad: float


@dataclass(frozen=True, slots=True)
class Hand:
    confidence: float  # 0..1
    landmarks_m: F64  # [21, 3], device frame
    wrist_m: F64  # [3], device frame
    palm_m: F64  # [3], device frame
    palm_normal: F64 | None  # [3], device frame


@dataclass(frozen=True, slots=True)
class Hands:
    left: Hand | None
    right: Hand | None


@dataclass(frozen=True, slots=True)
class PoseBatch:
    """Device poses in one gravity-aligned odometry frame. ``causal`` is False for closed-loop (future-aware) poses."""

    device_ns: I64  # [N]
    position_m: F64  # [N, 3], device origin in the odometry frame
    quaternion_xyzw: F64  # [N, 4], rotation odometry <- device
    velocity_msec: F64  # [N, 3], in the odometry frame
    angular_velocity_radsec: F64  # [N, 3], device frame
    gravity_msec2: F64  # [3], in the odometry frame, pointing down
    quality: F64  # [N], 0..1
    causal: bool


@dataclass(frozen=True, slots=True)
class Other:
    count: int


@dataclass(frozen=True, slots=True)
class Notice:
    """``seam``: time or place jumped (a loop point), the scene starts anew. ``fault``: the source lost something and
    goes on or ends. ``end``: nothing more will come."""

    what: Literal["seam", "fault", "end"]
    detail: str


Payload = (
    ImageFrame | ImuBatch | MagBatch | BaroBatch | AudioBlock | Gaze | Hands | PoseBatch | Other | Notice
)


@dataclass(frozen=True, slots=True)
class Sample:
    stream: Stream
    device_ns: int  # capture (of the last reading in a batch), device clock
    host_ns: int  # handed over, running loop's clock
    payload: Payload

    @property
    def count(self) -> int:
        """How many recorded samples this one stands for."""
        match self.payload:
            case ImuBatch() | MagBatch() | BaroBatch() | PoseBatch():
                return len(self.payload.device_ns)
            case Other(count):
                return count
            case Notice():
                return 0
            case _:
                return 1
