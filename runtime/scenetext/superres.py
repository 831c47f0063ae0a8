"""A second look at small text: what the wearer looks at, once more and at full resolution.

Text is looked for in a picture brought down to ``reader.LONGEST_SIDE_PX``, so small text is lost before any letter is
read. A window around the gaze is read again as the camera gave it, or enlarged, and its lines replace those of the
first look in that window where they are the better reading.

Chosen by ``handrail bench signs`` (letters of 6 to 24 px, 72 pictures; benchmarks/results/signs.json). The window is
the gain: 58 % of the words become 83 % at the camera's own pixels. Enlarging it 1.25 and 1.5 times makes that 85 and
86 %, most at 8 and 10 px; an unsharp mask adds nothing on drawn signs and makes up fewer words on photographed ones
than Lanczos alone; back-projection and the mean of five pictures add nothing. In photographs of 320 px, which the
first look sees whole, no method reads more. Enlarging only the lines that the first look found gave 1 %: it is the
finding that fails. Knows no cameras and no time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import cv2
import numpy as np
from numpy.typing import NDArray

from handrail.runtime.scenetext.reader import LONGEST_SIDE_PX, Line, Reader, line_of

U8 = NDArray[np.uint8]
F64 = NDArray[np.float64]

FACTOR, METHOD = 1.5, "sharpened"
LEAST_VIEW = 1 / 3  # of the picture's longer side that the window shows
SHARE_OF_WINDOW = 0.5  # of a first look's line that must lie in the window for the second look to replace it
GUESS = 0.5  # confidence that counts for nothing when two readings are compared


def second_look(
    reader: Reader, picture: U8, first: Sequence[Line], at_px: tuple[float, float] | None = None,
    factor: float | None = None, method: str = METHOD,
) -> list[Line]:  # fmt: skip
    """The lines of both looks. Costs as much as the first; none where the whole picture was seen at full size before.

    ``first``: what ``reader.read(picture)`` gave. ``at_px``: where the wearer looks, else the middle of the picture.
    ``factor``: of enlargement, else ``factor_for`` the picture's size.
    """
    height, width = picture.shape[:2]
    factor = factor_for(max(width, height)) if factor is None else factor
    if factor == 1.0 and max(height, width) <= LONGEST_SIDE_PX:
        return list(first)
    x, y, w, h = window(width, height, at_px or (width / 2, height / 2), factor)
    seen = reader.read(enlarged(picture[y : y + h, x : x + w], factor, method))
    return merged(first, [_moved(line, factor, (x, y)) for line in seen], (x, y, w, h))


def factor_for(longest_px: int) -> float:
    """``FACTOR``, or less where its window would show less than a third of the view: in pictures above 1472 px."""
    return min(FACTOR, LONGEST_SIDE_PX / (LEAST_VIEW * longest_px))


def window(width: int, height: int, at_px: tuple[float, float], factor: float) -> tuple[int, int, int, int]:
    """x, y, width, height of what, enlarged, is as large as the reader takes without loss; inside the picture."""
    side = round(LONGEST_SIDE_PX / factor)
    w, h = min(side, width), min(side, height)
    x, y = (round(min(max(at - size / 2, 0), whole - size)) for at, size, whole in
            zip(at_px, (w, h), (width, height), strict=True))  # fmt: skip
    return x, y, w, h


def merged(first: Sequence[Line], second: Sequence[Line], inside: tuple[int, int, int, int]) -> list[Line]:
    """Lines of the second look, and those of the first that it neither overlaps nor reads better.

    Lines cut by the window's edge are left to the first look where it has them.
    """
    x, y, w, h = inside
    kept = list(second)
    for line in first:
        over = [o for o in kept if _share(o, _box(line)) > SHARE_OF_WINDOW]
        if _share(line, (x, y, x + w, y + h)) >= SHARE_OF_WINDOW:
            over = [o for o in kept if max(_share(o, _box(line)), _share(line, _box(o))) > SHARE_OF_WINDOW]
            if over and _worth(line) <= sum(map(_worth, over)):
                continue
        kept = [o for o in kept if all(o is not other for other in over)]
        kept.append(line)
    return kept


def enlarged(picture: U8, factor: float, method: str = METHOD) -> U8:
    if factor == 1.0:
        return np.ascontiguousarray(picture)
    if factor < 1.0:
        small = cv2.resize(picture, None, fx=factor, fy=factor, interpolation=cv2.INTER_AREA)
        return np.asarray(small, dtype=np.uint8)
    return METHODS[method](picture, factor)


def average(pictures: Sequence[U8]) -> U8:
    """Of one view taken several times, moved onto the first by whole-picture phase correlation: less noise."""
    first = _grey(pictures[0])
    total = pictures[0].astype(np.float32)
    for other in pictures[1:]:
        (dx, dy), _ = cv2.phaseCorrelate(first, _grey(other))
        back = np.array([[1, 0, -dx], [0, 1, -dy]])
        total += cv2.warpAffine(other, back, other.shape[1::-1], borderMode=cv2.BORDER_REPLICATE)
    return np.clip(np.rint(total / len(pictures)), 0, 255).astype(np.uint8)


def _lanczos(picture: U8, factor: float) -> U8:
    return np.asarray(cv2.resize(picture, None, fx=factor, fy=factor, interpolation=cv2.INTER_LANCZOS4), dtype=np.uint8)


def _linear(picture: U8, factor: float) -> U8:
    return np.asarray(cv2.resize(picture, None, fx=factor, fy=factor, interpolation=cv2.INTER_LINEAR), dtype=np.uint8)


def _sharpened(picture: U8, factor: float) -> U8:
    """Lanczos and an unsharp mask of the camera's own blur."""
    large = _lanczos(picture, factor)
    return np.asarray(cv2.addWeighted(large, 2.0, cv2.GaussianBlur(large, (0, 0), factor), -1.0, 0), dtype=np.uint8)


def _back_projected(picture: U8, factor: float) -> U8:
    """Irani and Peleg (1991) with one picture: brought down again it must be the picture."""
    large = _lanczos(picture, factor).astype(np.float32)
    size, small = large.shape[1::-1], picture.shape[1::-1]
    for _ in range(6):
        seen = cv2.resize(cv2.GaussianBlur(large, (0, 0), 0.6 * factor), small, interpolation=cv2.INTER_AREA)
        large += 0.8 * cv2.resize(picture - seen, size, interpolation=cv2.INTER_CUBIC)
    return np.clip(large, 0, 255).astype(np.uint8)


METHODS: dict[str, Callable[[U8, float], U8]] = {
    "lanczos": _lanczos, "linear": _linear, "sharpened": _sharpened, "back-projected": _back_projected,
}  # fmt: skip


def _moved(line: Line, factor: float, to_px: tuple[int, int]) -> Line:
    """From the enlarged window into the picture; pixel centres are whole numbers in both."""
    return line_of(line.text, line.confidence, (line.quad + 0.5) / factor - 0.5 + to_px)


def _worth(line: Line) -> float:
    return len(line.text) * (line.confidence - GUESS)


def _box(line: Line) -> tuple[float, float, float, float]:
    (left, top), (right, bottom) = line.quad.min(axis=0), line.quad.max(axis=0)
    return float(left), float(top), float(right), float(bottom)


def _share(line: Line, box: tuple[float, float, float, float]) -> float:
    """How much of the line's own box lies in another."""
    left, top, right, bottom = _box(line)
    across = max(0.0, min(right, box[2]) - max(left, box[0]))
    down = max(0.0, min(bottom, box[3]) - max(top, box[1]))
    return across * down / max((right - left) * (bottom - top), 1e-9)


def _grey(picture: U8) -> NDArray[np.float32]:
    return cv2.cvtColor(picture, cv2.COLOR_RGB2GRAY).astype(np.float32)
