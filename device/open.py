"""Voices and speakers by name, each failure one line that says what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from handrail.device.sound import Speaker, Voice
from handrail.streams.errors import ConfigError

SpeakerKind = Literal["wav", "card", "null"]
VoiceName = Literal["espeak", "pyttsx3"]


def open_voice(name: VoiceName = "espeak") -> Voice:
    """The engine starts with the first phrase. Raises MissingDependencyError, and ConfigError for an unknown name."""
    if name == "espeak":
        from handrail.device.espeak import EspeakVoice

        return EspeakVoice()
    if name == "pyttsx3":
        from handrail.device.pyttsx3_voice import Pyttsx3Voice

        return Pyttsx3Voice()
    raise ConfigError(f"voice: expected espeak or pyttsx3, got {name!r}")


def open_speaker(kind: SpeakerKind, path: Path | None = None, period_ms: float = 10.0) -> Speaker:
    """Inside a running loop. "wav" needs ``path``; "null" is a card that discards everything, in real time.

    Raises OutputError (the file), DeviceError (the card), MissingDependencyError, ConfigError (unknown kind, no path,
    a period outside 1..100 ms).
    """
    if not 1 <= period_ms <= 100:
        raise ConfigError(f"audio.period_ms: expected 1 to 100, got {period_ms:g}")
    if kind == "wav":
        from handrail.device.wav_speaker import WavSpeaker

        if path is None:
            raise ConfigError("speaker: expected a path for the WAV file, got none")
        return WavSpeaker(path, period_ms)
    if kind in ("card", "null"):
        from handrail.device.card_speaker import CardSpeaker

        return CardSpeaker(kind, period_ms)
    raise ConfigError(f"speaker: expected wav, card or null, got {kind!r}")
