"""Resampling of 8-bit images with antialiasing, by Pillow: the processors that the vision encoders were trained behind
resize with it, and a pixel off by one is a different model. Knows no models.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image

U8 = NDArray[np.uint8]

Filter = Literal["bilinear", "bicubic", "lanczos"]
_FILTERS: dict[Filter, Image.Resampling] = {
    "bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC, "lanczos": Image.Resampling.LANCZOS,
}  # fmt: skip


def resize(image: U8, height: int, width: int, filter_name: Filter) -> U8:
    """[H, W, 3] RGB to [height, width, 3]."""
    resized = Image.fromarray(np.ascontiguousarray(image)).resize((width, height), _FILTERS[filter_name])
    return np.asarray(resized)
