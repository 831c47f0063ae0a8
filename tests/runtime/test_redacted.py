"""Frames leave memory through one type, and only those that may."""

import asyncio
import re
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest

import handrail.device
import handrail.runtime
import handrail.streams
from handrail.runtime.redacted import NotRedactedError, Redacted
from handrail.streams.cameras import Rig
from handrail.streams.errors import HandrailError
from handrail.streams.samples import ImageFrame, Kind, Sample, Stream
from handrail.streams.source import DecodePlan, SourceInfo
from handrail.streams.tape import write_tape

RECORDED = SourceInfo("vrs:walk.vrs", Rig(2, {}, {}, np.eye(4)), (), 0, 1.0, recorded=True)
GREY = np.arange(12 * 16, dtype=np.uint8).reshape(12, 16)


def test_a_recorded_frame_may_be_kept_and_says_where_it_is_from() -> None:
    assert Redacted.from_recording(GREY, RECORDED).source == "file"
    assert Redacted.from_recording(GREY, replace(RECORDED, uri="world:7")).source == "world"


def test_a_live_frame_can_not_be_kept() -> None:
    live = replace(RECORDED, uri="aria://gen2", recorded=False)
    with pytest.raises(NotRedactedError, match="no blurrer yet"):
        Redacted.from_recording(GREY, live)


def test_there_is_no_other_way_to_make_one() -> None:
    with pytest.raises(TypeError, match="from_recording"):
        Redacted(GREY, "file")
    with pytest.raises(AttributeError):
        Redacted.from_recording(GREY, RECORDED).pixels = GREY  # type: ignore[misc]


@pytest.mark.parametrize("bad", [GREY.astype(np.float32), GREY[0], np.zeros((4, 4, 4), np.uint8)])
def test_only_8_bit_grey_or_rgb_is_an_image(bad: np.ndarray) -> None:  # type: ignore[type-arg]
    with pytest.raises(TypeError, match="expected uint8"):
        Redacted.from_recording(bad, RECORDED)


def test_it_keeps_its_own_pixels_when_the_frames_memory_is_reused() -> None:
    frame = GREY.copy()
    kept = Redacted.from_recording(frame, RECORDED)
    frame[:] = 0
    assert np.array_equal(kept.pixels, GREY)
    with pytest.raises(ValueError, match="read-only"):
        kept.pixels[0, 0] = 1


def test_its_jpeg_keeps_red_red() -> None:
    red = np.zeros((16, 16, 3), np.uint8)
    red[..., 0] = 255
    decoded = cv2.imdecode(np.frombuffer(Redacted.from_recording(red, RECORDED).jpeg(), np.uint8), cv2.IMREAD_COLOR)
    assert decoded is not None
    blue, green, red_mean = decoded.reshape(-1, 3).mean(axis=0)
    assert red_mean > 200 and max(blue, green) < 60


def test_no_other_module_of_the_running_part_encodes_images() -> None:
    rooms = (handrail.streams, handrail.runtime, handrail.device)
    modules = [m for room in rooms if room.__file__ for m in Path(room.__file__).parent.rglob("*.py")]
    encoders = re.compile(r"imencode|imwrite|imsave|VideoWriter|PIL\b|imageio")
    found = {m.name: m for m in modules if encoders.search(m.read_text())}
    assert len(modules) > 10
    assert ".save" not in found.pop("resize.py").read_text()  # Pillow, to make frames smaller
    assert found.keys() == {"redacted.py", "tape.py"}  # tapes hold frames that were on disk or drawn: the next test


def test_a_tape_of_live_frames_is_refused(tmp_path: Path) -> None:
    async def frames() -> AsyncIterator[Sample]:
        frame = ImageFrame(GREY, 16, 12, 1e-3, 1.0, 0)
        yield Sample(Stream("slam-front-left", Kind.SLAM), 0, 0, frame)

    live = replace(RECORDED, uri="aria://gen2", recorded=False)
    with pytest.raises(HandrailError, match="live"):
        asyncio.run(write_tape(tmp_path / "t", live, DecodePlan(), frames()))
    assert list(tmp_path.iterdir()) == []
