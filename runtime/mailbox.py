"""A one-slot channel where the newest wins: how frames reach the reflex. Never queues, counts what it drops."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class MailboxStatistics:
    put: int
    taken: int
    dropped: int


class Mailbox(Generic[T]):
    def __init__(self) -> None:
        self._item: T | None = None
        self._arrived = asyncio.Event()
        self._put = self._taken = self._dropped = 0

    def put(self, item: T) -> T | None:
        """Leave an item; returns the one it replaced, which nobody will see."""
        replaced, self._item = self._item, item
        self._put += 1
        self._dropped += replaced is not None
        self._arrived.set()
        return replaced

    def discard(self) -> None:
        """Empty the slot (at a seam what lies in it belongs to another place)."""
        self._dropped += self._item is not None
        self._item = None
        self._arrived.clear()

    async def take(self) -> T:
        while self._item is None:
            self._arrived.clear()
            await self._arrived.wait()
        item, self._item = self._item, None
        self._taken += 1
        return item

    @property
    def empty(self) -> bool:
        return self._item is None

    def statistics(self) -> MailboxStatistics:
        return MailboxStatistics(self._put, self._taken, self._dropped)
