"""``handrail replay`` itself: what is done before and after the session."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

import pytest
from world_looks import CORRIDOR

from handrail.runtime import cli
from handrail.runtime.replay_command import timed
from handrail.streams.errors import SourceError


@pytest.fixture
def replayed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is replayed; each replay ends at once."""
    uris: list[str] = []

    def replay(uri: str, **_: object) -> NoReturn:
        uris.append(uri)
        raise SourceError("enough of it")

    monkeypatch.setattr("handrail.runtime.replay.replay", replay)
    monkeypatch.setattr("handrail.streams.drawn.tape_of", lambda uri, *_: Path(f"kept-{uri[6:]}.tape"))
    return uris


@pytest.mark.parametrize(
    ("words", "uri"),
    [
        (["world:7", "--speed", "real"], "tape:kept-7.tape"),
        (["world:7"], "world:7"),
        (["vrs:walk.vrs", "--speed", "real"], "vrs:walk.vrs"),
    ],
)
def test_only_a_simulated_walk_in_real_time_is_drawn_first(
    replayed: list[str], tmp_path: Path, words: list[str], uri: str
) -> None:
    assert cli.main(["replay", *words, "--out", str(tmp_path / "out")]) == 2
    assert replayed == [uri]


@pytest.mark.skipif(not CORRIDOR.exists(), reason="real recordings (../shared/data/aria) aren't here")
def test_a_recording_cut_before_its_first_pair_is_refused_for_the_cut(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "cut.vrs").write_bytes(CORRIDOR.read_bytes()[:200_000])
    assert cli.main(["replay", f"vrs:{tmp_path / 'cut.vrs'}", "--out", str(tmp_path / "out")]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert "no forward SLAM pair" in line and "beyond the end of the file" in line


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--question", "what is ahead?"], "expected TEXT@SECONDS"),
        (["--question", "@3"], "expected TEXT@SECONDS"),
        (["--question", "what?@soon"], "expected TEXT@SECONDS"),
        (["--question", "what?@-1"], "expected TEXT@SECONDS"),
        (["--question", "what?@nan"], "expected TEXT@SECONDS"),
        (["--goal", "  @1"], "expected TEXT@SECONDS"),
        (["--question", "what?@1", "--sampling", "first"], "add --model BUNDLE"),
        (["--typed"], "add --speed real"),
        (["--provider", "cuda"], "add --model BUNDLE"),
        (["--model", "nowhere"], "expected a bundle, found nothing"),
        (["--ocr", "always"], "'always' is not one of off, auto, on"),
        (["--question", "what?@1000", "--ocr", "off"], "ends at"),
    ],
)
def test_what_can_t_be_asked_is_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, words: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    try:
        code = cli.main(["replay", "world:7?seconds=2", "--out", str(tmp_path / "out"), *words])
    except SystemExit as e:  # argparse's own
        code = int(e.code or 0)
    assert code == 2
    assert said in capsys.readouterr().err.strip().splitlines()[-1]


def test_an_at_in_the_question_is_part_of_it() -> None:
    assert timed("who wrote me@home@2.5") == ("who wrote me@home", 2.5)
