"""Points of one image found in another, with the way back as proof. Pixels; knows no geometry."""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

F64 = NDArray[np.float64]
U8 = NDArray[np.uint8]


def follow(before: U8, after: U8, points: F64, guess: F64, window_px: int = 15, back_px: float = 0.3) -> F64:
    """Lucas-Kanade from points [N, 2] to where they are in another image [N, 2]; NaN where the way back disagrees."""
    if len(points) == 0:
        return np.zeros((0, 2))
    at = points.astype(np.float32).reshape(-1, 1, 2)
    size, flag = (window_px, window_px), cv2.OPTFLOW_USE_INITIAL_FLOW
    there, ok, _ = cv2.calcOpticalFlowPyrLK(
        before, after, at, guess.astype(np.float32).reshape(-1, 1, 2), winSize=size, maxLevel=1, flags=flag
    )
    back, ok_back, _ = cv2.calcOpticalFlowPyrLK(
        after, before, there, at.copy(), winSize=size, maxLevel=1, flags=flag
    )
    good = (ok[:, 0] == 1) & (ok_back[:, 0] == 1) & (np.abs(back - at).max(axis=(1, 2)) < back_px)
    return np.where(good[:, None], np.asarray(there, dtype=np.float64)[:, 0], np.nan)
