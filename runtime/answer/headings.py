"""How the wearer stood and where the head pointed over the last seconds. Device time.

A picture is a second or two old when something is said about it, and its left is the left of then.
"""

from __future__ import annotations

from collections import deque

from handrail.runtime.scene import Scene, Wearer
from handrail.streams.clock import NS_PER_S

KEPT_NS = 5 * NS_PER_S


class Headings:
    def __init__(self) -> None:
        self._kept: deque[tuple[int, Wearer]] = deque()

    def saw(self, scene: Scene) -> None:
        """Every scene of the reflex, in order."""
        self._kept.append((scene.device_ns, scene.wearer))
        while self._kept[0][0] < scene.device_ns - KEPT_NS:
            self._kept.popleft()

    def at(self, device_ns: int) -> Wearer | None:
        """As of the scene nearest to that time; None before the first."""
        return min(self._kept, key=lambda kept: abs(kept[0] - device_ns), default=(0, None))[1]

    @property
    def first(self) -> Wearer | None:
        return self._kept[0][1] if self._kept else None

    @property
    def newest(self) -> Wearer | None:
        return self._kept[-1][1] if self._kept else None

    def seam(self) -> None:
        self._kept.clear()
