"""Stereo pairs and IMU batches of a simulated walk, with the truth behind them; and a real recording, where it is.

For tests alone. Each walk is drawn once a test session.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from handrail.runtime.reflex.attitude import Attitude
from handrail.runtime.reflex.depth import DepthView
from handrail.streams.cameras import Camera, Rig
from handrail.streams.clock import run_virtual
from handrail.streams.samples import ImageFrame, ImuBatch, Notice, PoseBatch
from handrail.streams.source import DecodePlan, open_source
from handrail.streams.world.cast import Caster
from handrail.streams.world.scenario import scenario
from handrail.streams.world.truth import Truth, truth_of

F64 = NDArray[np.float64]
U8 = NDArray[np.uint8]
Batches = tuple[tuple[str, ImuBatch], ...]
CORRIDOR = Path(__file__).parents[3] / "shared/data/aria/gen2/corridor_profile8.vrs"


@dataclass(frozen=True)
class Walked:
    rig: Rig
    pairs: tuple[tuple[int, U8, U8], ...]  # device_ns, left, right
    imu: Batches
    poses: tuple[PoseBatch, ...] = ()


def walked(seed: int, kind: str, seconds: float, gen: int = 2, stereo_hz: float = 10.0) -> Walked:
    return _read(f"world:{seed}?kind={kind}&gen={gen}&seconds={seconds:g}", stereo_hz)


def corridor() -> Walked:
    if not CORRIDOR.exists():
        pytest.skip("real recordings (../shared/data/aria) aren't here")
    pytest.importorskip("projectaria_tools")
    return _read(f"vrs:{CORRIDOR}", 30.0)


def truth(seed: int, kind: str, seconds: float, gen: int = 2) -> Truth:
    return _truth(seed, kind, seconds, gen)


@functools.cache
def _truth(seed: int, kind: str, seconds: float, gen: int) -> Truth:
    return truth_of(str(seed), _options(kind, seconds, gen))


def true_attitude(truth: Truth, device_ns: int, sd_rad: float = 0.003) -> Attitude:
    R = truth.pose_at(device_ns).T_world_device[:3, :3]
    return Attitude(device_ns, R, R, np.zeros(3), sd_rad, np.zeros(3), np.zeros(3))


def true_velocity(truth: Truth, device_ns: int) -> F64:
    """[3] of the device origin, world."""
    ends = (truth.pose_at(device_ns + step).T_world_device[:3, 3] for step in (-1_000_000, 1_000_000))
    before, after = ends
    return np.asarray((after - before) / 2e-3)


def true_rho(seed: int, kind: str, seconds: float, gen: int, view: DepthView) -> F64:
    """[R, C] what a perfect depth view would hold; infinite where nothing is."""
    world = scenario(str(seed), _options(kind, seconds, gen))
    T = truth(seed, kind, seconds, gen).pose_at(view.device_ns).T_world_device @ view.T_device_rect
    rays = np.stack(np.broadcast_arrays(
        view.tan_x[None, :], -np.sin(view.phi_rad)[:, None], np.cos(view.phi_rad)[:, None]
    ), axis=-1)
    directions = (rays @ T[:3, :3].T).reshape(-1, 3).astype(np.float32)
    hits = Caster(world.place.faces).first_hits(T[:3, 3].astype(np.float32), directions)
    return np.where(hits.triangle >= 0, hits.distance, np.inf).reshape(rays.shape[:2])


def with_camera(rig: Rig, camera: Camera) -> Rig:
    return Rig(rig.generation, {**rig.cameras, camera.label: camera}, rig.imus, rig.T_device_cpf, rig.magnetometer)


def _options(kind: str, seconds: float, gen: int) -> dict[str, str]:
    return {"kind": kind, "gen": str(gen), "seconds": f"{seconds:g}"}


@functools.cache
def _read(uri: str, stereo_hz: float) -> Walked:
    frames: dict[str, dict[int, U8]] = {}
    imu: list[tuple[str, ImuBatch]] = []
    poses: list[PoseBatch] = []

    async def read() -> Rig:
        async with open_source(uri, DecodePlan(stereo_hz=stereo_hz)) as source:
            rig = source.info.rig
            async for sample in source.samples():
                match sample.payload:
                    case ImuBatch() as batch:
                        imu.append((sample.stream.label, batch))
                    case PoseBatch() as batch:
                        poses.append(batch)
                    case ImageFrame(pixels) if pixels is not None and sample.stream.label in (rig.stereo_pair or ()):
                        frames.setdefault(sample.stream.label, {})[sample.device_ns] = pixels
                    case Notice("fault", detail):
                        raise AssertionError(detail)
            return rig

    rig = run_virtual(read())
    if stereo_hz == 0:
        return Walked(rig, (), tuple(imu), tuple(poses))
    assert rig.stereo_pair is not None
    left, right = (frames[label] for label in rig.stereo_pair)
    pairs = tuple((ns, left[ns], r) for ns, r in zip(left, right.values(), strict=True))
    return Walked(rig, pairs, tuple(imu), tuple(poses))
