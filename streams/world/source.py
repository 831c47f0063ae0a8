"""The simulated world as a source: a walk down a corridor through real Aria calibrations, by URI ``world:SEED``.

Labels, rates and packing follow the recordings of the generation; frames that the plan skips, and all of the eye
cameras, are counted with ``pixels=None``. There is no VIO, gaze, hands or audio. Hands out samples only: the truth
behind them is a module of its own, for evaluation. Frames are drawn in the loop (about 30 ms each): to replay in
real time, write a tape first.
"""

from __future__ import annotations

import asyncio
import functools
import heapq
import math
import zlib
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from urllib.parse import urlencode

import numpy as np

from handrail.streams.cameras import Camera
from handrail.streams.pacing import paced
from handrail.streams.samples import (
    I64,
    BaroBatch,
    ImageFrame,
    ImuBatch,
    Kind,
    MagBatch,
    Notice,
    Payload,
    Sample,
    Stream,
)
from handrail.streams.source import DecodePlan, SourceInfo
from handrail.streams.world import inertial, sensor
from handrail.streams.world.eye import Eye, eye
from handrail.streams.world.render import Renderer
from handrail.streams.world.scenario import FIRST_DEVICE_NS, Scenario, device_ns, scenario
from handrail.streams.world.walk import F64

BATCH_S = 0.010  # IMU-class readings cross in batches no longer than this
METERING_S = 0.5  # exposure is metered so often and glides in between

# label -> (kind, frames a second, offset of its captures in seconds). Gen 2 cameras fire within 0.4 ms of each other.
CAMERAS: dict[int, dict[str, tuple[Kind, float, float]]] = {
    1: {
        "camera-slam-left": (Kind.SLAM, 10.0, 0.030), "camera-slam-right": (Kind.SLAM, 10.0, 0.030),
        "camera-rgb": (Kind.RGB, 20.0, 0.012), "camera-et": (Kind.EYE, 10.0, 0.030),
    },
    2: {
        "slam-front-left": (Kind.SLAM, 30.0, 0.0102), "slam-front-right": (Kind.SLAM, 30.0, 0.0100),
        "slam-side-left": (Kind.SLAM, 30.0, 0.0100), "slam-side-right": (Kind.SLAM, 30.0, 0.0098),
        "camera-rgb": (Kind.RGB, 10.0, 0.016), "camera-et-left": (Kind.EYE, 5.0, 0.050),
        "camera-et-right": (Kind.EYE, 5.0, 0.050),
    },
}
IMU_HZ = {1: {"imu-right": 1000.0, "imu-left": 800.0}, 2: {"imu-left": 800.0, "imu-right": 800.0}}
MAG_HZ, BARO_HZ = {1: 10.0, 2: 100.0}, 50.0
JOINED_EYES_PX = {"camera-et": (640, 240)}  # Gen 1: both eyes in one frame
NOT_DRAWN_S = 0.002  # exposure stated for frames that are only counted


@dataclass(frozen=True, slots=True)
class _Due:
    """A sample to be made when its turn comes; ordered by capture, then label."""

    device_ns: int
    stream: Stream
    make: Callable[[], Payload]


class WorldSource:
    """A ``Source``; ``captured`` gives the same samples unpaced, in order of capture (``host_ns`` 0)."""

    def __init__(self, uri: str, world: Scenario, plan: DecodePlan) -> None:
        self._world = world
        self._plan = plan
        self._renderer: Renderer | None = None
        self._eyes: dict[str, tuple[Eye, sensor.F32]] = {}
        self._metered: dict[str, tuple[F64, F64]] = {}
        generation = world.options.generation
        streams = [Stream(label, kind) for label, (kind, _, _) in CAMERAS[generation].items()]
        streams += [Stream(label, Kind.IMU) for label in IMU_HZ[generation]]
        streams += [Stream("mag0", Kind.MAG), Stream("baro0", Kind.BARO)]
        self.info = SourceInfo(
            uri=uri,
            rig=world.rig,
            streams=tuple(streams),
            first_device_ns=FIRST_DEVICE_NS,
            duration_s=world.place.duration_s,
            recorded=True,
            notes=("simulated world: no VIO, gaze, hands or audio",),
        )

    def samples(self) -> AsyncIterator[Sample]:
        return paced(self.captured(), self.info.first_device_ns)

    async def captured(self) -> AsyncIterator[Sample]:
        parts = [self._frames(stream) for stream in self.info.streams if stream.kind in (Kind.SLAM, Kind.RGB, Kind.EYE)]
        parts += [self._imu(label, hz) for label, hz in IMU_HZ[self._world.options.generation].items()]
        parts += [self._mag(), self._baro()]
        last_ns = FIRST_DEVICE_NS
        for due in heapq.merge(*parts, key=lambda due: (due.device_ns, due.stream.label)):
            payload = due.make()
            yield Sample(due.stream, due.device_ns, 0, payload)
            last_ns = due.device_ns
            if isinstance(payload, ImageFrame) and payload.pixels is not None:
                await asyncio.sleep(0)  # drawing took a while: let others have their turn
        yield Sample(Stream("source", Kind.NOTICE), last_ns, 0, Notice("end", "the walk is over"))

    # Cameras

    def _frames(self, stream: Stream) -> Iterator[_Due]:
        _, hz, offset_s = CAMERAS[self._world.options.generation][stream.label]
        drawn_hz = self._drawn_hz(stream)
        single = self._plan.rgb_at_s if stream.kind is Kind.RGB else ()
        chosen = {max(0, math.floor((at - offset_s) * hz + 1e-6)) for at in single}
        for k, t in _times(hz, offset_s, self._world.place.duration_s):
            drawn = drawn_hz > 0 and (k == 0 or int(k * drawn_hz / hz + 1e-9) > int((k - 1) * drawn_hz / hz + 1e-9))
            drawn = drawn or k in chosen
            yield _Due(device_ns(t), stream, functools.partial(self._frame, stream, k, t, drawn))

    def _drawn_hz(self, stream: Stream) -> float:
        if stream.kind is Kind.EYE:
            return 0.0  # there is nothing behind the glasses to be seen
        if stream.label in (self._world.rig.stereo_pair or ()):
            return self._plan.stereo_hz
        return self._plan.other_hz.get(stream.label, self._plan.rgb_hz if stream.kind is Kind.RGB else 0.0)

    def _frame(self, stream: Stream, k: int, t_s: float, drawn: bool) -> ImageFrame:
        if stream.label in JOINED_EYES_PX:
            return ImageFrame(None, *JOINED_EYES_PX[stream.label], NOT_DRAWN_S, 1.0, k)
        camera = self._world.rig.cameras[stream.label]
        if not drawn:
            return ImageFrame(None, camera.width, camera.height, NOT_DRAWN_S, 1.0, k)
        chip = sensor.RGB_SENSOR if stream.kind is Kind.RGB else sensor.SLAM_SENSOR
        look, falloff = self._eye(camera)
        exposure_s, gain = sensor.metered(chip, self._mean_radiance(look, t_s))
        light = self._draw().picture(look, t_s, colour=stream.kind is Kind.RGB)
        grain = np.random.default_rng([self._world.options.seed, zlib.crc32(stream.label.encode()), k])
        motion = self._motion_px(camera, t_s, exposure_s)
        pixels = sensor.expose(chip, light, falloff, exposure_s, gain, motion, grain)
        return ImageFrame(pixels, camera.width, camera.height, exposure_s, gain, k)

    def _draw(self) -> Renderer:
        if self._renderer is None:
            self._renderer = Renderer(self._world.place, self._world.walk, self._world.rig)
        return self._renderer

    def _eye(self, camera: Camera) -> tuple[Eye, sensor.F32]:
        if camera.label not in self._eyes:
            look = eye(camera)
            self._eyes[camera.label] = look, sensor.falloff(look.inside, np.arccos(look.directions[:, 2]))
        return self._eyes[camera.label]

    def _mean_radiance(self, look: Eye, t_s: float) -> float:
        """Metered at fixed times, so that a frame's exposure does not depend on which other frames were drawn."""
        label = look.camera.label
        if label not in self._metered:
            at = np.arange(0.0, self._world.place.duration_s + METERING_S, METERING_S)
            self._metered[label] = at, np.array([self._draw().mean_radiance(look, float(t)) for t in at])
        return float(np.interp(t_s, *self._metered[label]))

    def _motion_px(self, camera: Camera, t_s: float, exposure_s: float) -> tuple[float, float]:
        """How far what lies on the optical axis moves over the picture during the exposure, from the head's turning."""
        before, _, after = self._poses(np.array([t_s]), camera.T_device_camera, exposure_s / 2)
        axis = before[0, :3, :3].T @ after[0, :3, 2]
        focal = camera.model.focal_px[0]
        return float(axis[0] * focal), float(axis[1] * focal)

    # Everything else

    def _poses(self, t_s: F64, T_device_sensor: F64, step_s: float) -> tuple[F64, F64, F64]:
        """T_world_sensor one step before, at and after each time; [N, 4, 4] each."""
        T_cpf_sensor = np.linalg.inv(self._world.rig.T_device_cpf) @ T_device_sensor
        walk = self._world.walk
        return (
            walk.T_world_cpf(t_s - step_s) @ T_cpf_sensor,
            walk.T_world_cpf(t_s) @ T_cpf_sensor,
            walk.T_world_cpf(t_s + step_s) @ T_cpf_sensor,
        )

    def _imu(self, label: str, hz: float) -> Iterator[_Due]:
        calibration = self._world.rig.imus[label]
        t, ns = self._clock(hz)
        force, angular = inertial.motion(self._poses(t, calibration.T_device_imu, inertial.STEP_S))
        noise = inertial.IMU_NOISE[self._world.options.generation, label]
        rng = self._world.options.random(label)
        accel, gyro = inertial.raw_readings(calibration, noise, hz, force, angular, rng)
        yield from _batches(
            Stream(label, Kind.IMU), ns, hz, lambda part: ImuBatch(ns[part], accel[part], gyro[part])
        )

    def _mag(self) -> Iterator[_Due]:
        hz = MAG_HZ[self._world.options.generation]
        t, ns = self._clock(hz)
        calibration = self._world.rig.magnetometer["mag0"]
        _, pose, _ = self._poses(t, np.array(calibration["T_device_mag"]), 0.0)
        field = inertial.magnetic_field(
            pose[:, :3, :3], pose[:, :3, 3], np.array(calibration["rectification"]),
            np.array(calibration["bias"]), self._world.options.random("mag0"),
        )
        yield from _batches(Stream("mag0", Kind.MAG), ns, hz, lambda part: MagBatch(ns[part], field[part]))

    def _baro(self) -> Iterator[_Due]:
        t, ns = self._clock(BARO_HZ)
        height = self._world.walk.T_world_cpf(t)[:, 2, 3]
        pressure = inertial.pressure(height, t, self._world.options.random("baro0"))
        warm = np.full(len(t), 28.0)
        yield from _batches(
            Stream("baro0", Kind.BARO), ns, BARO_HZ, lambda part: BaroBatch(ns[part], pressure[part], warm[part])
        )

    def _clock(self, hz: float) -> tuple[F64, I64]:
        """Times of all readings of a stream: seconds of the walk, and device nanoseconds."""
        t = np.arange(math.ceil(self._world.place.duration_s * hz)) / hz
        return t, FIRST_DEVICE_NS + np.round(t * 1e9).astype(np.int64)


def _times(hz: float, offset_s: float, end_s: float) -> Iterator[tuple[int, float]]:
    k = 0
    while (t := offset_s + k / hz) < end_s:
        yield k, t
        k += 1


def _batches(
    stream: Stream, ns: I64, hz: float, make: Callable[[slice], Payload]
) -> Iterator[_Due]:
    size = max(1, int(BATCH_S * hz + 1e-9))
    for start in range(0, len(ns), size):
        part = slice(start, min(start + size, len(ns)))
        yield _Due(int(ns[part.stop - 1]), stream, functools.partial(make, part))


@asynccontextmanager
async def open_world(seed_text: str, plan: DecodePlan, options: Mapping[str, str]) -> AsyncIterator[WorldSource]:
    """A walk through the world of a seed; options: see ``world.options``. Raises SourceError for a wrong one."""
    uri = f"world:{seed_text}" + (f"?{urlencode(sorted(options.items()))}" if options else "")
    yield WorldSource(uri, scenario(seed_text, options), plan)
