"""Settings, each with its unit, from one TOML file. An unknown key or wrong type is an error that names file and key.

    [wearer]
    speech_rate_wpm = 300
    units = "steps"
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from handrail.streams.errors import ConfigError


class Wearer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How the wearer wants to be told."""

    speech_rate_wpm: int = 240
    units: Literal["metres", "steps"] = "metres"
    step_length_m: float = 0.7
    directions: Literal["clock", "left-right"] = "clock"
    mono: bool = False  # one earbud: bearing is told by the earcon's shape, not by panning


class Audio(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    voice: Literal["espeak", "pyttsx3"] = "espeak"
    period_ms: float = 10.0  # of the sound device


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    wearer: Wearer = Wearer()
    audio: Audio = Audio()


def load_config(path: Path | None) -> Config:
    """Defaults when ``path`` is None. Raises ConfigError: file, key, what was expected."""
    if path is None:
        return Config()
    try:
        return msgspec.toml.decode(path.read_bytes(), type=Config)
    except OSError as e:
        raise ConfigError(f"{path}: can't be read ({e.strerror}); give a TOML file to --config") from e
    except (msgspec.DecodeError, UnicodeDecodeError) as e:
        raise ConfigError(f"{path}: {e}") from e
