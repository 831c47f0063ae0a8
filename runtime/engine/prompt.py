"""A prompt laid out for the decoder: ids, embeddings with frames and sensors in place, positions, and a key for each
token that says what it *is*, so that the part which is in the cache already can be told.

Two prompts that begin with the same keys have the same keys and values in the decoder up to there. A text token's key
is its id; a token of a frame has the frame's serial number, one of the sensors that of the reading.
Knows no graphs and no files.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from handrail.runtime.preprocess import positions
from handrail.runtime.preprocess.positions import frame_of
from handrail.streams.errors import InputError

F32 = NDArray[np.float32]
I64 = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Features:
    """A frame, encoded."""

    serial: int  # no other frame or reading of the session has it
    tokens: F32  # [T, d]
    deepstack: F32 | None = None  # [K, T, d]


@dataclass(frozen=True, slots=True)
class Sensed:
    """Sensors, fused."""

    serial: int
    tokens: F32  # [n, d]


@dataclass(frozen=True, slots=True)
class Laid:
    """S tokens."""

    ids: I64  # [S]
    keys: I64  # [S]
    embeds: F32  # [S, d]
    places: I64  # [1 or 3, S]
    frames: I64  # [S]: which frame, -1 none
    deepstack: F32 | None  # [K, S, d]
    next_place: int  # of the first token of the answer

    def __len__(self) -> int:
        return len(self.ids)


def lay(
    ids: I64, frames: Sequence[Features], sensed: Sequence[Sensed], *, embed: Callable[[I64], F32], image_id: int,
    sensor_id: int, grid: tuple[int, int] | None,
) -> Laid:  # fmt: skip
    """``ids`` with a place for every token of ``frames`` and ``sensed``, in their order. Raises InputError where these
    are more or fewer."""
    embeds, keys = embed(ids).copy(), ids.copy()
    image, sensor = np.flatnonzero(ids == image_id), np.flatnonzero(ids == sensor_id)
    _fill(embeds, keys, image, [(f.serial, f.tokens) for f in frames], "image")
    _fill(embeds, keys, sensor, [(s.serial, s.tokens) for s in sensed], "sensor")
    deepstack = None
    if frames and frames[0].deepstack is not None:
        layers = [f.deepstack for f in frames if f.deepstack is not None]
        deepstack = np.zeros((len(layers[0]), *embeds.shape), np.float32)
        deepstack[:, image] = np.concatenate(layers, axis=1)
    try:
        place = positions(ids, image_id, grid)
    except ValueError as e:
        raise InputError(f"the prompt can't be laid out: {e}") from e
    return Laid(ids, keys, embeds, place.axes, frame_of(ids, image_id), deepstack, place.next)


def shared(held: I64, wanted: I64) -> int:
    """How many keys both begin with."""
    length = min(len(held), len(wanted))
    different = np.flatnonzero(held[:length] != wanted[:length])
    return int(different[0]) if len(different) else length


def pieces(frames: I64, start: int, size: int, *, whole_frames: bool) -> list[slice]:
    """[start, S) in pieces of at most ``size`` tokens; where frames must be whole, one that would be cut begins the
    next piece (a frame larger than that is a piece by itself)."""
    found, total = [], len(frames)
    while start < total:
        end = min(start + size, total)
        if whole_frames and end < total and frames[end] >= 0 and frames[end] == frames[end - 1]:
            first, last = _span(frames, end)
            end = first if first > start else last
        found.append(slice(start, end))
        start = end
    return found


def _span(frames: I64, at: int) -> tuple[int, int]:
    """Where the frame of a token begins and ends."""
    of_it = np.flatnonzero(frames == frames[at])
    return int(of_it[0]), int(of_it[-1]) + 1


def _fill(embeds: F32, keys: I64, at: I64, parts: Sequence[tuple[int, F32]], what: str) -> None:
    count = sum(len(tokens) for _, tokens in parts)
    if count != len(at):
        raise InputError(f"the prompt has {len(at)} places for {what} tokens, there are {count}")
    if parts:
        embeds[at] = np.concatenate([tokens for _, tokens in parts])
        keys[at] = np.concatenate([np.full(len(tokens), -1 - serial) for serial, tokens in parts])
