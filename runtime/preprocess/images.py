"""Frames as the vision graph takes them: resized, normalised, as planes or as flattened patches.

A bundle fixes the size of its frames, so the plan is a handful of constants from the manifest. Knows no cameras.
"""

from __future__ import annotations

from typing import Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from handrail.runtime.preprocess.resize import U8, Filter, resize

F32 = NDArray[np.float32]


class ImagePlan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a frame of any size becomes pixels. ``patches``: Qwen's layout, merged blocks of patches, each flattened."""

    height: int
    width: int
    filter: Filter
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    layout: Literal["planes", "patches"] = "planes"
    patch: int = 16
    merge: int = 2  # patches along the side of a block that becomes one token
    repeat: int = 2  # times in which a still frame is taken, for encoders of video

    @property
    def grid(self) -> tuple[int, int]:
        """Patches down and across."""
        return self.height // self.patch, self.width // self.patch

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one frame's pixels."""
        if self.layout == "planes":
            return 3, self.height, self.width
        down, across = self.grid
        return down * across, 3 * self.repeat * self.patch**2


def pixels(frames: U8, plan: ImagePlan) -> F32:
    """[F, H, W, 3] to [F, 3, height, width], or to [F, patches, 3 * repeat * patch * patch]."""
    resized = np.stack([resize(frame, plan.height, plan.width, plan.filter) for frame in frames])
    level = _levels(plan)
    planes = np.stack([level[c][resized[..., c]] for c in range(3)], axis=1)
    return planes if plan.layout == "planes" else _patches(planes, plan)


def _levels(plan: ImagePlan) -> list[F32]:
    """Per channel, the value of each of the 256 levels: the arithmetic of the processors, done once."""
    scaled = (np.arange(256) / 255).astype(np.float32)
    return [(scaled - np.float32(m)) / np.float32(s) for m, s in zip(plan.mean, plan.std, strict=True)]


def _patches(planes: F32, plan: ImagePlan) -> F32:
    down, across = plan.grid
    m, p = plan.merge, plan.patch
    blocks = planes.reshape(len(planes), 3, down // m, m, p, across // m, m, p)
    ordered = blocks.transpose(0, 2, 5, 3, 6, 1, 4, 7)  # frame, block row and column, row and column in it, C, y, x
    repeated = np.repeat(ordered[:, :, :, :, :, :, None], plan.repeat, axis=6)
    return repeated.reshape(len(planes), *plan.shape)
