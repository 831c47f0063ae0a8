"""Whether a stereo pair can be judged at all: dark, glaring, covered, blurred, frozen, swapped ones can't.

Works on the native frames and on a quarter of their resolution, where sensor noise has averaged out, inside the circle
that every lens fills. A plain wall filling the view looks like a covered lens, and is as blind. Grey levels 0..255.

``PairWatch`` compares the two with each other, rectified at an eighth of the resolution: whether left is left, and
whether a part of one lens is covered. Both give depth that is false while each picture looks good by itself.
"""

from __future__ import annotations

import functools
import math
import zlib
from collections.abc import Iterable
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from handrail.runtime.reflex.rectify import Rectifier
from handrail.runtime.scene import FrameQuality
from handrail.streams.cameras import Camera, Rig

F32 = NDArray[np.float32]
U8 = NDArray[np.uint8]
Mask = NDArray[np.bool_]

SHRINK = 4
REMEMBERED = 16  # pairs whose fingerprints are kept: a stuck driver hands out its few buffers in turn
CIRCLE = 0.45  # of the shorter side
# Thresholds lie between real recordings (three) with simulated dusk and the same frames spoilt on purpose:
DARK_P95 = 16.0  # real rooms 104 and more, simulated dusk 28 and more
GLARE_SHARE = 0.6  # of pixels at 250 or more: 0.04 at most
LEAST_DETAIL = 4.0  # standard deviation of the Laplacian: 14 and more in real rooms, 8 in the world; a thumb 2.7
ONE_SIDED = 8.0  # detail of one camera over the other's: 2.3 at most
LEAST_SHARPNESS = 0.03  # 0.15 and more; blurred by 4 px 0.017 to 0.055, by 6 px 0.006 to 0.020

COARSE = 8  # of the rectified pair: two looks at it take 2 ms
COARSE_DISPARITIES = 10  # px of that: from 0.42 m on
COARSE_PATCH = 5
SAME_TEXTURE = 0.8  # correlation
LEAST_TEXTURE = 1.0  # grey levels^2
# Share of the textured view that shows the same texture in both: 0.34 and more in three real rooms, 0.4 in the world,
# 0.2 at dusk, 0.10 close to a plain wall; the wrong way round, whose views lie 72 to 152 degrees apart, 0.03 at most.
MATCHED, UNMATCHED = 0.2, 0.06
# Share of the view that both lenses see where one of them shows a fifth of the other's detail at most: 0.03 by itself
# in real rooms, 0.09 before plain walls; a thumb or a strap over the inner half of a lens 0.2 and more, by good light.
# What is covered where the other lens doesn't see either costs no depth and is not noticed.
FADED, LEAST_DETAIL_BESIDE, HALF_COVERED = 0.2, 2.0, 0.15
CHECK_EVERY = 5  # looks


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
    """Of every fourth row of each camera. Noise makes every real frame new: the same again is a frozen camera."""
    return zlib.crc32(left[::SHRINK].tobytes()), zlib.crc32(right[::SHRINK].tobytes())


def judge_frame(
    left: U8, right: U8, shape: tuple[int, int], before: Iterable[Fingerprint], own: Fingerprint | None = None
) -> FrameQuality:
    """Judge native grey frames; ``shape`` is (height, width) as calibrated, ``before`` the last pairs' fingerprints.

    ``own``: the pair's fingerprint, where the caller has it.

    One frozen camera is enough: an old image against a new one gives depth that is false, and to the wrong side.

    Figures are the left frame's; the reason is the first that holds for either.
    """
    if left.shape != shape or right.shape != shape or left.dtype != np.uint8 or right.dtype != np.uint8:
        return FrameQuality(0.0, 0.0, 0.0, False, "mismatched")
    looks = _look(left), _look(right)
    reason = _reason(looks)
    new_left, new_right = own or fingerprint(left, right)
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
    inside = _circle(height, width)
    grey = small[inside]
    laplacian = np.asarray(cv2.Laplacian(small, cv2.CV_32F))[inside]
    return _Look(
        float(grey.mean()), float(grey.std()), float(np.percentile(grey, 95)), float((grey >= 250).mean()),
        float(laplacian.std()),
    )


class PairWatch:
    """Why the two pictures of a rig don't belong together: "swapped", "covered" or None, as of the last checks.

    Checked every half second, and with the next look when the answer is another: only two alike change it, and a pair
    in doubt counts as unusable until then. What shows too little to tell the sides apart (a plain wall) leaves them as
    they were.
    """

    def __init__(self, rig: Rig, rectifier: Rectifier) -> None:
        left, right = (rig.cameras[label] for label in rectifier.labels)
        self._left, self._right = _Coarse(left, rectifier), _Coarse(right, rectifier)
        self.reset()

    def reset(self) -> None:
        """A seam: what was found may be of other glasses."""
        self._looks = 0
        self._reason: str | None = None
        self._doubt: tuple[str | None] | None = None  # another answer, given once

    def judge(self, left: U8, right: U8) -> str | None:
        """Native grey frames that are usable one by one."""
        if self._looks % CHECK_EVERY == 0 or self._doubt is not None:
            found = self._check(left, right)
            if found == self._reason:
                self._doubt = None
            elif self._doubt == (found,):
                self._reason, self._doubt = found, None
            else:
                self._doubt = (found,)
        self._looks += 1
        return self._reason or (self._doubt[0] if self._doubt is not None else None)

    def _check(self, left: U8, right: U8) -> str | None:
        a, b = self._left.look(left), self._right.look(right)
        as_is, swapped = _matched(a, b), self._reason == "swapped"
        if as_is < UNMATCHED:
            other = _matched(self._left.look(right), self._right.look(left))
            swapped = other > MATCHED or (swapped and other > as_is)
        elif as_is > MATCHED:
            swapped = False
        if swapped:
            return "swapped"
        return "covered" if _one_sided(a, b) > HALF_COVERED else None


@dataclass(frozen=True, slots=True)
class _View:
    """One camera's rectified view at an eighth: [h, w] each."""

    detail: F32  # without shading
    energy: F32  # mean square of detail around each pixel
    seen: Mask  # inside the lens


class _Coarse:
    """Rectifies one camera's frames. The bend of the glasses is less than a pixel of this and left out."""

    def __init__(self, camera: Camera, rectifier: Rectifier) -> None:
        phi, tan = np.meshgrid(rectifier.phi_rad[::COARSE], rectifier.canvas_tan[::COARSE], indexing="ij")
        rays = np.stack([tan, -np.sin(phi), np.cos(phi)], axis=-1)
        rays = rays @ (camera.T_device_camera[:3, :3].T @ rectifier.T_device_rect[:3, :3]).T
        px = camera.model.project(rays)
        # Far behind the lens the distortion polynomial folds back into the frame, as in ``rectify``.
        ahead = rays[..., 2] > math.cos(math.radians(100.0)) * np.linalg.norm(rays, axis=-1)
        seen = (camera.sees(px) & ahead).astype(np.uint8)
        self._seen: Mask = cv2.erode(seen, np.ones((3, 3), np.uint8)).astype(bool)
        px = np.clip(px, -1000.0, 10_000.0).astype(np.float32)
        self._maps = cv2.convertMaps(px[..., 0], px[..., 1], cv2.CV_16SC2)

    def look(self, image: U8) -> _View:
        smooth = cv2.blur(image, (COARSE, COARSE))
        grey = np.asarray(cv2.remap(smooth, self._maps[0], self._maps[1], cv2.INTER_LINEAR), dtype=np.float32)
        detail = np.asarray(grey - cv2.blur(grey, (COARSE_PATCH, COARSE_PATCH)), dtype=np.float32)
        return _View(detail, _around(detail * detail), self._seen)


def _around(x: F32) -> F32:
    return np.asarray(cv2.blur(x, (COARSE_PATCH, COARSE_PATCH)), dtype=np.float32)


def _matched(left: _View, right: _View) -> float:
    """Share of the left view's textured pixels that show the right view's texture at some disparity; 0 if none is."""
    width = left.detail.shape[1]
    near = slice(COARSE_DISPARITIES, width)
    detail, energy = left.detail[:, near], left.energy[:, near]
    best = np.full(detail.shape, -1.0, dtype=np.float32)
    for disparity in range(COARSE_DISPARITIES + 1):
        there = slice(COARSE_DISPARITIES - disparity, width - disparity)
        both = np.sqrt(np.maximum(energy * right.energy[:, there], LEAST_TEXTURE**2))
        alike = _around(detail * right.detail[:, there]) / both
        alike[~right.seen[:, there]] = -1.0
        np.maximum(best, alike, out=best)
    textured = left.seen[:, near] & (energy > LEAST_TEXTURE)
    return float((best[textured] > SAME_TEXTURE).mean()) if textured.any() else 0.0


def _one_sided(left: _View, right: _View) -> float:
    """The larger of both lenses' shares of the common view that lack the detail which the other shows there, wherever
    within the disparities it is looked for."""
    both = left.seen & right.seen
    if not both.any():
        return 0.0
    reach = np.ones((1, COARSE_DISPARITIES + 1), np.uint8)

    def faded(one: _View, other: _View, anchor: int) -> float:
        least = np.asarray(cv2.erode(np.where(other.seen, other.energy, np.float32(1e9)), reach, anchor=(anchor, 0)))
        shown = (least > LEAST_DETAIL_BESIDE**2) & (least < 1e9)
        return float((both & shown & (one.energy < FADED**2 * least)).sum() / both.sum())

    return max(faded(left, right, COARSE_DISPARITIES), faded(right, left, 0))


@functools.cache
def _circle(height: int, width: int) -> Mask:
    y, x = np.ogrid[:height, :width]
    inside: Mask = (y - (height - 1) / 2) ** 2 + (x - (width - 1) / 2) ** 2 < (CIRCLE * min(height, width)) ** 2
    return inside
