"""Does the rolling buffer's memory stay flat? Gen 2 streams at a multiple of their nominal rates, in simulated time.

Everything that the glasses send is made and added as it would arrive, in order of time: batches of 10 ms for the
IMU-class streams, real pixel arrays for the frames that a live session decodes, a snapshot per stereo frame. Resident
memory of this process is sampled from the kernel. Knows nothing of speed: it runs as fast as it can.
"""

from __future__ import annotations

import argparse
import heapq
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from handrail.benchmarks.command import Outcome, above_0
from handrail.streams.buffer import RollingBuffer
from handrail.streams.samples import (
    AudioBlock,
    BaroBatch,
    Gaze,
    Hands,
    ImageFrame,
    ImuBatch,
    Kind,
    MagBatch,
    Payload,
    PoseBatch,
    Sample,
    Stream,
)
from handrail.streams.source import DECLARED_DELAY_MS

NS_PER_S = 1_000_000_000
WARM_UP_S = 30.0  # rings fill (10 s), the allocator settles
FLAT_MIB = 8.0  # largest growth after warm-up that is still called flat: some rings are just being renewed


@dataclass(frozen=True, slots=True)
class Nominal:
    """One stream at its Gen 2 rate: how often a sample comes, how many readings it holds, how many are decoded."""

    stream: Stream
    samples_hz: float
    readings: int = 1
    size: tuple[int, ...] = ()  # of decoded pixels
    decoded_hz: float = 0.0


GEN2 = (
    Nominal(Stream("camera-rgb", Kind.RGB), 10, size=(1512, 2016, 3), decoded_hz=1),
    Nominal(Stream("slam-front-left", Kind.SLAM), 30, size=(512, 512), decoded_hz=10),
    Nominal(Stream("slam-front-right", Kind.SLAM), 30, size=(512, 512), decoded_hz=10),
    Nominal(Stream("slam-side-left", Kind.SLAM), 30),
    Nominal(Stream("slam-side-right", Kind.SLAM), 30),
    Nominal(Stream("camera-et-left", Kind.EYE), 30),
    Nominal(Stream("camera-et-right", Kind.EYE), 30),
    Nominal(Stream("imu-left", Kind.IMU), 100, 8),
    Nominal(Stream("imu-right", Kind.IMU), 100, 8),
    Nominal(Stream("mag0", Kind.MAG), 100),
    Nominal(Stream("baro0", Kind.BARO), 50),
    Nominal(Stream("mic", Kind.AUDIO), 50),
    Nominal(Stream("eyegaze", Kind.GAZE), 30),
    Nominal(Stream("handtracking", Kind.HANDS), 30),
    Nominal(Stream("vio", Kind.POSE), 10),
    Nominal(Stream("vio_high_frequency", Kind.POSE), 100, 8),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--minutes", type=above_0, default=10.0, help="simulated (10)")
    parser.add_argument("--rate-factor", type=above_0, default=4.0, help="times the nominal Gen 2 rates (4)")


def run(args: argparse.Namespace) -> Outcome:
    figures = run_buffer(args.minutes, args.rate_factor)
    last = figures["resident_mib"][-1]
    line = (
        f"{args.minutes:g} simulated minutes at {args.rate_factor:g} times nominal, {figures['received']:,} readings: "
        f"{last['mib']:.0f} MiB resident at the end, {figures['growth_mib']:+.1f} MiB since the warm-up"
    )
    return Outcome(figures, figures["flat"], line)


def run_buffer(minutes: float = 10.0, rate_factor: float = 4.0) -> dict[str, Any]:
    """Resident memory in MiB over simulated time, and what the buffer counted.

    ``flat`` is True when no sample after the warm-up lies more than ``FLAT_MIB`` above the first one after it.
    """
    buffer = RollingBuffer()
    memory: list[tuple[float, float]] = []
    next_s, snapshots = 0.0, 0
    for sample in _arrivals(minutes * 60.0, rate_factor):
        held = buffer.add(sample)
        if held and sample.stream.label == "slam-front-left":
            snapshot = buffer.snapshot(sample.device_ns)
            assert snapshot.window("imu-left", sample.device_ns - NS_PER_S // 10, sample.device_ns) is not None
            snapshots += 1
        if sample.device_ns >= next_s * NS_PER_S:
            memory.append((next_s, resident_mib()))
            next_s += 5.0
    settled = [mib for t, mib in memory if t >= min(WARM_UP_S, minutes * 30.0)]
    growth = max(settled) - settled[0]
    statistics = buffer.statistics()
    return {
        "minutes": minutes,
        "rate_factor": rate_factor,
        "resident_mib": [{"t_s": t, "mib": round(mib, 2)} for t, mib in memory],
        "growth_mib": round(growth, 2),
        "flat": growth <= FLAT_MIB,
        "received": sum(s.received for s in statistics.values()),
        "dropped": sum(s.dropped for s in statistics.values()),
        "late": sum(s.late for s in statistics.values()),
        "held": {label: s.held for label, s in statistics.items()},
        "snapshots": snapshots,
    }


def resident_mib() -> float:
    """Of this process, now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def _arrivals(seconds: float, rate_factor: float) -> Iterator[Sample]:
    """All streams by capture; each sample's ``host_ns`` is its capture plus the delay declared for its kind."""
    makers = [_maker(nominal, rate_factor) for nominal in GEN2]
    periods_ns = [round(NS_PER_S / (nominal.samples_hz * rate_factor)) for nominal in GEN2]
    delays_ns = [round(DECLARED_DELAY_MS[nominal.stream.kind] * 1e6) for nominal in GEN2]
    due = [(period_ns, i) for i, period_ns in enumerate(periods_ns)]
    heapq.heapify(due)
    while due[0][0] <= seconds * NS_PER_S:
        device_ns, i = due[0]
        heapq.heapreplace(due, (device_ns + periods_ns[i], i))
        yield Sample(GEN2[i].stream, device_ns, device_ns + delays_ns[i], makers[i](device_ns))


def _maker(nominal: Nominal, rate_factor: float) -> Callable[[int], Payload]:
    """Makes this stream's payload for a capture time, with arrays of its own each time, as a decoder would."""
    n, kind = nominal.readings, nominal.stream.kind
    reading_ns = round(NS_PER_S / (nominal.samples_hz * rate_factor * n))
    decode_every = round(nominal.samples_hz / nominal.decoded_hz) if nominal.decoded_hz else 0
    number = 0

    def times(device_ns: int) -> np.ndarray[Any, np.dtype[np.int64]]:
        return device_ns - reading_ns * np.arange(n - 1, -1, -1, dtype=np.int64)

    def image(device_ns: int) -> ImageFrame:
        nonlocal number
        number += 1
        decoded = decode_every and number % decode_every == 0
        pixels = np.full(nominal.size, number % 256, np.uint8) if decoded else None
        height, width = nominal.size[:2] or (480, 640)
        return ImageFrame(pixels, width, height, 0.005, 1.0, number)

    match kind:
        case Kind.RGB | Kind.SLAM | Kind.EYE:
            return image
        case Kind.IMU:
            return lambda t: ImuBatch(times(t), np.full((n, 3), 9.81), np.full((n, 3), 0.1))
        case Kind.MAG:
            return lambda t: MagBatch(times(t), np.full((n, 3), 4e-5))
        case Kind.BARO:
            return lambda t: BaroBatch(times(t), np.full(n, 101_325.0), np.full(n, 30.0))
        case Kind.AUDIO:
            return lambda t: AudioBlock(np.zeros((320, 8), np.int32), 16_000.0, t - 20_000_000)
        case Kind.GAZE:
            return lambda t: Gaze(0.1, -0.2, 1.0, 0.0, 0.2, -0.3, -0.1)
        case Kind.HANDS:
            return lambda t: Hands(None, None)
        case _:
            return lambda t: PoseBatch(
                times(t), np.zeros((n, 3)), np.tile([0.0, 0.0, 0.0, 1.0], (n, 1)), np.zeros((n, 3)), np.zeros((n, 3)),
                np.array([0.0, 0.0, -9.81]), np.ones(n), True,
            )
