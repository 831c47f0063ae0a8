"""Time: the running loop's clock, and a virtual loop whose time jumps when every task waits.

Code asks ``now_ns()`` and nothing else. On an ordinary loop that is monotonic real time. On a ``VirtualLoop`` it starts
at 0 and moves only when nothing is ready to run: then it jumps to the next deadline, so ``asyncio.sleep`` and
``asyncio.timeout`` follow and ten minutes pass in seconds. While outside work is outstanding (``standing_still`` round
a request to a child process; calls in an executor count by themselves), virtual time does not move and the loop really
waits. (The clock that jumps when all tasks wait is trio's idea; the rule of standing still is ours.)

Deadlines are whole nanoseconds, without drift over days, and those of the same nanosecond run in the order in which
they were set. Not decided here: what arrives from outside while time is *not* held still comes at no certain virtual
time, and the order in which ``TaskGroup`` or ``Runner`` cancels many tasks is that of a set: log nothing on that way.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import selectors
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Executor
from contextvars import Context
from pathlib import Path
from typing import Any, TypeVar, TypeVarTuple

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
NS_PER_S = 1_000_000_000


def now_ns() -> int:
    """The running loop's time in nanoseconds. Raises RuntimeError outside a loop."""
    loop = asyncio.get_running_loop()
    if isinstance(loop, VirtualLoop):
        return loop.virtual_ns
    return int(loop.time() * NS_PER_S)


async def sleep_until_ns(deadline_ns: int) -> None:
    """Wait until ``now_ns() >= deadline_ns``; returns after one turn of the loop when that is already so."""
    while (left := deadline_ns - now_ns()) > 0:  # noqa: ASYNC110 - an ordinary loop may wake a hair too early
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


def run_virtual(main: Coroutine[Any, Any, T]) -> T:
    """``asyncio.run`` on a fresh ``VirtualLoop``."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)


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
            raise RuntimeError(
                "virtual loop: nothing is due, and nothing that standing_still() knows of is outstanding; waiting are "
                + _waiting(self.loop)
            )
        self.loop.virtual_ns += max(1, round(timeout * NS_PER_S))
        return []


class _Timer(asyncio.TimerHandle):
    """A deadline that remembers when it was set. A plain heap of deadlines would run ties in an order that depends on
    *later* deadlines: what happens at t would then depend on samples after t."""

    __slots__ = ("_turn",)

    def __init__(
        self, turn: int, when: float, callback: Callable[..., object], args: Any, loop: VirtualLoop,
        context: Context | None,
    ) -> None:
        super().__init__(when, callback, args, loop, context)
        self._turn = turn

    def __lt__(self, other: object) -> bool:
        if not isinstance(other, _Timer):
            return NotImplemented
        return (self.when(), self._turn) < (other.when(), other._turn)


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop on virtual time, in integer nanoseconds from 0. Deterministic for deterministic tasks."""

    _scheduled: list[_Timer]  # asyncio's own heap

    def __init__(self) -> None:
        self.virtual_ns = 0
        self.outstanding = 0  # requests to the outside that hold time still
        self._timers_set = 0
        selector = _JumpingSelector()
        selector.loop = self
        super().__init__(selector)
        self._clock_resolution = 0.5 / NS_PER_S  # a timer is due when less than this away: never 1 ns early

    def time(self) -> float:
        return self.virtual_ns / NS_PER_S

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """As asyncio's, with the deadline rounded to whole nanoseconds and ties in the order of the calls."""
        self._check_closed()  # type: ignore[attr-defined] # asyncio's own, as are the heap and the mark below
        self._timers_set += 1
        timer = _Timer(self._timers_set, round(when * NS_PER_S) / NS_PER_S, callback, args, self, context)
        heapq.heappush(self._scheduled, timer)
        timer._scheduled = True  # type: ignore[attr-defined]
        return timer

    def run_in_executor(self, executor: Executor | None, func: Callable[[*Ts], T], *args: *Ts) -> asyncio.Future[T]:
        """As asyncio's; virtual time stands still until the call has returned or nobody waits for it any more."""
        future = super().run_in_executor(executor, func, *args)
        self.outstanding += 1
        future.add_done_callback(self._returned)
        return future

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:  # noqa: ASYNC109 - asyncio's own
        with standing_still():
            await super().shutdown_default_executor()

    def _returned(self, _: asyncio.Future[Any]) -> None:
        self.outstanding -= 1


def _waiting(loop: asyncio.AbstractEventLoop) -> str:
    """Every unfinished task: its name and the line at which it waits, in order of name."""
    lines = []
    for task in asyncio.all_tasks(loop):
        frames = task.get_stack(limit=1)
        where = f"{Path(frames[0].f_code.co_filename).name}:{frames[0].f_lineno}" if frames else "?"
        lines.append(f"{task.get_name()} ({where})")
    return ", ".join(sorted(lines)) or "no tasks"
