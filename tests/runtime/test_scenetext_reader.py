"""Reading a picture: the second look, and the real reader where it is installed."""

from __future__ import annotations

import importlib.util
import math
import threading
import time
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from signs import line_at

from handrail.runtime.scenetext import reader as reading
from handrail.runtime.scenetext.reader import (
    LONGEST_SIDE_PX,
    FakeReader,
    Line,
    Reader,
    ReaderError,
    line_of,
    open_reader,
)
from handrail.runtime.scenetext.superres import METHODS, average, enlarged, factor_for, merged, second_look, window

U8 = NDArray[np.uint8]
FACTORS = (0.75, 1.0, 1.25, 1.5, 2.0)


class Eye:
    """A reader that sees points: of what it knows stands in the picture, it reads what its window holds."""

    def __init__(self, truth: Sequence[Line], least_px: float) -> None:
        self._truth, self._least_px = truth, least_px

    def read(self, picture: U8) -> list[Line]:
        """The red channel tells the column, the green one the row, so that any cut-out tells where it is from."""
        x0, y0 = picture[0, 0, 0] * 8.0, picture[0, 0, 1] * 8.0
        scale = (picture.shape[1] - 1) / max((picture[0, -1, 0] - picture[0, 0, 0]) * 8.0, 1.0)
        scale = min(FACTORS, key=lambda f: abs(f - scale))
        least_px = self._least_px / scale / min(1.0, LONGEST_SIDE_PX / max(picture.shape[:2]))
        low, high = np.array([x0, y0]), np.array([x0, y0]) + np.array(picture.shape[1::-1]) / scale
        return [
            line_of(t.text, t.confidence, (t.quad - low + 0.5) * scale - 0.5)
            for t in self._truth
            if t.height_px >= least_px and (t.quad >= low).all() and (t.quad <= high).all()
        ]


def mapped_picture(side: int = 1408) -> U8:
    """Each pixel tells where it is, in steps of 8 px."""
    picture = np.zeros((side, side, 3), dtype=np.uint8)
    picture[..., 0], picture[..., 1] = np.arange(side) // 8, (np.arange(side) // 8)[:, None]
    return picture


@given(
    st.integers(32, 2000), st.integers(32, 2000), st.floats(-500, 2500), st.floats(-500, 2500), st.sampled_from(FACTORS)
)
def test_the_window_lies_in_the_picture_and_is_no_larger_than_is_read_without_loss(
    width: int, height: int, at_x: float, at_y: float, factor: float
) -> None:
    x, y, w, h = window(width, height, (at_x, at_y), factor)
    assert 0 <= x and 0 <= y and x + w <= width and y + h <= height
    assert max(w, h) * factor <= LONGEST_SIDE_PX + factor
    assert w == min(width, round(LONGEST_SIDE_PX / factor)) and h == min(height, round(LONGEST_SIDE_PX / factor))


@pytest.mark.parametrize("factor", FACTORS)
def test_a_second_look_reads_smaller_text_and_puts_it_where_it_stands(factor: float) -> None:
    small, large = line_at("Push to open", 712.0, 704.0, 8.0), line_at("EXIT", 200.0, 200.0, 60.0)
    eye = Eye([small, large], least_px=6.0)
    picture = mapped_picture()
    first = eye.read(picture)
    assert [line.text for line in first] == ["EXIT"]
    both = second_look(eye, picture, first, factor=factor)
    assert sorted(line.text for line in both) == ["EXIT", "Push to open"]
    found = next(line for line in both if line.text == "Push to open")
    assert np.abs(found.quad - small.quad).max() < 8.0 and math.isclose(found.height_px, 8.0, rel_tol=0.01)


def test_a_picture_that_was_read_whole_is_not_read_again() -> None:
    fake = FakeReader([line_at("EXIT", 100.0, 100.0)])
    picture = np.zeros((480, 640, 3), dtype=np.uint8)
    assert second_look(fake, picture, fake.read(picture), factor=1.0) == fake.read(picture) and fake.pictures == 2


@given(st.integers(200, 4032))
def test_the_window_shows_a_third_of_the_view_at_least_whatever_the_camera(side: int) -> None:
    factor = factor_for(side)
    assert 0 < factor <= 1.5 and window(side, side, (0, 0), factor)[2] >= min(side, side / 3 - 1)


def test_the_better_of_two_readings_of_a_place_is_kept_and_never_both() -> None:
    inside = (300, 300, 700, 700)
    poor, good = line_at("EX1T", 600.0, 600.0, confidence=0.6), line_at("EXIT", 601.0, 600.0, confidence=0.97)
    far = line_at("Toilets", 100.0, 100.0)
    assert sorted(x.text for x in merged([poor, far], [good], inside)) == ["EXIT", "Toilets"]
    assert sorted(x.text for x in merged([good, far], [poor], inside)) == ["EXIT", "Toilets"]


def test_a_line_cut_by_the_window_is_left_to_the_first_look() -> None:
    whole = line_at("Emergency exit only", 260.0, 500.0, confidence=0.9)
    cut = line_at("only", 330.0, 500.0, confidence=0.99)
    assert [x.text for x in merged([whole], [cut], (300, 300, 700, 700))] == ["Emergency exit only"]


@pytest.mark.parametrize("method", METHODS)
def test_every_method_of_enlarging_keeps_a_flat_picture_flat_and_its_size_right(method: str) -> None:
    flat = np.full((40, 60, 3), 90, dtype=np.uint8)
    large = enlarged(flat, 1.5, method)
    assert large.shape == (60, 90, 3) and np.abs(large.astype(int) - 90).max() <= 1


def test_averaging_pictures_of_a_head_that_moves_a_little_lowers_noise_and_keeps_edges() -> None:
    rng = np.random.default_rng(1)
    scene = np.kron(rng.integers(40, 210, (16, 16, 1)), np.ones((16, 16, 3))).astype(np.float64)
    looks = [np.clip(np.roll(scene, (k, -k), (0, 1)) + rng.normal(0, 12, scene.shape), 0, 255).astype(np.uint8)
             for k in (0, 1, 2, -1)]  # fmt: skip
    inner = np.s_[8:-8, 8:-8]
    before = np.abs(looks[0].astype(float) - scene)[inner].mean()
    assert np.abs(average(looks).astype(float) - scene)[inner].mean() < 0.7 * before


def test_without_rapidocr_a_session_is_told_why_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "find_spec", lambda name: None)
    found, why = open_reader()
    assert found is None and "pip install 'handrail[cpu,text]'" in why and "\n" not in why


def test_a_broken_installation_is_a_reason_and_no_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(threads: int) -> None:
        raise OSError("libgomp.so.1: cannot open\nshared object file")

    monkeypatch.setattr(reading, "_engine", broken)
    found, why = open_reader()
    assert found is None and why == "rapidocr doesn't start (OSError: libgomp.so.1: cannot open"


# ---- the real one ----------------------------------------------------------------------------------------------------

needs_reader = pytest.mark.skipif(
    importlib.util.find_spec("rapidocr") is None or importlib.util.find_spec("onnxruntime") is None,
    reason="rapidocr or onnxruntime isn't installed: make setup-export",
)


@pytest.fixture(scope="module")
def rapid() -> Reader:
    found, why = open_reader()
    assert found is not None, why
    return found


def sign(text: str = "PUSH", size: tuple[int, int] = (300, 400)) -> U8:
    import cv2

    picture = np.full((*size, 3), (200, 60, 30), dtype=np.uint8)
    return np.asarray(cv2.putText(picture, text, (120, 160), cv2.FONT_HERSHEY_SIMPLEX, 1.5, (255, 255, 255), 3))


@needs_reader
def test_the_real_reader_reads_a_drawn_sign_where_it_stands(rapid: Reader) -> None:
    (line,) = rapid.read(sign())
    assert line.text == "PUSH" and line.confidence > 0.9 and 20 < line.height_px < 90
    assert np.abs(line.quad.mean(axis=0) - (185, 143)).max() < 15
    across, down = line.quad[1] - line.quad[0], line.quad[3] - line.quad[0]
    assert across[0] > abs(across[1]) and down[1] > abs(down[0])


@needs_reader
def test_the_real_reader_says_nothing_and_finds_nothing_in_empty_pictures(
    rapid: Reader, capfd: pytest.CaptureFixture[str]
) -> None:
    for size in ((300, 400), (32, 32), (33, 700), (5, 5), (0, 0)):
        assert rapid.read(np.full((*size, 3), 128, dtype=np.uint8)) == []
    assert capfd.readouterr() == ("", "")


@needs_reader
def test_the_real_reader_is_a_pure_function_of_the_picture(rapid: Reader) -> None:
    once, empty, again = rapid.read(sign()), rapid.read(np.zeros((64, 64, 3), dtype=np.uint8)), rapid.read(sign())
    assert empty == [] and [(a.text, a.confidence) for a in once] == [(b.text, b.confidence) for b in again]


@needs_reader
def test_the_real_reader_works_in_a_thread_of_its_own_and_leaves_none_spinning() -> None:
    real, why = open_reader(threads=2)
    assert real is not None, why
    found: list[Line] = []
    worker = threading.Thread(target=lambda: found.extend(real.read(sign())))
    worker.start()
    worker.join()
    assert [line.text for line in found] == ["PUSH"]
    before = time.process_time()
    time.sleep(0.2)
    assert time.process_time() - before < 0.1


@needs_reader
@pytest.mark.parametrize("picture", [np.zeros((64, 64), dtype=np.uint8), np.zeros((64, 64, 3), dtype=np.float32)])
def test_what_is_no_picture_is_refused_in_one_line(rapid: Reader, picture: U8) -> None:
    with pytest.raises(ReaderError, match="expected a picture") as caught:
        rapid.read(picture)
    assert "\n" not in str(caught.value)
