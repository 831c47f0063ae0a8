"""A detector that says what it was told to, for tests and for replays without weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from handrail.runtime.labels.detector import U8, Box

Answer = Sequence[Box] | Callable[[U8], Sequence[Box]]


class FakeDetector:
    """``answer``: the boxes of every picture, or a function of it. Keeps the shapes of what it was shown."""

    def __init__(self, answer: Answer = ()) -> None:
        self._answer = answer
        self.shown: list[tuple[int, ...]] = []

    def detect(self, picture: U8) -> list[Box]:
        self.shown.append(picture.shape)
        found = self._answer(picture) if callable(self._answer) else self._answer
        return sorted(found, key=lambda box: -box.score)
