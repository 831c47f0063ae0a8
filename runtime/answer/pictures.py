"""What is made of colour pictures as they arrive: features for the model, boxes for labels, lines of text.

One job at a time, each kind no more often than its share of the model's core allows; none is begun while a question is
being answered, so that the answer waits for one job at most. The newest picture wins: one that came while a job ran is
looked at, those before it are not. Belongs to the loop's thread. Knows nothing of questions.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from handrail.runtime.engine.features import Encoded, FeatureCache
from handrail.runtime.engine.prompt import Features
from handrail.runtime.engine.worker import Worker
from handrail.runtime.mailbox import Mailbox
from handrail.streams.clock import NS_PER_S
from handrail.streams.samples import ImageFrame, Kind, Sample
from handrail.streams.upright import upright

U8 = NDArray[np.uint8]

SHARE = 0.25  # of one core, that features and text may take each, on average
LEAST_NS = NS_PER_S  # between two of a kind
MOST_FAILURES = 3


@dataclass(frozen=True, slots=True)
class Picture:
    device_ns: int  # capture
    camera: str  # label
    pixels: U8  # [H, W, 3] RGB, upright
    seams: int = 0  # how many came before it


@dataclass(frozen=True, slots=True)
class Looker:
    """One thing that is done with pictures, and how often at most."""

    what: str
    every_ns: int
    look: Callable[[Picture], Awaitable[object]]


class Pictures:
    """``take`` every sample of a session; ``run`` looks at them until cancelled."""

    def __init__(
        self, generation: int, worker: Worker, see: Callable[[U8], Features] | None, encode_ms: float,
        failed: Callable[[str, Exception], None],
    ) -> None:  # fmt: skip
        """``see`` None: pictures aren't for a model. ``encode_ms``: what one takes it, here. ``failed`` is told of what
        a looker raised; after three pictures in a row it looks no more."""
        self._failed = failed
        self._failures: dict[str, int] = {}
        self._generation, self._worker, self._see, self._encode_ms = generation, worker, see, encode_ms
        self._lookers: list[Looker] = []
        self._due_ns: dict[str, int] = {}  # device time from which each may look again
        self._arrived: Mailbox[Picture] = Mailbox()
        self._held = 0
        self._encoding = asyncio.Lock()
        self.features = FeatureCache()
        self.newest: Picture | None = None
        self._seams = 0
        if see is not None:
            self.look_with(Looker("features", every_ns(encode_ms), self._encode))

    def look_with(self, looker: Looker) -> None:
        self._lookers.append(looker)

    def take(self, sample: Sample) -> None:
        """Never waits."""
        if sample.stream.kind is Kind.RGB and isinstance(sample.payload, ImageFrame):
            pixels = sample.payload.pixels
            if pixels is not None and (self.newest is None or sample.device_ns > self.newest.device_ns):
                turned = upright(pixels, self._generation)
                self.newest = Picture(sample.device_ns, sample.stream.label, turned, self._seams)
                self._arrived.put(self.newest)

    def seam(self) -> None:
        """Time or place jumped."""
        self.newest = None
        self._seams += 1
        self._arrived.discard()
        self._due_ns.clear()
        self.features.clear()

    async def run(self) -> None:
        while True:
            picture = await self._arrived.take()
            for looker in self._lookers:
                due_ns = self._due_ns.get(looker.what, picture.device_ns)
                if not self._held and picture is self.newest and picture.device_ns >= due_ns:
                    self._due_ns[looker.what] = picture.device_ns + looker.every_ns
                    await self._look(looker, picture)

    async def _look(self, looker: Looker, picture: Picture) -> None:
        failures = self._failures.get(looker.what, 0)
        if failures >= MOST_FAILURES:
            return
        try:
            await looker.look(picture)
            self._failures[looker.what] = 0
        except Exception as e:  # what only helps must not end the warnings
            self._failures[looker.what] = failures + 1
            self._failed(looker.what, e)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """No job is begun meanwhile."""
        self._held += 1
        try:
            yield
        finally:
            self._held -= 1

    def current(self, picture: Picture) -> bool:
        """Whether it is of the same stretch of time and place as now: a result may come after a seam."""
        return picture.seams == self._seams

    async def encode_newest(self, by_ns: int | None = None) -> bool:
        """The newest picture's features are there, if there is a picture (captured by ``by_ns``); returns whether it
        was encoded for this."""
        if self.newest is None or (by_ns is not None and self.newest.device_ns > by_ns):
            return False
        return await self._encode(self.newest)

    async def _encode(self, picture: Picture) -> bool:
        see = self._see
        async with self._encoding:  # one that is under way may be of this very picture
            newest_ns = self.features.newest_ns
            if see is None or (newest_ns is not None and picture.device_ns <= newest_ns):
                return False
            features = await self._worker.run("answer.encode", lambda: see(picture.pixels), self._encode_ms)
            if self.current(picture):
                self.features.add(Encoded(picture.device_ns, features))
            return True


def every_ns(job_ms: float) -> int:
    """How often a job may run to stay within its share."""
    return max(LEAST_NS, round(job_ms / SHARE * 1e6))
