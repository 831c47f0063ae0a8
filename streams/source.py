"""The seam through which all samples come: one Protocol, and ``open_source`` which finds the right one by URI.

    async with open_source("vrs:walk.vrs?loop=25", plan) as source:
        async for sample in source.samples():
            ...

URIs: ``vrs:PATH[?loop=N][&non_causal=1][&mps=DIR]`` a recording, ``tape:PATH`` what another source delivered,
``world:SEED[?gen=1|2][&seconds=S][&...]`` the simulated world.
Samples come in order of arrival (``host_ns``), paced on the running loop's clock: at capture plus the stream's delay.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Protocol
from urllib.parse import parse_qsl

from handrail.streams.cameras import Rig
from handrail.streams.errors import SourceError
from handrail.streams.samples import Kind, Sample, Stream

# Time from capture (middle of exposure) to hand-over, per kind, as declared for replays, in milliseconds: exposure
# readout, encoding, USB transport and decoding for cameras, batching for the rest.
DECLARED_DELAY_MS: dict[Kind, float] = {
    Kind.RGB: 180.0, Kind.SLAM: 35.0, Kind.EYE: 60.0, Kind.IMU: 12.0, Kind.MAG: 15.0, Kind.BARO: 25.0,
    Kind.AUDIO: 25.0, Kind.GAZE: 60.0, Kind.HANDS: 80.0, Kind.POSE: 20.0, Kind.OTHER: 50.0, Kind.NOTICE: 0.0,
}


@dataclass(frozen=True, slots=True)
class DecodePlan:
    """Which camera frames are decoded (the rest are counted with ``pixels=None``): label -> highest rate in Hz.

    ``stereo_hz`` applies to both cameras of the forward SLAM pair, in step, whatever their labels. ``rgb_at_s`` names
    single frames of the RGB camera: the last one captured by each of these times (the first one where there is none).
    Decoding costs 100-150 ms for a Gen 2 RGB frame and 5-10 ms for a SLAM frame, hence the plan.
    """

    stereo_hz: float = 10.0
    rgb_hz: float = 0.0
    rgb_at_s: tuple[float, ...] = ()  # since ``first_device_ns``
    other_hz: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SourceInfo:
    uri: str
    rig: Rig
    streams: tuple[Stream, ...]  # all the source has, also those it can't parse
    first_device_ns: int  # device time that corresponds to loop time ``start_ns`` of the replay
    duration_s: float | None  # None: live or unknown
    recorded: bool  # True: frames are on disk already (may be drawn in reports, flagged source=file)
    notes: tuple[str, ...] = ()  # one line each: what is missing or unusual (no gaze file, no SLAM pair, ...)


class Source(Protocol):
    @property
    def info(self) -> SourceInfo: ...

    def samples(self) -> AsyncIterator[Sample]:
        """Every sample once, by arrival. Ends with Notice("end"); a loss on the way is Notice("fault")."""
        ...


def open_source(uri: str, plan: DecodePlan) -> AbstractAsyncContextManager[Source]:
    """Find the source for a URI. Raises SourceError (one line, what was expected) before anything is read."""
    scheme, colon, rest = uri.partition(":")
    path, _, query = rest.partition("?")
    options = dict(parse_qsl(query, keep_blank_values=True))
    if scheme == "vrs" and path:
        from handrail.streams.recorded import open_recording

        return open_recording(path, plan, options)
    if scheme == "world" and path:
        from handrail.streams.world.source import open_world

        return open_world(path, plan, options)
    if scheme == "tape" and path:
        from handrail.streams.tape import open_tape

        return open_tape(path, plan, options)
    meant = "" if colon or not uri else f"; did you mean vrs:{uri}?"
    raise SourceError(f"source {uri!r}: expected vrs:PATH, world:SEED or tape:PATH{meant}")
