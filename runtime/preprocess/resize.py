"""Resampling of 8-bit images with antialiasing, bit for bit as Pillow does it.

The processors that the vision encoders were trained behind resize with Pillow; a pixel off by one is a different model.
Separable: along rows first, then columns, each pass rounded to 8 bit, weights in fixed point with 22 bits. That is what
Pillow does with a square frame made another square, and all our frames are; of some others it begins with the columns,
and a value may then differ by one. Knows no models.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

U8 = NDArray[np.uint8]
I32 = NDArray[np.int32]

Filter = Literal["bilinear", "bicubic", "lanczos"]
BITS = 22


def resize(image: U8, height: int, width: int, filter_name: Filter) -> U8:
    """[H, W, C] to [height, width, C]."""
    if image.shape[1] != width:
        image = _along_rows(image, width, filter_name)
    if image.shape[0] != height:
        image = _along_rows(image.swapaxes(0, 1), height, filter_name).swapaxes(0, 1)
    return np.ascontiguousarray(image)


def _along_rows(image: U8, width: int, filter_name: Filter) -> U8:
    first, weights = _weights(image.shape[1], width, filter_name)
    last = image.shape[1] - 1
    total = np.full((image.shape[0], width, image.shape[2]), 1 << (BITS - 1), np.int32)
    for tap in range(weights.shape[1]):  # beyond the end of a row weights are zero
        total += image[:, np.minimum(first + tap, last)] * weights[:, tap, None]
    out: U8 = np.clip(total >> BITS, 0, 255).astype(np.uint8)
    return out


@lru_cache(maxsize=32)
def _weights(before: int, after: int, filter_name: Filter) -> tuple[NDArray[np.int64], I32]:
    """First source pixel [after] and weights [after, taps] of each target pixel."""
    kernel, reach = _FILTERS[filter_name]
    scale = before / after
    spread = max(scale, 1.0)
    support = reach * spread
    centre = (np.arange(after) + 0.5) * scale
    first = np.maximum((centre - support + 0.5).astype(np.int64), 0)
    end = np.minimum((centre + support + 0.5).astype(np.int64), before)
    at = first[:, None] + np.arange(int((end - first).max()))
    weights = np.where(at < end[:, None], kernel((at - centre[:, None] + 0.5) / spread), 0.0)
    weights /= weights.sum(axis=1, keepdims=True)
    return first, np.trunc(weights * (1 << BITS) + np.copysign(0.5, weights)).astype(np.int32)


F64 = NDArray[np.float64]


def _bilinear(x: F64) -> F64:
    return np.maximum(0.0, 1.0 - np.abs(x))


def _bicubic(x: F64) -> F64:
    """Keys' kernel with a = -0.5."""
    a, x = -0.5, np.abs(x)
    inner = ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0
    outer = (((x - 5.0) * x + 8.0) * x - 4.0) * a
    return np.where(x < 1.0, inner, np.where(x < 2.0, outer, 0.0))


def _lanczos(x: F64) -> F64:
    return np.where((x >= -3.0) & (x < 3.0), np.sinc(x) * np.sinc(x / 3.0), 0.0)


_FILTERS: dict[Filter, tuple[Callable[[F64], F64], float]] = {
    "bilinear": (_bilinear, 1.0),
    "bicubic": (_bicubic, 2.0),
    "lanczos": (_lanczos, 3.0),
}
