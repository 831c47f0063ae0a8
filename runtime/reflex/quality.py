"""Whether a stereo pair can be judged at all: dark, glaring, covered, blurred, frozen or mismatched frames can't.

Works on the native frames and on a quarter of their resolution, where sensor noise has averaged out, inside the circle
that every lens fills. A plain wall filling the view looks like a covered lens, and is as blind. Grey levels 0..255.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from handrail.runtime.scene import FrameQuality

U8 = NDArray[np.uint8]

SHRINK = 4
REMEMBERED = 16  # pairs whose fingerprints are kept: a stuck driver hands out its few buffers in turn
CIRCLE = 0.45  # of the shorter side
# Thresholds lie between real recordings (three) with simulated dusk and the same frames spoilt on purpose:
DARK_P95 = 16.0  # real rooms 104 and more, simulated dusk 28 and more
GLARE_SHARE = 0.6  # of pixels at 250 or more: 0.04 at most
LEAST_DETAIL = 4.0  # standard deviation of the Laplacian: 14 and more in real rooms, 8 in the world; a thumb 2.7
ONE_SIDED = 8.0  # detail of one camera over the other's: 2.3 at most
LEAST_SHARPNESS = 0.03  # 0.15 and more; blurred by 4 px 0.017 to 0.055, by 6 px 0.006 to 0.020


@dataclass(frozen=True, slots=True)
class _Look:
    mean: float
    contrast: float
    p95: float
    glare: float
    detail: float

    @property
    def sharpness(self) -> float:
        return (self.detail / max(self.contrast, 1e-6)) ** 2


Fingerprint = tuple[int, int]


def fingerprint(left: U8, right: U8) -> Fingerprint:
    """Of each camera's pixels. Noise makes every real frame new: the same fingerprint again is a frozen camera."""
    return zlib.crc32(left.tobytes()), zlib.crc32(right.tobytes())


def judge_frame(left: U8, right: U8, shape: tuple[int, int], before: Iterable[Fingerprint]) -> FrameQuality:
    """Judge native grey frames; ``shape`` is (height, width) as calibrated, ``before`` the last pairs' fingerprints.

    One frozen camera is enough: an old image against a new one gives depth that is false, and to the wrong side.

    Figures are the left frame's; the reason is the first that holds for either.
    """
    if left.shape != shape or right.shape != shape or left.dtype != np.uint8 or right.dtype != np.uint8:
        return FrameQuality(0.0, 0.0, 0.0, False, "mismatched")
    looks = _look(left), _look(right)
    reason = _reason(looks)
    new_left, new_right = fingerprint(left, right)
    if any(new_left == old_left or new_right == old_right for old_left, old_right in before):
        reason = "frozen"
    seen = looks[0]
    return FrameQuality(
        round(seen.mean, 2), round(seen.contrast, 2), round(seen.sharpness, 4), reason is None, reason
    )


def _reason(looks: tuple[_Look, _Look]) -> str | None:
    if any(look.p95 < DARK_P95 for look in looks):
        return "dark" if all(look.p95 < DARK_P95 for look in looks) else "covered"
    if any(look.glare > GLARE_SHARE for look in looks):
        return "saturated"
    if any(look.sharpness < LEAST_SHARPNESS for look in looks):
        return "blurred"
    details = [look.detail for look in looks]
    if min(details) < LEAST_DETAIL or max(details) > ONE_SIDED * min(details):
        return "covered"
    return None


def _look(image: U8) -> _Look:
    height, width = image.shape[0] // SHRINK, image.shape[1] // SHRINK
    small = np.asarray(cv2.resize(image, (width, height), interpolation=cv2.INTER_AREA), dtype=np.float32)
    y, x = np.ogrid[:height, :width]
    inside = (y - (height - 1) / 2) ** 2 + (x - (width - 1) / 2) ** 2 < (CIRCLE * min(height, width)) ** 2
    grey = small[inside]
    laplacian = np.asarray(cv2.Laplacian(small, cv2.CV_32F))[inside]
    return _Look(
        float(grey.mean()), float(grey.std()), float(np.percentile(grey, 95)), float((grey >= 250).mean()),
        float(laplacian.std()),
    )
