"""The main process's end of the reader: asks for one answer at a time, and outlives the child that gives it.

A child that dies or hangs is started again and asked for the same place. A record on which it is lost twice is skipped
from then on; so a kill from outside costs nothing, and a record that kills costs itself. Knows no samples. While a
request is out, virtual time stands still (``streams.child``); the limits here are real seconds.
"""

from __future__ import annotations

import importlib.util
import os
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from handrail.streams.child import Child, ChildDied
from handrail.streams.errors import MissingDependencyError, SourceError
from handrail.streams.reader import wire
from handrail.streams.reader.chatter import Chatter
from handrail.streams.source import DecodePlan

INSTALL = "pip install --no-deps projectaria-tools==2.3.0"
OPEN_LIMIT_S = 60.0  # a long recording is indexed first
ANSWER_LIMIT_S = 15.0  # an answer takes 0.1 s; a machine may be busy
DEATHS_IN_A_ROW = 8
DEATHS_IN_ALL = 64


@dataclass(frozen=True, slots=True)
class Reading:
    items: tuple[wire.Item, ...]
    pixels: dict[int, NDArray[np.uint8]]  # by place in items: decoded frames, copied out of the ring
    position: int  # where to go on
    deaths: tuple[str, ...]  # one line for each time the child was lost meanwhile
    damage: tuple[str, ...] = field(default=())  # frames that came broken out of the ring


class Reader:
    def __init__(self, path: str, plan: DecodePlan) -> None:
        self._open_message = wire.encode(wire.Open(path, plan))
        self._ring_fd = wire.FrameRing.create_fd()
        self._log_fd = Chatter.create_fd()
        self._ring = wire.FrameRing(self._ring_fd)
        fds = (self._ring_fd, self._log_fd)
        self._child = Child("handrail.streams.reader", [str(fd) for fd in fds], timeout_s=ANSWER_LIMIT_S, pass_fds=fds)
        self._layout: tuple[object, ...] | None = None  # must be the same in every child
        self._ready = False  # the present child has opened the recording
        self._suspects: set[int] = set()
        self._skip: set[int] = set()
        self._deaths = 0

    async def open(self) -> wire.Opened:
        """Raises SourceError where the recording can't be read, MissingDependencyError without projectaria_tools."""
        if importlib.util.find_spec("projectaria_tools") is None:
            raise MissingDependencyError(f"reading recordings needs projectaria_tools, which isn't there: {INSTALL}")
        try:
            return await self._open()
        except ChildDied as e:
            raise SourceError(f"the recording is damaged: the Aria reader {_how(e)} opening it{self._said()}") from e

    async def read(self, position: int, lap: int = 0) -> Reading:
        """One answer from ``position`` of a lap on. Raises SourceError when the child is lost too often."""
        deaths: list[str] = []
        while True:
            try:
                self._ring.progress = -1
                if not self._ready:
                    await self._open()
                request = wire.Read(position, lap, tuple(sorted(self._skip)))
                answer = await self._ask(wire.encode(request), ANSWER_LIMIT_S)
                if isinstance(answer, wire.Fresh):
                    raise ChildDied("reader: died between requests")
            except ChildDied as e:
                self._ready = False
                deaths.append(self._after_death(position, e, len(deaths) + 1))
                continue
            if not isinstance(answer, wire.Batch) or answer.position <= position:
                raise SourceError("the Aria reader broke its protocol: no progress in its answer")
            return self._unpacked(answer, tuple(deaths))

    async def close(self) -> None:
        await self._child.close()
        self._ring.close()
        os.close(self._ring_fd)
        os.close(self._log_fd)

    async def _open(self) -> wire.Opened:
        answer = await self._ask(self._open_message, OPEN_LIMIT_S)
        if not isinstance(answer, wire.Opened):
            raise SourceError("the Aria reader broke its protocol at the opening")
        layout = (answer.streams, answer.records, answer.frames, answer.first_ns, answer.last_ns)
        if self._layout is not None and self._layout != layout:
            raise SourceError("the recording changed while it was being read")
        self._layout, self._ready = layout, True
        return answer

    async def _ask(self, message: bytes, limit_s: float) -> wire.Answer:
        answer = wire.decode_answer(await self._child.request(message, limit_s))
        if isinstance(answer, wire.Failed):
            if answer.missing:
                raise MissingDependencyError(f"projectaria_tools can't be loaded ({answer.detail}): {INSTALL}")
            raise SourceError(f"{answer.detail}{self._said()}")
        return answer

    def _after_death(self, position: int, died: ChildDied, in_a_row: int) -> str:
        """Remember where it was lost; one line for people. Raises SourceError when it was lost too often."""
        self._deaths += 1
        line = f"the Aria reader {_how(died)}{self._said()}"
        if in_a_row >= DEATHS_IN_A_ROW or self._deaths >= DEATHS_IN_ALL:
            raise SourceError(f"{line}; lost {self._deaths} times, given up")
        at = self._ring.progress
        if at >= position:
            (self._skip if at in self._suspects else self._suspects).add(at)
        return f"{line}; started again"

    def _unpacked(self, batch: wire.Batch, deaths: tuple[str, ...]) -> Reading:
        pixels: dict[int, NDArray[np.uint8]] = {}
        damage: list[str] = []
        for i, item in enumerate(batch.items):
            if isinstance(item, wire.Frame) and item.slot is not None:
                try:
                    pixels[i] = self._ring.take(item.slot)
                except SourceError as e:
                    damage.append(str(e))
        return Reading(batch.items, pixels, batch.position, deaths, tuple(damage))

    def _said(self) -> str:
        """The last complaint of native code, in brackets; empty when there is none."""
        complaints = Chatter(self._log_fd).complaints()
        return f" ({complaints[-1]})" if complaints else ""


def _how(died: ChildDied) -> str:
    """``died (exit -11)`` or ``gave no answer in 15 s``, without the module's name."""
    return str(died).partition(": ")[2]
