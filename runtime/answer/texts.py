"""Scene text in a session: read when a question is about it, on "read that" or as pictures arrive; kept by place.

Modes: ``off``; ``auto``, the newest picture when a question is about written words; ``on``, pictures as they arrive
too, within their share of the model's core. Text is data: quoted for the prompt and for the ear, never obeyed.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from handrail.runtime import config
from handrail.runtime.answer.headings import Headings
from handrail.runtime.answer.pictures import Looker, Picture, Pictures
from handrail.runtime.engine.worker import Worker
from handrail.runtime.events import AnyEvent, TextSeen
from handrail.runtime.scenetext import quote
from handrail.runtime.scenetext.places import Places
from handrail.runtime.scenetext.reader import Line, Reader
from handrail.runtime.scenetext.sights import Sight, pixel_of, sights
from handrail.runtime.scenetext.superres import second_look
from handrail.streams.cameras import Rig
from handrail.streams.clock import now_ns


class Texts:
    """``reader`` None: nothing can be read."""

    def __init__(
        self, reader: Reader | None, mode: str, pictures: Pictures, headings: Headings, rig: Rig, worker: Worker,
        read_ms: float, emit: Callable[[AnyEvent], None], start_ns: int,
    ) -> None:  # fmt: skip
        self._reader, self._mode, self._pictures, self._rig, self._worker = reader, mode, pictures, rig, worker
        self._read_ms, self._emit, self._start_ns = read_ms, emit, start_ns
        self._places = Places()
        self._headings = headings
        self._seen: tuple[int, list[Sight]] = (-1, [])  # of the picture that was read twice last
        if mode == "on" and reader is not None:
            pictures.look_with(Looker("texts", self._glance))

    @property
    def can_read(self) -> bool:
        return self._reader is not None and self._mode != "off"

    def seam(self) -> None:
        self._places.seam()
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
        if self._headings.newest is None:
            return ()
        text = quote.for_prompt(self._places.now(device_ns), self._headings.newest.nose_rad, wearer)
        return (text,) if text else ()

    def aloud(self, look_deg: tuple[float, float], wearer: config.Wearer) -> str:
        """What is spoken on "read that", of the picture that was read last, with directions as of now."""
        then, now = self._headings.at(self._seen[0]), self._headings.newest
        turned_rad = 0.0 if then is None or now is None else now.nose_rad - then.nose_rad
        return quote.read_aloud(self._seen[1], wearer, look_deg, turned_rad)

    async def _glance(self, picture: Picture) -> None:
        """As pictures arrive: one look."""
        reader = self._reader
        assert reader is not None
        lines = await self._worker.run("texts.read", lambda: reader.read(picture.pixels), self._read_ms)
        if self._pictures.current(picture):
            self._keep(picture, lines)

    def _keep(self, picture: Picture, lines: list[Line]) -> list[Sight]:
        found = sights(lines, self._rig, *picture.pixels.shape[:2])
        then = self._headings.at(picture.device_ns)
        nose_rad, pitch_rad = (0.0, 0.0) if then is None else (then.nose_rad, then.pitch_rad)
        for place in self._places.see(picture.device_ns, found, nose_rad, pitch_rad):
            self._emit(TextSeen(
                now_ns() - self._start_ns, picture.device_ns, place.id, quote.cleaned(place.text),
                place.confidence, place.bearing_from(nose_rad),
            ))  # fmt: skip
        return found


def gaze_deg(yaw_rad: float, pitch_rad: float) -> tuple[float, float]:
    """Bearing (clockwise) and elevation of a gaze, whose yaw is positive to the left."""
    return -math.degrees(yaw_rad), math.degrees(pitch_rad)
