"""Declared stage times for replays on virtual time, from ``declared.toml`` beside this file."""

from __future__ import annotations

from importlib.resources import files

import msgspec


class Declared(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    reflex_ms: float
    render_ms: float
    encode_ms: float
    sensors_ms: float
    prefill_ms: float
    token_ms: float
    detect_ms: float
    read_ms: float


def load_declared() -> Declared:
    return msgspec.toml.decode((files(__package__) / "declared.toml").read_bytes(), type=Declared)
