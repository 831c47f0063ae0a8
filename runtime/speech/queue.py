"""The bounded queue of what waits to be said: most urgent first, oldest first among equals.

Overflow policy: the least urgent goes, and among those the oldest, be it the new one; each is reported and counted.
Nothing leaves without being judged at that moment. ``offer``, ``take`` and ``peek`` never wait; ``filled`` does.
Knows nothing of voices and speakers.
"""

from __future__ import annotations

import asyncio
from bisect import insort
from collections.abc import Callable
from dataclasses import dataclass

from handrail.runtime.speech.utterance import Moment, Say, Silence, Unspoken, Utterance

BOUND = 8  # at one or two seconds each, more than this would be stale before its turn


@dataclass(frozen=True, slots=True)
class QueueStatistics:
    bound: int
    waiting: int
    most_waiting: int
    offered: int
    taken: int
    dropped: dict[str, int]  # reason -> how many


def _order(u: Utterance) -> tuple[int, int, int, int]:
    return (*u.rank, u.place, u.id)


class SpeechQueue:
    """``unsaid`` is told of every utterance that leaves without being taken."""

    def __init__(self, unsaid: Callable[[Utterance, Unspoken], None], bound: int = BOUND) -> None:
        self._unsaid = unsaid
        self._bound = bound
        self._waiting: list[Utterance] = []  # sorted by _order
        self._filled = asyncio.Event()
        self._left = asyncio.Event()  # something has left since
        self._offered = self._taken = self._most = 0
        self._dropped = dict.fromkeys((str(r) for r in Unspoken), 0)

    def offer(self, new: Utterance) -> None:
        """Put it in; drops an older one about the same, and on overflow the least urgent and oldest."""
        self._offered += 1
        for old in [u for u in self._waiting if u.key == new.key]:
            self._drop(old, Unspoken.SUPERSEDED)
        insort(self._waiting, new, key=_order)
        if len(self._waiting) > self._bound:
            worst = self._waiting[-1].rank
            self._drop(next(u for u in self._waiting if u.rank == worst), Unspoken.OVERFLOW)
        self._most = max(self._most, len(self._waiting))
        self._filled.set()

    def take(self, moment: Moment) -> tuple[Utterance, Say] | None:
        """The most urgent that is still worth saying, with its words as of now. Those that aren't are dropped."""
        found = self.peek(moment)
        if found is not None:
            self._waiting.remove(found[0])
            self._left.set()
            self._taken += 1
        return found

    def peek(self, moment: Moment) -> tuple[Utterance, Say] | None:
        """What ``take`` would give; leaves it in."""
        while self._waiting:
            first = self._waiting[0]
            match first.judged(moment):
                case Say() as say:
                    return first, say
                case Silence(reason):
                    self._drop(first, reason)
        self._filled.clear()
        return None

    def outranks(self, u: Utterance) -> bool:
        """Whether something more urgent than ``u`` waits."""
        return bool(self._waiting) and self._waiting[0].rank < u.rank

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def holds(self, key: str) -> bool:
        return any(u.key == key for u in self._waiting)

    def drop_all(self, reason: Unspoken, kind: str | None = None) -> None:
        """All that wait, or all of a kind."""
        for u in [u for u in self._waiting if kind in (None, u.kind)]:
            self._drop(u, reason)

    async def at_most(self, count: int, kind: str) -> None:
        """Until no more than ``count`` of a kind wait: for who has more to say than fits."""
        while sum(u.kind == kind for u in self._waiting) > count:
            self._left.clear()
            await self._left.wait()

    async def filled(self) -> None:
        """Until something waits (which may turn out not to be worth saying)."""
        while not self._waiting:
            self._filled.clear()
            await self._filled.wait()

    def statistics(self) -> QueueStatistics:
        return QueueStatistics(
            self._bound, len(self._waiting), self._most, self._offered, self._taken, dict(self._dropped)
        )

    def _drop(self, u: Utterance, reason: Unspoken) -> None:
        self._waiting.remove(u)
        self._left.set()
        self._dropped[reason] += 1
        self._unsaid(u, reason)
