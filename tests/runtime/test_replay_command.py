"""``handrail replay`` itself: what is done before and after the session."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

import pytest
from world_looks import CORRIDOR

from handrail.runtime import cli
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
