"""Text read in a session: on "read that", for a question about it, or as pictures come. No model, a reader that gives
known lines; buffer, pictures, queue and voice are real."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scenes import look, walker

from handrail.benchmarks.answer_stage import Clip, Stage, clip, stage
from handrail.runtime.answer.opening import Loaded, Ocr, Options
from handrail.runtime.answer.query import Line
from handrail.runtime.events import Answered, Fault, Spoken, TextSeen
from handrail.runtime.scene import Scene
from handrail.runtime.scenetext.quote import NOTHING
from handrail.runtime.scenetext.reader import FakeReader, ReaderError, line_of
from handrail.streams.clock import now_ns, run_virtual
from handrail.streams.samples import Kind


@pytest.fixture(scope="module")
def recording() -> Clip:
    """Without gaze: the wearer looks straight ahead."""
    whole = clip(rgb_hz=4.0)
    return Clip(whole.info, tuple(s for s in whole.samples if s.stream.kind is not Kind.GAZE))


def sign(of: Clip, text: str, right_px: float = 0.0, confidence: float = 0.99) -> Any:
    """A line in the middle of the upright picture, moved to the right."""
    camera = of.info.rig.cameras["camera-rgb"]
    width, height = (camera.height, camera.width) if of.info.rig.generation == 1 else (camera.width, camera.height)
    x, y = width / 2 + right_px, height / 2
    return line_of(text, confidence, np.array([[x - 60, y - 20], [x + 60, y - 20], [x + 60, y + 20], [x - 60, y + 20]]))


class Signs:
    """Gives lines in whole pictures; in a part of one, which the second look is at, it finds nothing new."""

    def __init__(self, *lines: Any) -> None:
        self._lines, self._whole_px, self.pictures = list(lines), 0, 0

    def read(self, picture: Any) -> list[Any]:
        self.pictures += 1
        self._whole_px = max(self._whole_px, picture.size)
        return self._lines if picture.size == self._whole_px else []


def reading(reader: Any, ocr: Ocr = "auto") -> Loaded:
    return Loaded(Options(labels=False, ocr=ocr), None, None, None, reader, ())


def play(of: Clip, loaded: Loaded, steps: Callable[[Stage], Any]) -> list[Any]:
    async def whole() -> list[Any]:
        async with stage(of, loaded) as on:
            await steps(on)
            return list(on.events)

    return run_virtual(whole())


def see(on: Stage, of: Clip, nose_deg: float = 0.0) -> None:
    """The wearer stands and looks there."""
    newest_s = max(s.device_ns for s in of.samples) / 1e9
    scene: Scene = look(newest_s, walker(nose_deg=nose_deg, travel_deg=None))
    on.speech.scene(scene, now_ns())
    on.answers.scene(scene, now_ns())


async def read_that(on: Stage) -> None:
    on.answers.line("read that")
    await on.answers.done()


def spoken(events: list[Any]) -> str:
    return " ".join(e.text for e in events if isinstance(e, Spoken))


def test_read_that_quotes_the_sign_and_keeps_its_place(recording: Clip) -> None:
    reader = Signs(sign(recording, "Push to open"))

    async def steps(on: Stage) -> None:
        see(on, recording)
        await read_that(on)

    events = play(recording, reading(reader), steps)
    assert spoken(events) == 'The sign says: "Push to open."'
    (seen,) = [e for e in events if isinstance(e, TextSeen)]
    assert seen.text == "Push to open" and seen.bearing_deg is not None
    assert reader.pictures == 2  # all of the picture, and where the wearer looks


def test_nothing_to_read_and_no_reader_are_said(recording: Clip) -> None:
    assert spoken(play(recording, reading(FakeReader()), read_that)) == NOTHING
    assert spoken(play(recording, reading(None), read_that)) == Line.NO_READER
    assert spoken(play(recording, reading(FakeReader(), "off"), read_that)) == Line.NO_READER


@pytest.mark.parametrize("right_px, side", [(500.0, range(1, 6)), (-500.0, range(7, 12))])
def test_text_too_blurred_is_told_with_its_side_as_of_now(recording: Clip, right_px: float, side: range) -> None:
    numbers = "one two three four five six seven eight nine ten eleven twelve".split()
    blurred = Signs(sign(recording, "Kxit hqre", right_px, confidence=0.6))

    async def steps(on: Stage) -> None:
        see(on, recording)
        await read_that(on)

    words = spoken(play(recording, reading(blurred), steps))
    assert "too blurred. Hold still." in words
    assert any(f"{numbers[hour - 1]} o'clock" in words for hour in side), words


def test_a_reader_that_fails_is_a_fault_and_a_word(recording: Clip) -> None:
    class Choking:
        def read(self, picture: Any) -> list[Any]:
            raise ReaderError("reader: a picture couldn't be read")

    events = play(recording, reading(Choking()), read_that)
    assert spoken(events) == Line.FAILED and [e.component for e in events if isinstance(e, Fault)] == ["answer"]
    assert [e.outcome for e in events if isinstance(e, Answered)] == ["failed"]


def test_texts_are_read_as_pictures_come_where_asked_for_and_one_sign_is_one_text(recording: Clip) -> None:
    reader = Signs(sign(recording, "Exit 2"))

    async def steps(on: Stage) -> None:
        see(on, recording)
        await asyncio.sleep(20.0)

    events = play(recording, reading(reader, "on"), steps)
    assert reader.pictures >= 1
    assert [e.text for e in events if isinstance(e, TextSeen)] == ["Exit 2"]
    assert spoken(events) == ""  # nobody asked


def test_a_sign_of_many_lines_is_read_from_top_to_bottom(recording: Clip) -> None:
    low, high = sign(recording, "Second line"), sign(recording, "First line")
    high = line_of(high.text, high.confidence, high.quad - np.array([0.0, 60.0]))
    words = spoken(play(recording, reading(Signs(low, high)), read_that))
    assert words == 'The sign says: "First line Second line."' and not math.isnan(high.height_px)
