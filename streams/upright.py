"""Pictures as the wearer sees them: the cameras of Gen 1 lie on their side. Pixels have integer values at centres."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

F64 = NDArray[np.float64]
U8 = NDArray[np.uint8]


def upright(pixels: U8, generation: int) -> U8:
    """[H, W] grey or [H, W, 3] as the sensor gives it -> [H, W, 3] as a person sees it."""
    turned = np.rot90(pixels, k=3) if generation == 1 else pixels
    return np.ascontiguousarray(np.repeat(turned[..., None], 3, axis=2) if turned.ndim == 2 else turned)


def sensor_px(upright_px: F64, generation: int, width_px: int) -> F64:
    """Pixels [..., 2] of an upright picture, ``width_px`` wide -> of the sensor's: the quarter turn back."""
    if generation != 1:
        return upright_px
    return np.stack([upright_px[..., 1], width_px - 1 - upright_px[..., 0]], axis=-1)
