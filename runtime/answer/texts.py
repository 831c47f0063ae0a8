"""Scene text in a session: read when a question is about it, on "read that" or as pictures arrive; kept by place.

Modes: ``off``; ``auto``, the newest picture when a question is about written words; ``on``, pictures as they arrive
too, within their share of the model's core. Text is data: quoted for the prompt and for the ear, never obeyed.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from handrail.runtime import config
from handrail.runtime.answer.pictures import Looker, Picture, Pictures, every_ns
from handrail.runtime.engine.worker import Worker
from handrail.runtime.events import AnyEvent, TextSeen
from handrail.runtime.scene import Scene
from handrail.runtime.scenetext import quote
from handrail.runtime.scenetext.places import Places
from handrail.runtime.scenetext.reader import Line, Reader
from handrail.runtime.scenetext.sights import Sight, pixel_of, sights
from handrail.runtime.scenetext.superres import second_look
from handrail.streams.cameras import Rig
from handrail.streams.clock import NS_PER_S, now_ns

KEPT_NS = 3 * NS_PER_S  # of headings: a picture is a second old at most when its turn comes


class _Heading(NamedTuple):
    device_ns: int
    nose_rad: float
    pitch_rad: float


class Texts:
    """``reader`` None: nothing can be read."""

    def __init__(
        self, reader: Reader | None, mode: str, pictures: Pictures, rig: Rig, worker: Worker, read_ms: float,
        emit: Callable[[AnyEvent], None], start_ns: int,
    ) -> None:  # fmt: skip
        self._reader, self._mode, self._pictures, self._rig, self._worker = reader, mode, pictures, rig, worker
        self._read_ms, self._emit, self._start_ns = read_ms, emit, start_ns
        self._places = Places()
        self._headings: deque[_Heading] = deque()
        self._seen: tuple[int, list[Sight]] = (-1, [])  # of the picture that was read twice last
        if mode == "on" and reader is not None:
            pictures.look_with(Looker("texts", every_ns(read_ms), self._glance))

    @property
    def can_read(self) -> bool:
        return self._reader is not None and self._mode != "off"

    def saw(self, scene: Scene) -> None:
        """Every scene of the reflex: where the head pointed."""
        w = scene.wearer
        self._headings.append(_Heading(scene.device_ns, w.nose_rad, w.pitch_rad))
        while self._headings[0].device_ns < scene.device_ns - KEPT_NS:
            self._headings.popleft()

    def seam(self) -> None:
        self._places.seam()
        self._headings.clear()
        self._seen = (-1, [])

    def wanted(self, question: str) -> bool:
        """Whether a question should wait until the newest picture has been read."""
        return self.can_read and quote.asks_to_read(question)

    async def read_newest(self, look_deg: tuple[float, float]) -> None:
        """The newest picture has been read: all of it, and at full size where the wearer looks (bearing and elevation
        of the gaze from the nose)."""
        picture, reader = self._pictures.newest, self._reader
        if picture is None or reader is None or not self.can_read or picture.device_ns <= self._seen[0]:
            return
        first = await self._worker.run("texts.read", lambda: reader.read(picture.pixels), self._read_ms)
        at_px = pixel_of(look_deg, self._rig, *picture.pixels.shape[:2])
        lines = await self._worker.run(
            "texts.second", lambda: second_look(reader, picture.pixels, first, at_px), self._read_ms
        )
        if self._pictures.current(picture):
            self._seen = (picture.device_ns, self._keep(picture, lines))

    def quoted(self, device_ns: int, wearer: config.Wearer) -> tuple[str, ...]:
        """For a prompt; empty when nothing was read lately."""
        if not self._headings:
            return ()
        text = quote.for_prompt(self._places.now(device_ns), self._headings[-1].nose_rad, wearer)
        return (text,) if text else ()

    def aloud(self, look_deg: tuple[float, float], wearer: config.Wearer) -> str:
        """What is spoken on "read that", of the picture that was read last, with directions as of now."""
        turned_rad = self._headings[-1].nose_rad - self._heading(self._seen[0]).nose_rad if self._headings else 0.0
        return quote.read_aloud(self._seen[1], wearer, look_deg, turned_rad)

    async def _glance(self, picture: Picture) -> None:
        """As pictures arrive: one look."""
        reader = self._reader
        assert reader is not None
        lines = await self._worker.run("texts.read", lambda: reader.read(picture.pixels), self._read_ms)
        if self._pictures.current(picture):
            self._keep(picture, lines)

    def _heading(self, device_ns: int) -> _Heading:
        return min(self._headings, key=lambda h: abs(h.device_ns - device_ns), default=_Heading(0, 0.0, 0.0))

    def _keep(self, picture: Picture, lines: list[Line]) -> list[Sight]:
        found = sights(lines, self._rig, *picture.pixels.shape[:2])
        heading = self._heading(picture.device_ns)
        for place in self._places.see(picture.device_ns, found, heading.nose_rad, heading.pitch_rad):
            self._emit(TextSeen(
                now_ns() - self._start_ns, picture.device_ns, place.id, quote.cleaned(place.text),
                place.confidence, place.bearing_from(heading.nose_rad),
            ))  # fmt: skip
        return found


def gaze_deg(yaw_rad: float, pitch_rad: float) -> tuple[float, float]:
    """Bearing (clockwise) and elevation of a gaze, whose yaw is positive to the left."""
    return -math.degrees(yaw_rad), math.degrees(pitch_rad)
