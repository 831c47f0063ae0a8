"""Whether a word for an obstacle held long enough to be said: in 3 of the last 5 looks in which it was in the picture.

One look is no evidence: a photo of a cat was once a "person" of 0.59. A word that holds by low scores alone isn't said
either. Knows ids and names, no pictures and no time: a look is a look.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Container

from handrail.runtime.labels.matching import Looked, Named

LOOKS, ENOUGH = 5, 3
SURE_SCORE = 0.45  # on average over the looks in which it held


class Votes:
    def __init__(self) -> None:
        self._looks: dict[int, deque[Named | None]] = {}

    def look(self, looked: Looked) -> None:
        """Obstacles outside of the picture keep the looks that they have."""
        for id in looked.seen:
            self._looks.setdefault(id, deque(maxlen=LOOKS)).append(looked.named.get(id))

    def keep(self, ids: Container[int]) -> None:
        """Forget all others: a new track with an old place is a new thing."""
        self._looks = {id: looks for id, looks in self._looks.items() if id in ids}

    def reset(self) -> None:
        self._looks.clear()

    def labels(self) -> dict[int, str]:
        """Obstacle id -> what it is called now; those without a word aren't in it."""
        return {id: name for id, looks in self._looks.items() if (name := _held(looks)) is not None}


def _held(looks: deque[Named | None]) -> str | None:
    counts = Counter(named.name for named in looks if named is not None)
    name, times = counts.most_common(1)[0] if counts else ("", 0)
    if times < ENOUGH:
        return None
    total = sum(named.score for named in looks if named is not None and named.name == name)
    return name if total >= SURE_SCORE * times else None
