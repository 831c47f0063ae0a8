"""Time: the running loop's clock, and a virtual loop whose time jumps when every task waits.

Code asks ``now_ns()`` and nothing else. On an ordinary loop that is monotonic real time. On a ``VirtualLoop`` it starts
at 0 and moves only when nothing is ready to run: then it jumps to the next deadline, so ``asyncio.sleep`` and
``asyncio.timeout`` follow and ten minutes pass in seconds. While a request to a child process, thread or executor is
outstanding (``standing_still``), virtual time does not move and the loop really waits.
(The idea of a clock that jumps when all tasks wait is trio's autojump clock; the rule of standing still is ours.)
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import selectors
from collections.abc import Coroutine, Iterator
from typing import Any, TypeVar

T = TypeVar("T")
NS_PER_S = 1_000_000_000


def now_ns() -> int:
    """The running loop's time in nanoseconds. Raises RuntimeError outside a loop."""
    loop = asyncio.get_running_loop()
    if isinstance(loop, VirtualLoop):
        return loop.virtual_ns
    return int(loop.time() * NS_PER_S)


async def sleep_until_ns(deadline_ns: int) -> None:
    """Wait until ``now_ns() >= deadline_ns``; returns after one turn of the loop when that is already so."""
    while (left := deadline_ns - now_ns()) > 0:
        await asyncio.sleep(left / NS_PER_S)
    await asyncio.sleep(0)


@contextlib.contextmanager
def standing_still() -> Iterator[None]:
    """Hold virtual time while something outside the loop works for us. No effect on an ordinary loop."""
    loop = asyncio.get_running_loop()
    if not isinstance(loop, VirtualLoop):
        yield
        return
    loop.outstanding += 1
    try:
        yield
    finally:
        loop.outstanding -= 1


class _JumpingSelector(selectors.DefaultSelector):
    """Turns a wait for a deadline into a jump of virtual time, unless outside work is outstanding."""

    loop: VirtualLoop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is not None and timeout <= 0:
            return super().select(0)
        if self.loop.outstanding:
            return super().select(None)
        ready = super().select(0)
        if ready:
            return ready
        if timeout is None:
            raise RuntimeError("virtual loop: every task waits and nothing is due (a wait outside standing_still?)")
        self.loop.virtual_ns += max(1, math.ceil(timeout * NS_PER_S - 0.5))
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop on virtual time, in integer nanoseconds from 0. Deterministic for deterministic tasks."""

    def __init__(self) -> None:
        self.virtual_ns = 0
        self.outstanding = 0
        selector = _JumpingSelector()
        selector.loop = self
        super().__init__(selector)
        self._clock_resolution = 1 / NS_PER_S

    def time(self) -> float:
        return self.virtual_ns / NS_PER_S


def run_virtual(main: Coroutine[Any, Any, T]) -> T:
    """``asyncio.run`` on a fresh ``VirtualLoop``."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)
