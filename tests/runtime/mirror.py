"""The same session seen in a mirror: what was on the left is on the right, and nothing else changes.

Everything is reflected in the plane that halves the head (cpf x = 0): pixels, calibration, IMUs (the gyroscope as a
pseudovector), poses; left and right streams trade places. A runtime that knows left from right must say the opposite.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from handrail.streams.cameras import Camera, Fisheye, ImuCalibration, Rig
from handrail.streams.samples import ImageFrame, ImuBatch, PoseBatch, Sample, Stream
from handrail.streams.source import Source, SourceInfo

F64 = NDArray[np.float64]
FLIP = np.diag([-1.0, 1.0, 1.0])
TURN = -FLIP  # of a pseudovector: det(FLIP) * FLIP


class MirroredSource:
    def __init__(self, source: Source) -> None:
        self._source = source
        self._reflection = _in_head_plane(source.info.rig.T_device_cpf)  # [4, 4], device frame

    @property
    def info(self) -> SourceInfo:
        info = self._source.info
        streams = tuple(_swapped(s) for s in info.streams)
        return replace(info, rig=_mirrored_rig(info.rig, self._reflection), streams=streams)

    async def samples(self) -> AsyncIterator[Sample]:
        async for sample in self._source.samples():
            payload = sample.payload
            match payload:
                case ImageFrame(pixels) if pixels is not None:
                    payload = replace(payload, pixels=np.ascontiguousarray(pixels[:, ::-1]))
                case ImuBatch():
                    payload = replace(
                        payload, accel_msec2=payload.accel_msec2 @ FLIP, gyro_radsec=payload.gyro_radsec @ TURN
                    )
                case PoseBatch():
                    payload = _mirrored_poses(payload, self._reflection)
                case _:
                    pass
            yield replace(sample, stream=_swapped(sample.stream), payload=payload)


def _swapped(stream: Stream) -> Stream:
    return replace(stream, label=_swapped_label(stream.label))


def _swapped_label(label: str) -> str:
    return label.replace("left", "\0").replace("right", "left").replace("\0", "right")


def mirrored(rig: Rig) -> Rig:
    return _mirrored_rig(rig, _in_head_plane(rig.T_device_cpf))


def _in_head_plane(T_device_cpf: F64) -> F64:
    flip = np.diag([-1.0, 1.0, 1.0, 1.0])
    return np.asarray(T_device_cpf @ flip @ np.linalg.inv(T_device_cpf))


def _mirrored_rig(rig: Rig, reflection: F64) -> Rig:
    flip = np.diag([-1.0, 1.0, 1.0, 1.0])
    cameras = {
        _swapped_label(label): _mirrored_camera(_swapped_label(label), c, reflection @ c.T_device_camera @ flip)
        for label, c in rig.cameras.items()
    }
    imus = {
        _swapped_label(label): ImuCalibration(
            _swapped_label(label), reflection @ i.T_device_imu @ flip,
            FLIP @ i.accel_bias, FLIP @ i.accel_rectification @ FLIP,
            TURN @ i.gyro_bias, TURN @ i.gyro_rectification @ TURN,
        )
        for label, i in rig.imus.items()
    }  # fmt: skip
    return replace(rig, cameras=cameras, imus=imus)


def _mirrored_camera(label: str, camera: Camera, T_device_camera: F64) -> Camera:
    m = camera.model
    model = Fisheye(
        m.focal_px, (camera.width - 1 - m.centre_px[0], m.centre_px[1]), m.radial,
        (-m.tangential[0], m.tangential[1]),
        (-m.thin_prism[0], -m.thin_prism[1], m.thin_prism[2], m.thin_prism[3]),
    )  # fmt: skip
    return replace(camera, label=label, model=model, T_device_camera=T_device_camera)


def _mirrored_poses(poses: PoseBatch, reflection: F64) -> PoseBatch:
    """The odometry frame is reflected in its y; gravity must point along its z."""
    world = np.diag([1.0, -1.0, 1.0])
    R = _matrices(poses.quaternion_xyzw)
    S, offset = reflection[:3, :3], reflection[:3, 3]
    # The device's origin isn't in the plane of reflection: the mirrored one is where ``offset`` was.
    at_offset = poses.position_m + R @ offset
    swung = np.cross(poses.angular_velocity_radsec, offset)
    velocity = poses.velocity_msec + np.einsum("nij,nj->ni", R, swung)
    return replace(
        poses, position_m=at_offset @ world, velocity_msec=velocity @ world,
        quaternion_xyzw=_quaternions(world @ R @ S),
        angular_velocity_radsec=-poses.angular_velocity_radsec @ S.T,
        gravity_msec2=world @ poses.gravity_msec2,
    )  # fmt: skip


def _matrices(q: F64) -> F64:
    x, y, z, w = (q / np.linalg.norm(q, axis=1, keepdims=True)).T
    return np.stack([
        np.stack([1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)], axis=-1),
        np.stack([2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)], axis=-1),
        np.stack([2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)], axis=-1),
    ], axis=1)  # fmt: skip


def _quaternions(R: F64) -> F64:
    """xyzw, through the largest of the four so that none divides by nearly nothing."""
    out = np.empty((len(R), 4))
    for i, m in enumerate(R):
        K = np.array([
            [m[0, 0] - m[1, 1] - m[2, 2], 0, 0, 0],
            [m[0, 1] + m[1, 0], m[1, 1] - m[0, 0] - m[2, 2], 0, 0],
            [m[0, 2] + m[2, 0], m[1, 2] + m[2, 1], m[2, 2] - m[0, 0] - m[1, 1], 0],
            [m[2, 1] - m[1, 2], m[0, 2] - m[2, 0], m[1, 0] - m[0, 1], m[0, 0] + m[1, 1] + m[2, 2]],
        ])  # fmt: skip
        values, vectors = np.linalg.eigh(K, UPLO="L")
        out[i] = vectors[:, np.argmax(values)]
    return out
