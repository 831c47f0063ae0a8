"""Procedural surface texture: noise with the same energy at every size from 6 mm to 0.8 m, looked up without aliasing.

One periodic tile with its smaller versions (a mip pyramid) side by side in one image; two bilinear look-ups a pixel,
blended by the pixel's footprint, so that a surface looks the same from both cameras of a pair at any distance.
"""

from __future__ import annotations

import math
from functools import cache

import cv2
import numpy as np
from numpy.typing import NDArray

F32 = NDArray[np.float32]

TEXEL_M = 0.003
TILE = 1024  # texels: the pattern repeats after 3 m
LEVELS = 8  # the smallest version has 8 x 8 texels of 0.4 m
PAD = 2
ROW = 512  # coordinates are looked up in rows of so many


@cache
def _atlas() -> F32:
    """All levels stacked downward, each with a wrapped border."""
    rng = np.random.default_rng(20)
    frequency = np.hypot(*np.meshgrid(np.fft.fftfreq(TILE), np.fft.rfftfreq(TILE), indexing="ij"))
    # Amplitude 1/f: the same energy in every octave. Nothing above 1/4 texel: bilinear look-up would blur it.
    shape = np.where((frequency > 2.0 / TILE) & (frequency < 0.25), 1.0 / np.maximum(frequency, 1e-9), 0.0)
    tile = np.fft.irfft2(np.fft.rfft2(rng.normal(size=(TILE, TILE))) * shape).astype(np.float32)
    tile = np.clip(tile / tile.std(), -2.2, 2.2)
    rows = []
    for _ in range(LEVELS):
        padded = np.pad(tile, PAD, mode="wrap")
        rows.append(np.pad(padded, ((0, 0), (0, TILE + 2 * PAD - padded.shape[1]))))
        tile = tile.reshape(len(tile) // 2, 2, -1, 2).mean(axis=(1, 3))
    return np.concatenate(rows).astype(np.float32)


def noise(u_m: F32, v_m: F32, footprint_m: F32) -> F32:
    """[N] surface coordinates and size of what a pixel covers there -> [N] noise of unit deviation, less where fine
    detail averages out."""
    atlas = _atlas()
    level = np.maximum(footprint_m, np.float32(TEXEL_M))
    level *= np.float32(1.0 / TEXEL_M)
    level = np.asarray(cv2.log(level), dtype=np.float32).reshape(-1)
    level *= np.float32(1.0 / math.log(2.0))
    np.minimum(level, np.float32(LEVELS - 1.001), out=level)
    lower = np.floor(level)
    share = np.subtract(level, lower, out=level)
    shrink = ((127 - lower.astype(np.int32)) << 23).view(np.float32)  # 2 to the power of -lower, by its bits
    # Texel k of a level covers [k, k + 1) of its own size: its centre lies half a texel further. Level n begins, after
    # its border, at row PAD + 2 TILE (1 - shrink) + 2 PAD n.
    x, y = _in_tile(u_m), _in_tile(v_m)
    x *= shrink
    y -= np.float32(2 * TILE)
    y *= shrink
    row = np.multiply(lower, np.float32(2 * PAD), out=lower)
    row += np.float32(PAD + 2 * TILE - 0.5)
    fine = look_up(atlas, x + np.float32(PAD - 0.5), y + row)
    x *= np.float32(0.5)
    x += np.float32(PAD - 0.5)
    y *= np.float32(0.5)
    y += row
    y += np.float32(2 * PAD)
    coarse = look_up(atlas, x, y)
    coarse -= fine
    coarse *= share
    coarse += fine
    return coarse


def _in_tile(metres: F32) -> F32:
    """In texels from the beginning of the tile that the point lies in."""
    texels = metres * np.float32(1.0 / TEXEL_M)
    tile = texels * np.float32(1.0 / TILE)
    np.floor(tile, out=tile)
    tile *= np.float32(TILE)
    texels -= tile
    return texels


def look_up(image: F32, x: F32, y: F32) -> F32:
    """Bilinear, at [N] pixel coordinates. (OpenCV wants a picture of coordinates, none of its sides over 32767.)"""
    n = len(x)
    spare = -n % ROW
    if spare:
        x, y = np.pad(x, (0, spare)), np.pad(y, (0, spare))
    found = cv2.remap(image, x.reshape(-1, ROW), y.reshape(-1, ROW), cv2.INTER_LINEAR)
    return np.asarray(found, dtype=np.float32).ravel()[:n]
