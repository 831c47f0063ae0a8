"""The bench of signs counts what it says, draws the same signs every time, and needs no frames that aren't there."""

from __future__ import annotations

import argparse
import importlib.util
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

import msgspec
import numpy as np
import pytest

from handrail.benchmarks import signs
from handrail.benchmarks.sign_pictures import PHRASES, SIDE_PX, SPREAD_PX, sign_picture
from handrail.runtime.scenetext.quote import READABLE
from handrail.runtime.scenetext.reader import FakeReader, Line, line_of, open_reader
from handrail.runtime.scenetext.superres import second_look
from handrail.streams.errors import ConfigError

FRAMES = Path(__file__).parents[3] / "shared/data/egoblind_ra/frames"
needs_reader = pytest.mark.skipif(
    importlib.util.find_spec("rapidocr") is None or importlib.util.find_spec("onnxruntime") is None,
    reason="rapidocr or onnxruntime isn't installed: make setup-export",
)


def line(text: str, confidence: float = 0.95) -> Line:
    middle = SIDE_PX / 2
    return line_of(text, confidence, np.array([[0, 0], [90, 0], [90, 20], [0, 20]]) + middle)


def test_words_are_counted_as_bags_and_only_where_they_would_be_quoted() -> None:
    read = [line("way OUT"), line("Exit exit"), line("Toilets", READABLE - 0.01), line("hallo")]
    found = signs.counted(read, ["Way out", "EXIT", "Toilets"])
    assert (found.words, found.right, found.wrong) == (4, 3, 2)  # one exit too many, and hallo
    assert signs.counted(read, ["Toilets"], least=0.0).right == 1


def test_chinese_runs_and_numbers_are_words() -> None:
    assert signs.words_of("提示：禁止吸烟！ No.4") == ["提示", "禁止吸烟", "no", "4"]


def test_a_seed_draws_the_same_signs_and_another_seed_others() -> None:
    once, again, other = (sign_picture(seed, 10, "slanted") for seed in (3, 3, 4))
    assert (once.pixels == again.pixels).all() and once.words == again.words
    assert other.words != once.words


@pytest.mark.parametrize("condition", ["plain", "dim"])
def test_signs_stand_in_the_middle_of_the_picture(condition: str) -> None:
    drawn = sign_picture(1, 24, condition)
    assert drawn.pixels.shape == (SIDE_PX, SIDE_PX, 3) and set(drawn.words) <= {w for p in PHRASES for w in p.split()}
    edge = (SIDE_PX - SPREAD_PX) // 2 - 60
    sharp = np.abs(np.diff(drawn.pixels.astype(int), axis=1)).max(axis=2)
    assert np.percentile(sharp[edge:-edge, edge:-edge], 99) > 1.5 * np.percentile(sharp[:edge], 99)


def test_the_truth_about_frames_names_each_frame_once() -> None:
    text = files("handrail.benchmarks").joinpath("frames_truth.toml").read_text(encoding="utf-8")
    known = msgspec.toml.decode(text, type=signs.Truth).sign
    named = [name for sign in known for name in sign.frames]
    assert len(named) == len(set(named)) > 20
    assert {bool(sign.lines) for sign in known} == {True, False}


def test_a_reader_that_reads_nothing_falls_short(monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = bench(monkeypatch, FakeReader())
    assert not outcome.held and outcome.figures["drawn"][signs.WHOLE]["all"]["right"] == 0
    assert "no frames were read" in outcome.line


def test_a_reader_that_makes_things_up_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = bench(monkeypatch, FakeReader([line("Zwxy")]))
    assert outcome.figures["drawn"][signs.WHOLE]["all"]["wrong_a_picture"] == 1
    assert outcome.figures["drawn"][signs.WHOLE]["all"]["right"] == 0


def bench(monkeypatch: pytest.MonkeyPatch, fake: FakeReader) -> signs.Outcome:
    monkeypatch.setattr(signs, "open_reader", lambda threads: (fake, ""))
    monkeypatch.setattr(signs, "HEIGHTS_PX", (16,))
    monkeypatch.setattr(signs, "CONDITIONS", ("plain",))
    return signs.run(argparse.Namespace(count=1, seed=0, frames=Path("nowhere"), threads=1))


def test_frames_that_are_not_there_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"frame_0\.jpg isn't there"):
        signs.photographed(FakeReader(), tmp_path)


@needs_reader
def test_the_real_reader_reads_drawn_signs_and_more_of_small_ones_at_the_second_look() -> None:
    reader, why = open_reader()
    assert reader is not None, why

    def share(lines: Sequence[Line], words: tuple[str, ...]) -> float:
        found = signs.counted(lines, words)
        return found.right / found.words

    large, small = sign_picture(7, 16, "plain"), sign_picture(7, 8, "plain")
    assert share(reader.read(large.pixels), large.words) > 0.8
    first = reader.read(small.pixels)
    assert share(second_look(reader, small.pixels, first), small.words) > share(first, small.words) + 0.1


@needs_reader
@pytest.mark.skipif(not FRAMES.is_dir(), reason="no frames of EgoBlind-RA beside this checkout")
def test_the_real_reader_reads_the_large_words_of_photographed_signs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signs, "WINDOWS", ())
    reader, why = open_reader()
    assert reader is not None, why
    whole = signs.photographed(reader, FRAMES)[signs.WHOLE]
    assert whole["8 px"]["right"] > 0.9 and whole["nothing to read"]["wrong_a_picture"] < 0.3
