"""Looks and scenes as bytes, between the session and the reflex worker. msgpack; arrays as raw little-endian bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from handrail.runtime.scene import Scene
from handrail.streams.cameras import Rig
from handrail.streams.samples import ImageFrame, ImuBatch, PoseBatch

if TYPE_CHECKING:
    from handrail.runtime.reflex.runner import Look


class Array(msgspec.Struct, frozen=True, array_like=True):
    dtype: str
    shape: tuple[int, ...]
    data: bytes

    @classmethod
    def of(cls, a: NDArray[Any]) -> Array:
        return cls(a.dtype.str, a.shape, np.ascontiguousarray(a).tobytes())

    def array(self) -> NDArray[Any]:
        return np.frombuffer(self.data, self.dtype).reshape(self.shape)


class FrameWire(msgspec.Struct, frozen=True, array_like=True):
    pixels: Array | None
    width: int
    height: int
    exposure_s: float
    gain: float
    frame_number: int

    @classmethod
    def of(cls, f: ImageFrame) -> FrameWire:
        pixels = None if f.pixels is None else Array.of(f.pixels)
        return cls(pixels, f.width, f.height, f.exposure_s, f.gain, f.frame_number)

    def frame(self) -> ImageFrame:
        pixels = None if self.pixels is None else self.pixels.array()
        return ImageFrame(pixels, self.width, self.height, self.exposure_s, self.gain, self.frame_number)


class RigRequest(msgspec.Struct, frozen=True, tag="rig"):
    rig: dict[str, Any]


class ResetRequest(msgspec.Struct, frozen=True, tag="reset"):
    pass


class LookRequest(msgspec.Struct, frozen=True, tag="look"):
    device_ns: int
    left: FrameWire
    right: FrameWire
    imu: list[tuple[str, list[Array]]]
    poses: list[tuple[str, list[Array], bool]]

    def look(self) -> Look:
        from handrail.runtime.reflex.runner import Look

        imu = tuple((label, ImuBatch(*(a.array() for a in arrays))) for label, arrays in self.imu)
        poses = tuple(
            (label, PoseBatch(*(a.array() for a in arrays), causal=causal))  # type: ignore[misc, arg-type]
            for label, arrays, causal in self.poses
        )
        return Look(self.device_ns, self.left.frame(), self.right.frame(), imu, poses)


class Answer(msgspec.Struct, frozen=True):
    scene: Scene | None
    stages_ms: dict[str, float]


Request = RigRequest | ResetRequest | LookRequest
decode_request = msgspec.msgpack.Decoder(Request).decode
_answers = msgspec.msgpack.Decoder(Answer)
encode = msgspec.msgpack.Encoder().encode


def pack_rig(rig: Rig) -> bytes:
    return encode(RigRequest(rig.to_json()))


def pack_reset() -> bytes:
    return encode(ResetRequest())


def pack_look(look: Look) -> bytes:
    imu = [(label, [Array.of(b.device_ns), Array.of(b.accel_msec2), Array.of(b.gyro_radsec)]) for label, b in look.imu]
    poses = [
        (
            label,
            [Array.of(a) for a in (
                p.device_ns, p.position_m, p.quaternion_xyzw, p.velocity_msec, p.angular_velocity_radsec,
                p.gravity_msec2, p.quality,
            )],
            p.causal,
        )
        for label, p in look.poses
    ]
    return encode(LookRequest(look.device_ns, FrameWire.of(look.left), FrameWire.of(look.right), imu, poses))


def unpack_seen(message: bytes) -> tuple[Scene, dict[str, float]]:
    answer = _answers.decode(message)
    assert answer.scene is not None
    return answer.scene, answer.stages_ms
