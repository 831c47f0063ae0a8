"""Lines of one picture put together as signs, in reading order: top to bottom, left to right.

Lines belong to one sign when they are about as tall and either stand side by side or one below the other with no more
than a line between. Works in the picture's pixels, turned so that most text is level. Knows nothing of what they say.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from handrail.runtime.scenetext.sights import Sight

F64 = NDArray[np.float64]

MOST = 40  # lines that are looked at; a page of print has more, and nobody wants it read in one go
TALLER = 2.5  # lines of one sign differ in height by no more
GAP_BESIDE, GAP_BELOW = 1.6, 0.9  # heights of the lower line, between edges


@dataclass(frozen=True, slots=True)
class Group:
    """The lines of one sign, in reading order."""

    sights: tuple[Sight, ...]

    @property
    def bearing_deg(self) -> float:
        """Of its middle."""
        return (self._edge(0, -1) + self._edge(0, 1)) / 2

    def off_deg(self, look_deg: tuple[float, float]) -> float:
        """How far a direction is from it: 0 at its middle, up to 1 on it, and its distance in degrees beyond that."""
        beside = [max(self._edge(a, -1) - look_deg[a], look_deg[a] - self._edge(a, 1), 0.0) for a in (0, 1)]
        middle = [(self._edge(a, -1) + self._edge(a, 1)) / 2 - look_deg[a] for a in (0, 1)]
        return math.hypot(*beside) + min(1.0, math.hypot(*middle) / 90)

    def _edge(self, axis: int, side: int) -> float:
        """Left (0, -1), right (0, 1), bottom (1, -1), top (1, 1); degrees."""
        if axis == 0:
            return side * max(side * s.bearing_deg + s.width_deg / 2 for s in self.sights)
        return side * max(side * s.elevation_deg + s.height_deg / 2 for s in self.sights)


@dataclass(frozen=True, slots=True)
class _Box:
    """A line's extent in the turned picture, px."""

    left: float
    right: float
    top: float
    bottom: float

    @property
    def height(self) -> float:
        return self.bottom - self.top

    @property
    def middle(self) -> float:
        return (self.top + self.bottom) / 2


def grouped(seen: Sequence[Sight]) -> list[Group]:
    """Every sight of up to ``MOST`` in one group. The order of ``seen`` doesn't matter."""
    kept = sorted(seen, key=lambda s: (-s.line.height_px, *s.line.quad[0], s.line.text))[:MOST]
    if not kept:
        return []
    boxes = _boxes(kept)
    parent = list(range(len(kept)))

    def root(i: int) -> int:
        while parent[i] != i:
            i = parent[i]
        return i

    for i, a in enumerate(boxes):
        for j in range(i):
            if _together(a, boxes[j]):
                parent[root(i)] = root(j)
    members: dict[int, list[int]] = {}
    for i in range(len(kept)):
        members.setdefault(root(i), []).append(i)
    return [Group(tuple(kept[i] for i in _in_order(of_one, boxes))) for of_one in members.values()]


def _boxes(seen: Sequence[Sight]) -> list[_Box]:
    quads = np.stack([s.line.quad for s in seen])  # [N, 4, 2]
    along = quads[:, 1] - quads[:, 0]
    longest = along[np.argmax(np.linalg.norm(along, axis=1))]
    angle = math.atan2(longest[1], longest[0])
    if abs(angle) > math.pi / 4:
        angle = 0.0
    c, s = math.cos(angle), math.sin(angle)
    turned = quads @ np.array([[c, -s], [s, c]])
    middles = turned[..., 1].mean(axis=1)
    half = np.array([s.line.height_px for s in seen]) / 2
    edges = turned[..., 0].min(axis=1), turned[..., 0].max(axis=1), middles - half, middles + half
    return [_Box(*map(float, of_one)) for of_one in zip(*edges, strict=True)]


def _together(a: _Box, b: _Box) -> bool:
    small, large = sorted((a.height, b.height))
    if large > TALLER * max(small, 1.0):
        return False
    beside = max(a.left, b.left) - min(a.right, b.right)  # negative: so far they overlap
    below = max(a.top, b.top) - min(a.bottom, b.bottom)
    if below < -0.5 * small:  # on one line
        return beside < GAP_BESIDE * small
    return below < GAP_BELOW * small and beside < 0


def _in_order(members: Sequence[int], boxes: Sequence[_Box]) -> list[int]:
    """Rows from the top; a line belongs to a row when its middle lies within the row's first line."""
    rows: list[list[int]] = []
    for i in sorted(members, key=lambda i: (boxes[i].middle, boxes[i].left)):
        if rows and boxes[i].middle < boxes[rows[-1][0]].middle + 0.5 * min(boxes[i].height, boxes[rows[-1][0]].height):
            rows[-1].append(i)
        else:
            rows.append([i])
    return [i for row in rows for i in sorted(row, key=lambda i: boxes[i].left)]
