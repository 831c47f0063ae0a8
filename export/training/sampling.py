"""Clips out of recordings and simulated walks: eight frames and the sensor readings of a stretch of time.

Two ways to choose. *Paper*: frames evenly spaced over the clip, first and last moment included, and all that was
captured in it (seed 000). *Runtime*: what the glasses could have known when the question came at the clip's end: of
the last ``window_s`` seconds only what had arrived by then, frames evenly spaced back from the newest.

All of it through ``streams`` on a virtual loop: the same readers, delays and checks as a replay. Device poses are those
of the open loop, which is causal. Gaze, hands and poses that MPS made lie beside the recording and are found there.
Knows no grid and no torch.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from dataclasses import fields
from typing import Any, Literal, cast

import msgspec
import numpy as np

from handrail.export.training.clip import FRAMES, READINGS, U8, Arrays, Clip, packed
from handrail.runtime.grid import HISTORY_NS
from handrail.streams.checks import COLUMNS, fit, fit_rows
from handrail.streams.clock import NS_PER_S, now_ns, run_virtual
from handrail.streams.errors import SourceError
from handrail.streams.samples import I64, ImageFrame, Kind, Notice, Sample, Stream
from handrail.streams.source import DECLARED_DELAY_MS, DecodePlan, SourceInfo, open_source
from handrail.streams.upright import upright

Mode = Literal["paper", "runtime"]

WINDOW_S = 10.0
END_TOLERANCE_S = 0.25  # times are written with few decimals, and not every stream goes on to the end
NOTHING = DecodePlan(stereo_hz=0.0)


class Stretch(msgspec.Struct, frozen=True):
    """Which part of which recording; seconds since its first record."""

    uri: str
    mode: Mode
    start_s: float
    end_s: float

    @property
    def frames_at_s(self) -> tuple[float, ...]:
        """The moments whose frames are taken: the last one captured by each."""
        if self.mode == "paper":
            return tuple(np.linspace(self.start_s, self.end_s, FRAMES).tolist())
        newest = self.end_s - DECLARED_DELAY_MS[Kind.RGB] / 1000
        step = (self.end_s - self.start_s) / FRAMES
        return tuple(max(newest - (FRAMES - 1 - i) * step, 0.0) for i in range(FRAMES))


def stretch_of(uri: str, start_s: float, end_s: float, mode: Mode, window_s: float = WINDOW_S) -> Stretch:
    """A clip as it stands in a data set; in runtime mode, where the start doesn't count, the window before its end."""
    return Stretch(uri, mode, start_s if mode == "paper" else max(0.0, end_s - window_s), end_s)


def duration_s(uri: str) -> float | None:
    """Of a recording or walk, without reading it. Raises SourceError or MissingDependencyError."""

    async def ask() -> float | None:
        async with open_source(uri, NOTHING) as source:
            return source.info.duration_s

    return run_virtual(ask())


def read_clip(stretch: Stretch) -> Clip:
    """Raises SourceError for a recording that can't be read to the end of the stretch, or has no frame in it;
    MissingDependencyError where the reader isn't installed."""
    return run_virtual(_read(stretch))


async def _read(stretch: Stretch) -> Clip:
    plan = DecodePlan(stereo_hz=0.0, rgb_at_s=stretch.frames_at_s)
    async with open_source(stretch.uri, plan) as source:
        gathered = _Gathered(source.info, stretch)
        began_ns = now_ns()
        samples = cast(AsyncGenerator[Sample], source.samples())
        async with contextlib.aclosing(samples):
            async for sample in samples:
                if not gathered.add(sample, sample.host_ns - began_ns):
                    break
        return gathered.clip()


class _Gathered:
    """Takes samples by arrival and makes the clip of them."""

    def __init__(self, info: SourceInfo, stretch: Stretch) -> None:
        self._info, self._stretch = info, stretch
        self._start_ns, self._end_ns = self._device_ns(stretch.start_s), self._device_ns(stretch.end_s)
        # On the loop's clock: the moment of the question, or when all that was captured by then has arrived.
        wait_ms = max(DECLARED_DELAY_MS.values()) if stretch.mode == "paper" else 0.0
        self._last_ns = round(stretch.end_s * NS_PER_S + wait_ms * 1e6)
        self._frames: list[tuple[int, U8]] = []
        self._packed: dict[Stream, list[Arrays]] = {}
        self._single: list[Sample] = []

    def add(self, sample: Sample, arrived_ns: int) -> bool:
        """False when neither this nor anything later can belong to the clip."""
        if arrived_ns > self._last_ns:
            return False
        kind = sample.stream.kind
        match sample.payload:
            case Notice("end"):
                self._check_whole(sample)
            case ImageFrame(pixels) if kind is Kind.RGB and pixels is not None and fit(sample):
                self._frames.append((sample.device_ns, pixels))
            case _ if kind in COLUMNS:
                self._add_rows(sample)
            case _ if kind in READINGS and fit(sample) and self._in_time(sample.device_ns):
                self._single.append(sample)
        return True

    def clip(self) -> Clip:
        samples = [packed(stream, _joined(stream.kind, batches)) for stream, batches in self._packed.items()]
        samples += sorted(self._single, key=lambda s: (s.stream.label, s.device_ns))
        return Clip(*self._eight_frames(), self._start_ns, self._end_ns, self._info.rig, tuple(samples))

    def _device_ns(self, at_s: float) -> int:
        return self._info.first_device_ns + round(at_s * NS_PER_S)

    def _in_time(self, device_ns: Any) -> Any:
        return (device_ns >= self._start_ns - HISTORY_NS) & (device_ns <= self._end_ns)

    def _add_rows(self, sample: Sample) -> None:
        rows, payload = fit_rows(sample), cast(Any, sample.payload)
        if rows is None:
            return
        rows = rows & self._in_time(payload.device_ns)
        if rows.any():
            per_row = {"device_ns", *COLUMNS[sample.stream.kind]}
            values = {field.name: getattr(payload, field.name) for field in fields(payload)}
            self._packed.setdefault(sample.stream, []).append(
                {name: np.asarray(v)[rows] if name in per_row else np.asarray(v) for name, v in values.items()}
            )

    def _check_whole(self, end: Sample) -> None:
        if end.device_ns < self._end_ns - END_TOLERANCE_S * NS_PER_S:
            ended_s = (end.device_ns - self._info.first_device_ns) / NS_PER_S
            raise SourceError(
                f"{self._info.uri}: expected to read on to {self._stretch.end_s:g} s, it ended at {ended_s:.2f} s"
            )

    def _eight_frames(self) -> tuple[U8, I64]:
        if not self._frames:
            raise SourceError(f"{self._info.uri}: expected RGB frames by {self._stretch.end_s:g} s, could read none")
        frames = sorted(self._frames, key=lambda frame: frame[0])
        times = np.array([t for t, _ in frames], dtype=np.int64)
        at_ns = np.array([self._device_ns(s) for s in self._stretch.frames_at_s])
        chosen = np.maximum(np.searchsorted(times, at_ns, side="right") - 1, 0)
        return np.stack([upright(frames[i][1], self._info.rig.generation) for i in chosen]), times[chosen]


def _joined(kind: Kind, batches: list[Arrays]) -> Arrays:
    """Rows of all batches by rising time; of what stands once in a batch, the newest."""
    order = np.argsort(np.concatenate([b["device_ns"] for b in batches]), kind="stable")
    per_row = {"device_ns", *COLUMNS[kind]}
    return {
        name: np.concatenate([b[name] for b in batches])[order] if name in per_row else newest
        for name, newest in batches[-1].items()
    }
