"""What is made of colour pictures as they arrive: features for the model, boxes for labels, lines of text.

One job at a time, each kind no more often than its share of a core allows by the time that the last one took; none is
begun while a question is being answered, so that the answer waits for one job at most. The newest picture wins: one
that came while a job ran is looked at, those before it are not. Belongs to the loop's thread. Knows nothing of
questions.
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
from handrail.streams.clock import NS_PER_S, now_ns
from handrail.streams.samples import ImageFrame, Kind, Sample
from handrail.streams.upright import upright

U8 = NDArray[np.uint8]

SHARE = 0.25  # of one core, that features and text may take each, on average
LEAST_NS = NS_PER_S  # between two of a kind
FEATURES = "features"
MOST_FAILURES = 3


@dataclass(frozen=True, slots=True)
class Picture:
    device_ns: int  # capture
    camera: str  # label
    pixels: U8  # [H, W, 3] RGB, upright
    seams: int = 0  # how many came before it


@dataclass(frozen=True, slots=True)
class Looker:
    """One thing that is done with pictures."""

    what: str
    look: Callable[[Picture], Awaitable[object]]


class Pictures:
    """``take`` every sample of a session; ``run`` looks at them until cancelled."""

    def __init__(
        self, generation: int, worker: Worker, see: Callable[[U8], Features] | None, encode_ms: float,
        failed: Callable[[str, Exception], None],
    ) -> None:  # fmt: skip
        """``see`` None: pictures aren't for a model. ``encode_ms``: what one takes on virtual time. ``failed`` is told
        of what a looker raised; after three pictures in a row it looks no more."""
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
            self.look_with(Looker(FEATURES, self._keep_features))

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
                    await self._look(looker, picture)

    async def _look(self, looker: Looker, picture: Picture) -> None:
        failures, began_ns = self._failures.get(looker.what, 0), now_ns()
        if failures >= MOST_FAILURES:
            return
        try:
            await looker.look(picture)
            self._failures[looker.what] = 0
        except Exception as e:  # what only helps must not end the warnings
            self._failures[looker.what] = failures + 1
            self._failed(looker.what, e)
        self._spent(looker.what, picture, now_ns() - began_ns)

    def _spent(self, what: str, picture: Picture, took_ns: int) -> None:
        """The next one is due when this one was within its share."""
        if self.current(picture):
            due_ns = picture.device_ns + max(LEAST_NS, round(took_ns / SHARE))
            self._due_ns[what] = max(due_ns, self._due_ns.get(what, due_ns))

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
        return await self._encode(self.newest, "answer.encode")

    async def _keep_features(self, picture: Picture) -> None:
        await self._encode(picture, "pictures.encode")

    async def _encode(self, picture: Picture, what: str) -> bool:
        see = self._see
        async with self._encoding:  # one that is under way may be of this very picture
            newest_ns = self.features.newest_ns
            if see is None or (newest_ns is not None and picture.device_ns <= newest_ns):
                return False
            began_ns = now_ns()
            features = await self._worker.run(what, lambda: see(picture.pixels), self._encode_ms)
            self._spent(FEATURES, picture, now_ns() - began_ns)
            if self.current(picture):
                self.features.add(Encoded(picture.device_ns, features))
            return True
