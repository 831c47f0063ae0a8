"""A Project Aria recording as a ``Source``: ``vrs:PATH[?loop=N][&non_causal=1][&mps=DIR]``.

The reader child hands over every record in order of device time; here they become samples, joined with MPS output lying
beside the recording (labels ``mps-pose``, ``mps-gaze``, ``mps-hands``), repeated where asked, and paced. Knows neither
the native reader nor what samples are for.

A looped recording begins again with device times and frame numbers that go on rising. Its ``Notice("seam")`` bears the
device time at which the new lap begins; since cameras arrive late, samples captured before it still follow it.
What the reader loses on the way is a ``Notice("fault")``; the last sample is always ``Notice("end")``.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np

from handrail.streams.cameras import Rig
from handrail.streams.clock import now_ns, standing_still
from handrail.streams.errors import HandrailError, SourceError
from handrail.streams.mps import MpsOutput, batches, cut, find_mps, read_mps
from handrail.streams.pacing import paced
from handrail.streams.reader import wire
from handrail.streams.reader.process import Reader, Reading
from handrail.streams.reader.unpack import payload_of, shifted
from handrail.streams.samples import Kind, Notice, Sample, Stream
from handrail.streams.source import DecodePlan, Source, SourceInfo

OPTIONS = ("loop", "mps", "non_causal")
MAX_LAPS = 1_000_000
NOTICES = Stream("source", Kind.NOTICE)
DAMAGED = "the recording is damaged: {}"
MPS_STREAMS = (Stream("mps-pose", Kind.POSE), Stream("mps-gaze", Kind.GAZE), Stream("mps-hands", Kind.HANDS))


@asynccontextmanager
async def open_recording(path: str, plan: DecodePlan, options: dict[str, str]) -> AsyncIterator[Source]:
    """Raises SourceError (one line) for a recording, option or MPS file that can't be used, MissingDependencyError
    where projectaria_tools isn't installed."""
    laps, non_causal, mps_folder = _options(options)
    file = Path(path)
    _check_file(file)
    reader, source = Reader(path, plan), None
    try:
        try:
            opened = await reader.open()
        except SourceError as e:
            raise SourceError(f"{path}: {e}") from e
        folder = Path(mps_folder) if mps_folder is not None else find_mps(file)
        if non_causal and folder is None:
            raise SourceError(f"{path}: non_causal=1 needs MPS output beside the recording, or mps=DIR; found none")
        mps = MpsOutput(None, (), (), ())
        if folder is not None:
            with standing_still():
                mps = await asyncio.to_thread(read_mps, folder, non_causal)
        source = RecordedSource(file, opened, reader, mps, laps)
        yield source
    finally:
        if source is not None:
            await source.close()
        await reader.close()


def _options(options: dict[str, str]) -> tuple[int, bool, str | None]:
    for name in options:
        if name not in OPTIONS:
            raise SourceError(f"vrs: unknown option {name!r}; expected one of {', '.join(OPTIONS)}")
    loop, non_causal, mps = options.get("loop", "1"), options.get("non_causal", "0"), options.get("mps")
    if not (loop.isascii() and loop.isdigit() and len(loop) < 9 and 1 <= int(loop) <= MAX_LAPS):
        raise SourceError(f"vrs: option loop: expected a number of laps from 1 to {MAX_LAPS}, got {loop!r}")
    if non_causal not in ("0", "1"):
        raise SourceError(f"vrs: option non_causal: expected 0 or 1, got {non_causal!r}")
    if mps == "":
        raise SourceError("vrs: option mps: expected a folder, got nothing")
    return int(loop), non_causal == "1", mps


def _check_file(path: Path) -> None:
    """What can be told without native code. Raises SourceError."""
    try:
        if path.is_dir():
            raise SourceError(f"{path}: expected a recording (.vrs), it is a folder")
        if path.is_fifo():
            raise SourceError(f"{path}: expected a recording (.vrs), it is a pipe, in which nobody can look ahead")
        with path.open("rb") as file:
            magic = file.read(8)
    except FileNotFoundError:
        raise SourceError(f"{path}: no such recording") from None
    except (OSError, ValueError) as e:
        raise SourceError(f"{path}: can't be read: {e}") from e
    if not magic:
        raise SourceError(f"{path}: expected a recording (.vrs), the file is empty")
    if magic != b"VisionRe":
        raise SourceError(f"{path}: expected a recording (.vrs), it does not begin like one")


class RecordedSource:
    def __init__(self, path: Path, opened: wire.Opened, reader: Reader, mps: MpsOutput, laps: int) -> None:
        self._path, self._opened, self._reader, self._laps = path, opened, reader, laps
        self._streams = tuple(Stream(s.label, s.kind) for s in opened.streams)
        self._mps, outside = _within(mps, opened.first_ns, opened.last_ns)
        self._last_ns = opened.first_ns
        self._lost: HandrailError | None = None
        self._ahead: asyncio.Task[Reading] | None = None  # what the child reads while its last answer is used
        found = (self._mps.poses, self._mps.gaze, self._mps.hands)
        mps_streams = tuple(stream for stream, rows in zip(MPS_STREAMS, found, strict=True) if rows)
        self.info = SourceInfo(
            uri=f"vrs:{path.name}" + (f"?loop={laps}" if laps > 1 else ""),  # without folders: it goes into logs
            rig=Rig.from_json(opened.rig),
            streams=self._streams + mps_streams,
            first_device_ns=opened.first_ns,
            duration_s=((laps - 1) * opened.loop_ns + opened.last_ns - opened.first_ns) / 1e9,
            recorded=True,
            notes=tuple(map(DAMAGED.format, opened.damage)) + opened.notes + mps.notes + outside,
        )

    async def samples(self) -> AsyncIterator[Sample]:
        """Every record once per lap, by arrival."""
        self._ahead = self._ask(0, 0)
        await asyncio.wait([self._ahead])  # time starts when the first samples are there, or they would all be late
        async for sample in paced(self._captured(), self.info.first_device_ns):
            yield sample
        detail = "the recording is over" if self._lost is None else "the recording can't be read any further"
        yield replace(self._notice("end", detail), host_ns=now_ns())

    async def _captured(self) -> AsyncIterator[Sample]:
        for line in self._opened.damage:
            yield self._notice("fault", DAMAGED.format(line))
        for lap in range(self._laps):
            shift_ns = lap * self._opened.loop_ns
            if lap:
                self._last_ns = self._opened.first_ns + shift_ns
                yield self._notice("seam", f"lap {lap + 1} of {self._laps}: time and place jump")
            beside = _mps_samples(self._mps)
            waiting = next(beside, None)
            async for sample in self._lap(lap):
                while waiting is not None and waiting.device_ns + shift_ns <= sample.device_ns:
                    yield shifted(waiting, shift_ns)
                    waiting = next(beside, None)
                self._last_ns = max(self._last_ns, sample.device_ns)
                yield sample
            while waiting is not None and self._lost is None:
                yield shifted(waiting, shift_ns)
                waiting = next(beside, None)
            if self._lost is not None:
                return

    async def _lap(self, lap: int) -> AsyncIterator[Sample]:
        """One pass over the recording."""
        position, total = 0, self._opened.records
        try:
            while position < total:
                assert self._ahead is not None
                reading = await self._ahead
                position = reading.position
                following = (position, lap) if position < total else (0, lap + 1)
                self._ahead = self._ask(*following) if following[1] < self._laps else None
                for sample in self._converted(reading, lap):
                    yield sample
        except HandrailError as e:
            self._lost = e
            yield self._notice("fault", str(e))

    def _ask(self, position: int, lap: int) -> asyncio.Task[Reading]:
        return asyncio.create_task(self._reader.read(position, lap), name="reader")

    async def close(self) -> None:
        """Let go of the child; before the reader itself is closed."""
        if self._ahead is not None:
            self._ahead.cancel()
            with contextlib.suppress(asyncio.CancelledError, HandrailError):
                await self._ahead

    def _converted(self, reading: Reading, lap: int) -> Iterator[Sample]:
        """Samples by device time. Raises SourceError for items that make no sense."""
        shift_ns = lap * self._opened.loop_ns
        for line in (*reading.deaths, *reading.damage):
            yield self._notice("fault", line)
        for i, item in enumerate(reading.items):
            if not 0 <= item.stream < len(self._streams):
                raise SourceError(f"the Aria reader named a stream {item.stream} that there is not")
            stream = self._streams[item.stream]
            if isinstance(item, wire.Lost):
                detail = f"{stream.label}: {item.count} unreadable record{'s' * (item.count != 1)} ({item.detail})"
                yield Sample(NOTICES, item.device_ns + shift_ns, 0, Notice("fault", detail))
                continue
            number = lap * self._opened.frames[item.stream]
            payload = payload_of(item, stream.kind, reading.pixels.get(i), number)
            yield shifted(Sample(stream, item.device_ns, 0, payload), shift_ns)

    def _notice(self, what: Literal["seam", "fault", "end"], detail: str) -> Sample:
        detail = detail.replace(str(self._path), self._path.name)  # native code names the file; logs hold no folders
        return Sample(NOTICES, self._last_ns, 0, Notice(what, detail))


def _within(mps: MpsOutput, first_ns: int, last_ns: int) -> tuple[MpsOutput, tuple[str, ...]]:
    """What of MPS lies in the recording's time. Raises SourceError where it is of another recording altogether."""
    span = mps.span_ns()
    if span is None:
        return mps, ()
    if span[1] < first_ns or span[0] > last_ns:
        raise SourceError(
            f"MPS output covers {span[0] / 1e9:.1f}-{span[1] / 1e9:.1f} s of device time, the recording "
            f"{first_ns / 1e9:.1f}-{last_ns / 1e9:.1f} s: it belongs to another one"
        )
    poses, dropped = mps.poses, 0
    if poses is not None:
        start, end = np.searchsorted(poses.device_ns, [first_ns, last_ns + 1]).tolist()
        dropped = len(poses.device_ns) - (end - start)
        poses = cut(poses, start, end) if end > start else None
    gaze = tuple(g for g in mps.gaze if first_ns <= g[0] <= last_ns)
    hands = tuple(h for h in mps.hands if first_ns <= h[0] <= last_ns)
    dropped += len(mps.gaze) - len(gaze) + len(mps.hands) - len(hands)
    note = (f"{dropped} MPS rows lie outside the recording and are left out",) if dropped else ()
    return replace(mps, poses=poses, gaze=gaze, hands=hands), note


def _mps_samples(mps: MpsOutput) -> Iterator[Sample]:
    pose, gaze, hands = MPS_STREAMS
    samples = [] if mps.poses is None else [Sample(pose, int(p.device_ns[-1]), 0, p) for p in batches(mps.poses)]
    samples += [Sample(gaze, t, 0, g) for t, g in mps.gaze]
    samples += [Sample(hands, t, 0, h) for t, h in mps.hands]
    return iter(sorted(samples, key=lambda s: s.device_ns))
