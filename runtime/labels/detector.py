"""What is in a picture: boxes with a class and a score. NanoDet, of 80 COCO classes, on ONNX Runtime.

``detect`` is a pure function of the picture and safe in a worker's thread. Knows no cameras, no scene and no time: one
picture is no evidence yet (a cat has been a "person" of 0.59), that is what ``votes`` is for. Pixels have integer
values at their centres, as everywhere: the left edge of a picture is at -0.5.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import cv2
import numpy as np
from numpy.typing import NDArray

from handrail.runtime.labels.names import COCO
from handrail.runtime.providers import Provider, open_session

U8 = NDArray[np.uint8]
F32 = NDArray[np.float32]

SIDE_PX = 416
STRIDES_PX = (8, 16, 32)
BINS = 11  # distances that the softmax weighs, 0 to 10 strides
LEAST_SCORE = 0.35
MOST_OVERLAP = 0.5  # intersection over union, of two boxes of one class
MOST_CANDIDATES = 400  # the best, before those that overlap are dropped


@dataclass(frozen=True, slots=True)
class Box:
    label: str  # one of ``names.COCO``
    score: float  # 0..1
    left: float  # px of the picture
    top: float
    right: float
    bottom: float


class Detector(Protocol):
    def detect(self, picture: U8) -> list[Box]:
        """[H, W, 3] RGB, upright. Best first."""
        ...


class NanoDet:
    """Raises MissingDependencyError when the graph can't be opened."""

    def __init__(self, graph: Path, threads: int = 1, provider: Provider = "cpu") -> None:
        self._session = open_session(graph, provider, threads=threads)

    def detect(self, picture: U8) -> list[Box]:
        scores, bins = self._session.run(["scores", "bins"], {"picture": squared(picture)[None]})
        height, width = picture.shape[:2]
        return decoded(scores[0], bins[0], width, height)


def squared(picture: U8) -> U8:
    """[416, 416, 3], in its proportions, black beside it: as the classes were learned: of real upright frames (9:16),
    stretched to a square, persons were missed."""
    scale, left, top = _place(picture.shape[1], picture.shape[0])
    size = (round(picture.shape[1] * scale), round(picture.shape[0] * scale))
    square = np.zeros((SIDE_PX, SIDE_PX, 3), np.uint8)
    how = cv2.INTER_AREA if scale < 1 else cv2.INTER_LINEAR
    square[top : top + size[1], left : left + size[0]] = cv2.resize(picture, size, interpolation=how)
    return square


def _place(width: int, height: int) -> tuple[float, int, int]:
    """Of a picture in the square: scale, left and top in pixels."""
    scale = SIDE_PX / max(width, height)
    return scale, (SIDE_PX - round(width * scale)) // 2, (SIDE_PX - round(height * scale)) // 2


def decoded(scores: F32, bins: F32, width: int, height: int) -> list[Box]:
    """[3549, 80] and [3549, 44], as ``export/weights/nanodet`` describes them, to boxes in a picture of that size."""
    cell, kind = np.nonzero(scores >= LEAST_SCORE)
    score = scores[cell, kind]
    best = np.argsort(-score, kind="stable")[:MOST_CANDIDATES]
    cell, kind, score = cell[best], kind[best], score[best]
    middle_px, stride_px = _cells()
    logits = bins[cell].reshape(-1, 4, BINS).astype(np.float64)
    weights = np.exp(logits - logits.max(axis=2, keepdims=True))
    reach = weights @ np.arange(BINS) / weights.sum(axis=2) * stride_px[cell, None]  # [N, 4] left, top, right, bottom
    corners = np.concatenate([middle_px[cell] - reach[:, :2], middle_px[cell] + reach[:, 2:]], axis=1)
    scale, left_px, top_px = _place(width, height)
    size = np.array([width, height, width, height], np.float64)
    corners = np.clip((corners - np.array([left_px, top_px, left_px, top_px])) / scale, 0.0, size) - 0.5
    kept = [i for k in np.unique(kind) for i in _apart(corners, np.flatnonzero(kind == k))]
    return [Box(COCO[kind[i]], float(score[i]), *(float(v) for v in corners[i])) for i in sorted(kept)]


def _cells() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Middle [3549, 2] (x, y) and stride [3549] of each cell, in pixels of the square, its left edge at 0."""
    middles, strides = [], []
    for stride in STRIDES_PX:
        n = SIDE_PX // stride
        y, x = np.mgrid[0:n, 0:n]
        middles.append((np.stack([x.ravel(), y.ravel()], axis=1) + 0.5) * stride)
        strides.append(np.full(n * n, float(stride)))
    return np.concatenate(middles), np.concatenate(strides)


def _apart(corners: NDArray[np.float64], best_first: NDArray[np.intp]) -> list[int]:
    """Of these boxes, those that no better one covers."""
    kept: list[int] = []
    left = best_first
    while len(left):
        first, left = left[0], left[1:]
        kept.append(int(first))
        left = left[_overlap(corners[first], corners[left]) <= MOST_OVERLAP]
    return kept


def _overlap(one: NDArray[np.float64], others: NDArray[np.float64]) -> NDArray[np.float64]:
    sides = np.minimum(one[2:], others[:, 2:]) - np.maximum(one[:2], others[:, :2])
    shared = np.prod(np.maximum(sides, 0.0), axis=1)
    union = np.prod(one[2:] - one[:2]) + np.prod(others[:, 2:] - others[:, :2], axis=1) - shared
    return np.asarray(shared / np.maximum(union, 1e-9))
