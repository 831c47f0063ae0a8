"""Settings, each with its unit and range, from one TOML file.

    [wearer]
    speech_rate_wpm = 300
    units = "steps"

Whatever is wrong with the file ends in one ConfigError that names the file, the key, what was expected and what came.
"""

from __future__ import annotations

import difflib
import re
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import inspect

from handrail.streams.errors import ConfigError

_LARGEST_FILE = 1 << 20  # bytes; a settings file has a few hundred


class Wearer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How the wearer wants to be told."""

    speech_rate_wpm: Annotated[int, msgspec.Meta(ge=80, le=450)] = 240  # what espeak-ng can speak
    units: Literal["metres", "steps"] = "metres"
    step_length_m: Annotated[float, msgspec.Meta(ge=0.3, le=1.2)] = 0.7
    directions: Literal["clock", "left-right"] = "clock"
    mono: bool = False  # one earbud: bearing is told by the earcon's shape, not by panning
    aid: Literal["cane", "guide-dog", "none"] = "cane"  # what already finds the ground for the wearer
    detail: Literal["brief", "normal", "full"] = "normal"  # of answers, and how often a change is described unasked


class Audio(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    voice: Literal["espeak", "pyttsx3"] = "espeak"
    period_ms: Annotated[float, msgspec.Meta(ge=1.0, le=100.0)] = 5.0  # of the sound device


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    wearer: Wearer = Wearer()
    audio: Audio = Audio()


def load_config(path: Path | None) -> Config:
    """Defaults when ``path`` is None. Raises ConfigError: file, key, what was expected, what came."""
    if path is None:
        return Config()
    try:
        with path.open("rb") as file:
            text = file.read(_LARGEST_FILE + 1)
    except (OSError, ValueError) as e:  # ValueError: a NUL in the name
        reason = e.strerror if isinstance(e, OSError) else e
        raise ConfigError(f"{path}: can't be read ({reason}); give a TOML file to --config") from e
    if len(text) > _LARGEST_FILE:
        raise ConfigError(f"{path}: expected a settings file of at most {_LARGEST_FILE} bytes, got more")
    try:
        table = msgspec.toml.decode(text)
    except (ValueError, RecursionError) as e:
        raise ConfigError(f"{path}: not a TOML file: {e}; expected lines like speech_rate_wpm = 300") from e
    try:
        return msgspec.convert(table, Config)
    except msgspec.ValidationError as e:
        raise ConfigError(f"{path}: {_explain(str(e), table)}") from e


def _explain(message: str, table: dict[str, Any]) -> str:
    """msgspec's message with the key as it is written in the file, all that would have been right, and what came."""
    found = re.search(r" - at `\$\.?(.*)`$", message)
    keys = [key for key in (found[1].split(".") if found else []) if key]
    expected: inspect.Type = inspect.type_info(Config)
    value: Any = table
    for key in keys:
        assert isinstance(expected, inspect.StructType)  # settings are tables in tables: no lists, no free keys
        expected = next(f.type for f in expected.fields if f.encode_name == key)
        value = value[key]
    if message.startswith("Object contains unknown field"):
        assert isinstance(expected, inspect.StructType)
        known = {f.encode_name: f.type for f in expected.fields}
        unknown = next(key for key in value if key not in known)
        name = ".".join([*keys, unknown])
        if close := difflib.get_close_matches(unknown, known, n=1):
            return f"unknown key {name}; did you mean {close[0]} ({_describe(known[close[0]])})?"
        return f"unknown key {name}; expected one of {', '.join(known)}"
    return f"{'.'.join(keys)}: expected {_describe(expected)}, got {_short(value)}"


def _describe(expected: inspect.Type) -> str:
    match expected:
        case inspect.IntType(ge=low, le=high) | inspect.FloatType(ge=low, le=high):
            kind = "a whole number" if isinstance(expected, inspect.IntType) else "a number"
            return kind if low is None and high is None else f"{kind} from {low:g} to {high:g}"
        case inspect.BoolType():
            return "true or false"
        case inspect.LiteralType(values=values):
            return "one of " + ", ".join(f'"{v}"' for v in values)
        case inspect.StructType(fields=fields):
            return f"a table with the keys {', '.join(f.encode_name for f in fields)}"
        case _:
            return type(expected).__name__.removesuffix("Type").lower()


def _short(value: Any) -> str:
    match value:
        case bool():
            return str(value).lower()
        case dict():
            return "a table"
        case list():
            return "a list"
        case str():
            return f'"{value[:40]}"'
        case _:
            return str(value)[:40]
