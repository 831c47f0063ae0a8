"""Voices and speakers by name."""

import asyncio
import builtins
import importlib.util
from pathlib import Path
from typing import Any

import pytest

from handrail.device.open import open_speaker, open_voice
from handrail.streams.clock import run_virtual
from handrail.streams.errors import ConfigError, MissingDependencyError


def test_a_wav_speaker_and_a_null_card_open_by_name(tmp_path: Path) -> None:
    pytest.importorskip("miniaudio")

    async def wav() -> str:
        speaker = open_speaker("wav", tmp_path / "a.wav")
        await speaker.close()
        return speaker.name

    async def null() -> str:
        speaker = open_speaker("null")
        await speaker.close()
        return speaker.name

    assert run_virtual(wav()) == "wav"
    assert asyncio.run(null()) == "card (Null)"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("radio",), "expected wav, card or null, got 'radio'"),
        (("wav",), "expected a path"),
        (("null", None, 0.0), "expected 1 to 100, got 0"),
        (("null", None, float("nan")), "expected 1 to 100, got nan"),
    ],
)
def test_what_is_no_speaker_is_refused_with_what_is(arguments: tuple[Any, ...], message: str) -> None:
    async def main() -> None:
        open_speaker(*arguments)

    with pytest.raises(ConfigError, match=message):
        run_virtual(main())


def test_what_is_no_voice_is_refused_with_what_is() -> None:
    with pytest.raises(ConfigError, match="expected espeak or pyttsx3, got 'hal'"):
        open_voice("hal")  # type: ignore[arg-type]


@pytest.mark.parametrize(("name", "extra"), [("espeak", "speech"), ("pyttsx3", "pyttsx3")])
def test_a_voice_that_is_not_installed_names_the_command(
    name: Any, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda module: None)
    with pytest.raises(MissingDependencyError, match=rf"pip install 'handrail\[{extra}\]'"):
        open_voice(name)


def test_a_card_without_miniaudio_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "miniaudio":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    async def main() -> None:
        open_speaker("null")

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingDependencyError, match=r"pip install 'handrail\[speech\]'"):
        asyncio.run(main())
