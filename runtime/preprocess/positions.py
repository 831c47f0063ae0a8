"""Where each token stands, and which it may look at: what the decoder graph takes beside embeddings.

Qwen3-VL counts in three axes (time, down, across) where frames are, and goes on after the largest; the others count
tokens. Masks are causal; Gemma 3 lets the tokens of one frame see each other both ways, and has layers that look back
only so far. Knows no weights.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

I64 = NDArray[np.int64]
F32 = NDArray[np.float32]
Mask = NDArray[np.bool_]

MASKED = float(np.finfo(np.float32).min)


@dataclass(frozen=True, slots=True)
class Positions:
    axes: I64  # [1, S] or [3, S]
    next: int  # of the first token after these


def positions(ids: I64, image_id: int, grid: tuple[int, int] | None) -> Positions:
    """Of a prompt's tokens [S]. ``grid``: tokens of a frame down and across where they count in three axes, else None.

    Raises ValueError where a run of image tokens isn't whole frames.
    """
    if grid is None:
        return Positions(np.arange(len(ids))[None], len(ids))
    size = grid[0] * grid[1]
    down, across = np.divmod(np.arange(size), grid[1])
    axes = np.empty((3, len(ids)), np.int64)
    at, position = 0, 0
    for start in _frame_starts(ids, image_id, size):
        axes[:, at:start] = position + np.arange(start - at)
        position += start - at
        axes[:, start : start + size] = position + np.stack([np.zeros(size, np.int64), down, across])
        position += max(grid)
        at = start + size
    axes[:, at:] = position + np.arange(len(ids) - at)
    return Positions(axes, position + len(ids) - at)


def frame_of(ids: I64, image_id: int) -> I64:
    """Which run of image tokens each token is in [S], -1: none. Runs are frames where something stands between them."""
    image = ids == image_id
    begins = image & ~np.concatenate([[False], image[:-1]])
    return np.where(image, np.cumsum(begins) - 1, -1)


def mask(frames: I64, new: int, *, both_ways: bool = False, window: int | None = None) -> F32:
    """What is added to the attention's scores [new, S]: 0 where the last ``new`` of S tokens may look, else ``MASKED``.

    ``frames``: ``frame_of`` all S tokens, used where ``both_ways``. ``window``: how many tokens back, itself included.
    """
    total = len(frames)
    query, key = np.arange(total - new, total)[:, None], np.arange(total)[None]
    seen: Mask = key <= query
    if both_ways:
        seen |= (frames[query] == frames[key]) & (frames[query] >= 0)
    if window is not None:
        seen &= key > query - window
    return np.where(seen, np.float32(0.0), np.float32(MASKED))


def _frame_starts(ids: I64, image_id: int, size: int) -> list[int]:
    at = np.flatnonzero(ids == image_id)
    if len(at) % size:
        raise ValueError(f"expected whole frames of {size} image tokens, found {len(at)} image tokens")
    frames = at.reshape(-1, size)
    if (frames[:, -1] - frames[:, 0] != size - 1).any():
        raise ValueError(f"expected the {size} image tokens of a frame in one piece")
    return [int(start) for start in frames[:, 0]]
