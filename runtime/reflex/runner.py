"""Where the reflex computes: inline for replays on virtual time, in a worker process for real time.

``Reflex`` is a pure function of its inputs and state, so both give the same scenes. Inline, a frame takes the declared
time; in the worker it takes what it takes, and the main loop stays free. A worker that dies or hangs is restarted.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from handrail.runtime.machine import usable_cores
from handrail.runtime.reflex import wire
from handrail.runtime.reflex.depth import DepthView, Pose
from handrail.runtime.reflex.reflex import Reflex
from handrail.runtime.scene import Scene
from handrail.streams.cameras import Rig
from handrail.streams.child import Child, ChildDied
from handrail.streams.samples import ImageFrame, ImuBatch, PoseBatch

WORKER_TIMEOUT_S = 1.0  # a look takes 50-100 ms; past a second its scene would be too old to speak of
# Before all that only fills buffers, where the session has a core beside it; granted to whom the system allows it.
WORKER_NICE = -10 if usable_cores() > 1 else 0
START_TIMEOUT_S = 30.0  # imports and rectification maps on a busy machine


@dataclass(frozen=True, slots=True)
class Look:
    """One stereo pair with everything that arrived since the pair before."""

    device_ns: int
    left: ImageFrame
    right: ImageFrame
    imu: tuple[tuple[str, ImuBatch], ...]
    poses: tuple[tuple[str, PoseBatch], ...]


@dataclass(frozen=True, slots=True)
class Seen:
    scene: Scene
    view: DepthView | None  # inline only: what the report draws
    pose: Pose | None  # inline only
    stages_ms: dict[str, float]  # measured: for timings.jsonl, never for events


class ReflexRunner(Protocol):
    async def see(self, look: Look) -> Seen:
        """Raises ChildDied when the worker was lost; the next look starts a new one."""
        ...

    async def reset(self) -> None:
        """Raises ChildDied, as ``see``: the next worker has nothing to forget."""
        ...

    async def close(self) -> None: ...


def see_with(reflex: Reflex, look: Look) -> Scene:
    """Feed one look; the same for both runners."""
    for label, batch in look.imu:
        reflex.imu(label, batch)
    for label, poses in look.poses:
        reflex.pose(label, poses)
    return reflex.pair(look.left, look.right, look.device_ns)


class InlineRunner:
    def __init__(self, rig: Rig, declared_ms: float) -> None:
        self._reflex = Reflex(rig, clock_ns=time.perf_counter_ns)
        self._declared_s = declared_ms / 1e3

    async def see(self, look: Look) -> Seen:
        scene = see_with(self._reflex, look)
        seen = Seen(scene, self._reflex.last_view, self._reflex.last_pose, dict(self._reflex.stages_ms))
        self._reflex.rest()
        await asyncio.sleep(self._declared_s)
        return seen

    async def reset(self) -> None:
        self._reflex.reset()

    async def close(self) -> None:
        pass


class ProcessRunner:
    def __init__(self, rig: Rig) -> None:
        self._rig = rig
        self._child = Child("handrail.runtime.reflex.worker", timeout_s=WORKER_TIMEOUT_S, nice=WORKER_NICE)

    async def start(self) -> None:
        """Start the worker and let it build its maps and touch every code path, so that the first frame is quick."""
        await self._child.request(wire.pack_rig(self._rig), START_TIMEOUT_S)

    async def see(self, look: Look) -> Seen:
        if self._child.pid is None:
            await self.start()
        scene, stages_ms = wire.unpack_seen(await self._ask(wire.pack_look(look)))
        return Seen(scene, None, None, stages_ms)

    async def reset(self) -> None:
        if self._child.pid is not None:
            await self._ask(wire.pack_reset())

    async def close(self) -> None:
        await self._child.close()

    async def _ask(self, message: bytes) -> bytes:
        if self._child.lost:  # the one that would be started in its place has no rig
            await self._child.close()
            raise ChildDied(f"{self._child.module}: died between looks")
        return await self._child.request(message)


def blank_look(rig: Rig) -> Look | None:
    """A pair of grey noise of the rig's size: warms up a worker. None when the rig has no pair."""
    if rig.stereo_pair is None:
        return None
    noise = np.random.default_rng(0)

    def frame(label: str) -> ImageFrame:
        camera = rig.cameras[label]
        pixels = noise.integers(0, 255, (camera.height, camera.width), dtype=np.uint8)
        return ImageFrame(pixels, camera.width, camera.height, 1e-3, 1.0, 0)

    left, right = rig.stereo_pair
    return Look(0, frame(left), frame(right), (), ())
