"""A simulated walk is drawn once, and whoever waits for it is told how far it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from handrail.streams.cache import cache_folder
from handrail.streams.drawn import tape_of
from handrail.streams.errors import OutputError, SourceError
from handrail.streams.samples import Sample
from handrail.streams.source import SourceInfo

URI = "world:3?kind=free&seconds=2"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("HANDRAIL_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return cache_folder("tapes")


def test_a_walk_is_drawn_once_and_its_samples_are_told_meanwhile(cache: Path) -> None:
    infos: list[SourceInfo] = []
    samples: list[Sample] = []
    path = tape_of(URI, infos.append, samples.append)
    assert path.parent == cache and [info.uri for info in infos] == [URI] and len(samples) > 100
    drawn = path.stat().st_mtime_ns
    assert tape_of(URI, infos.append, samples.append) == path
    assert path.stat().st_mtime_ns == drawn and len(infos) == 1


def test_drawing_that_is_broken_off_leaves_nothing(cache: Path) -> None:
    def interrupt(sample: Sample) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tape_of(URI, on_sample=interrupt)
    assert list(cache.iterdir()) == []


def test_what_is_no_walk_and_a_cache_without_room_are_one_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SourceError, match="kind"):
        tape_of("world:3?kind=nonsense")
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(OutputError, match="XDG_CACHE_HOME"):
        tape_of(URI)


def test_the_cache_can_be_put_anywhere_for_handrail_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cache_folder("models") == tmp_path / "handrail" / "models"
    monkeypatch.setenv("HANDRAIL_CACHE", str(tmp_path / "mine"))
    assert cache_folder("models") == tmp_path / "mine" / "models"
