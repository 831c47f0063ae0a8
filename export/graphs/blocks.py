"""Matrices in blocks of few bits, as MatMulNBits of ONNX Runtime holds them: numpy alone, a part of a matrix at a time.

A block is a run of inputs of one output; it has a scale and, where asked for, a zero point. Of a few scales the one is
taken with which the block is nearest to what it was (least squares): in 4 bits that is worth a lot.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

F32 = NDArray[np.float32]
U8 = NDArray[np.uint8]

MIDDLE, TOP = 128, 127  # of eight bits
ROWS = 2048  # of a matrix at a time
SHRINK = {4: (1.0, 0.97, 0.94, 0.91, 0.88, 0.85, 0.8, 0.75), 8: (1.0,)}  # of a block's range, tried


@dataclass(frozen=True, slots=True)
class Blocked:
    values: U8  # [N, blocks, block * bits / 8], low half first
    scales: F32  # [N, blocks]
    zeros: U8 | None  # [N, blocks * bits / 8]; None: the middle of the range


def blocked(weight: F32, bits: int, block: int, *, zero_points: bool) -> Blocked:
    """weight [N, K]; the last block is filled up with zeros."""
    parts = [_part(weight[i : i + ROWS], bits, block, zero_points) for i in range(0, len(weight), ROWS)]
    values, scales, zeros = (np.concatenate(p) for p in zip(*parts, strict=True))
    return Blocked(_packed(values, bits), scales, _packed(zeros, bits) if zero_points else None)


def unblocked(weight: F32, bits: int, block: int, zero_points: bool) -> F32:
    """What is left of a matrix [N, K] in blocks."""
    out = np.empty_like(weight)
    for i in range(0, len(weight), ROWS):
        values, scales, zeros = _part(weight[i : i + ROWS], bits, block, zero_points)
        part = (values.astype(np.float32) - zeros[..., None].astype(np.float32)) * scales[..., None]
        out[i : i + ROWS] = part.reshape(len(part), -1)[:, : weight.shape[1]]
    return out


def in_eight_bits(weight: F32) -> tuple[NDArray[np.int8], F32]:
    """A matrix [N, K] as [K, N] whole numbers, with a scale [N] an output."""
    scales = np.maximum(np.abs(weight).max(-1), 1e-12) / TOP
    return np.ascontiguousarray(np.round(weight / scales[:, None]).astype(np.int8).T), scales.astype(np.float32)


def _part(weight: F32, bits: int, block: int, zero_points: bool) -> tuple[U8, F32, U8]:
    n, k = weight.shape
    count = -(-k // block)
    filled = np.zeros((n, count * block), np.float32)
    filled[:, :k] = weight
    x = filled.reshape(n, count, block)
    top, middle = 2**bits - 1, 2 ** (bits - 1)
    low, high = np.minimum(x.min(-1), 0.0), np.maximum(x.max(-1), 0.0)
    best: tuple[Any, Any, Any] | None = None
    least = np.full((n, count), np.inf, np.float32)
    for shrink in SHRINK[bits]:
        if zero_points:
            scale = np.maximum((high - low) * shrink / top, 1e-12)
            zero = np.clip(np.round(-low * shrink / scale), 0, top)
        else:
            widest = np.where(-low > high, low, high)  # to the end that has one step more
            scale = np.where(widest == 0, 1e-12, widest * shrink / -middle)
            zero = np.full_like(scale, middle)
        q = np.clip(np.round(x / scale[..., None]) + zero[..., None], 0, top)
        off = np.square((q - zero[..., None]) * scale[..., None] - x).sum(-1)
        if best is None:
            best, least = (q, scale, zero), off
        else:
            better = off < least
            least = np.where(better, off, least)
            best = (
                np.where(better[..., None], q, best[0]), np.where(better, scale, best[1]),
                np.where(better, zero, best[2]),
            )  # fmt: skip
    assert best is not None
    return best[0].astype(np.uint8), best[1].astype(np.float32), best[2].astype(np.uint8)


def _packed(values: U8, bits: int) -> U8:
    """Along the last axis; an odd one is filled up."""
    if bits == 8:
        return values
    if values.shape[-1] % 2:
        values = np.concatenate([values, np.zeros((*values.shape[:-1], 1), np.uint8)], axis=-1)
    packed: U8 = (values[..., ::2] | (values[..., 1::2] << 4)).astype(np.uint8)
    return packed
