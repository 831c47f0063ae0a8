"""Procedural surface texture: noise with the same energy at every size from 6 mm to 0.8 m, looked up without aliasing.

One periodic tile with its smaller versions (a mip pyramid) side by side in one image; two bilinear look-ups a pixel,
blended by the pixel's footprint, so that a surface looks the same from both cameras of a pair at any distance.
"""

from __future__ import annotations

from functools import cache

import cv2
import numpy as np
from numpy.typing import NDArray

F32 = NDArray[np.float32]

TEXEL_M = 0.003
TILE = 1024  # texels: the pattern repeats after 3 m
LEVELS = 8  # the smallest version has 8 x 8 texels of 0.4 m
PAD = 2


@cache
def _atlas() -> tuple[F32, F32]:
    """All levels stacked downward, each with a wrapped border; and the row at which each begins."""
    rng = np.random.default_rng(20)
    frequency = np.hypot(*np.meshgrid(np.fft.fftfreq(TILE), np.fft.rfftfreq(TILE), indexing="ij"))
    # Amplitude 1/f: the same energy in every octave. Nothing above 1/4 texel: bilinear look-up would blur it.
    shape = np.where((frequency > 2.0 / TILE) & (frequency < 0.25), 1.0 / np.maximum(frequency, 1e-9), 0.0)
    tile = np.fft.irfft2(np.fft.rfft2(rng.normal(size=(TILE, TILE))) * shape).astype(np.float32)
    tile = np.clip(tile / tile.std(), -2.2, 2.2)
    rows, start = [], []
    at = 0
    for _ in range(LEVELS):
        padded = np.pad(tile, PAD, mode="wrap")
        rows.append(np.pad(padded, ((0, 0), (0, TILE + 2 * PAD - padded.shape[1]))))
        start.append(at + PAD)
        at += len(padded)
        tile = tile.reshape(len(tile) // 2, 2, -1, 2).mean(axis=(1, 3))
    return np.concatenate(rows).astype(np.float32), np.array(start, dtype=np.float32)


def noise(u_m: F32, v_m: F32, footprint_m: F32) -> F32:
    """[N] surface coordinates and size of what a pixel covers there -> [N] noise of unit deviation, less where fine
    detail averages out."""
    atlas, start = _atlas()
    level = np.clip(np.log2(np.maximum(footprint_m, 1e-4) / TEXEL_M), 0.0, LEVELS - 1.001).astype(np.float32)
    lower = level.astype(np.int32)
    share = level - lower
    u = np.mod(u_m / TEXEL_M, TILE).astype(np.float32)
    v = np.mod(v_m / TEXEL_M, TILE).astype(np.float32)
    fine = _look_up(atlas, start, u, v, lower)
    coarse = _look_up(atlas, start, u, v, lower + 1)
    return np.asarray(fine + share * (coarse - fine))


def _look_up(atlas: F32, start: F32, u: F32, v: F32, level: NDArray[np.int32]) -> F32:
    shrink = np.ldexp(np.float32(1.0), -level).astype(np.float32)
    # Texel k of a level covers [k, k + 1) of its own size: its centre lies half a texel further.
    x = u * shrink + np.float32(PAD - 0.5)
    y = v * shrink + (start[level] - np.float32(0.5))
    return look_up(atlas, x, y)


def look_up(image: F32, x: F32, y: F32) -> F32:
    """Bilinear, at [N] pixel coordinates. (OpenCV wants a picture of coordinates, none of its sides over 32767.)"""
    n = len(x)
    shape = (-(-n // 512), 512)
    if n % 512:
        spare = np.zeros(shape[0] * 512 - n, dtype=np.float32)
        x, y = np.concatenate([x, spare]), np.concatenate([y, spare])
    found = cv2.remap(image, x.reshape(shape), y.reshape(shape), cv2.INTER_LINEAR)
    return np.asarray(found, dtype=np.float32).ravel()[:n]
