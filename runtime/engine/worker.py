"""Where models compute: one job at a time, off the loop's thread in real time, inline on virtual time.

    features = await worker.run("vision", lambda: model.see(picture), declared.encode_ms)

A job that nobody waits for any more still runs to its end (native code can't be stopped), but the next one waits for
it: cancelling between two jobs is cancelling within one job's time. Knows nothing of what is computed.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

T = TypeVar("T")

NICE = 19  # where the system has no idle policy

Took = Callable[[str, float], None]  # which job, and its milliseconds; called on the loop's thread


class Worker(Protocol):
    async def run(self, what: str, job: Callable[[], T], declared_ms: float) -> T:
        """The job's result, or what it raised. ``declared_ms``: how long it takes on virtual time."""
        ...

    async def close(self) -> None:
        """Waits for the job that runs."""
        ...


class InlineWorker:
    """For virtual time: the job runs at once and takes the declared time, so that every run is the same."""

    def __init__(self, took: Took) -> None:
        self._took = took
        self._turn = asyncio.Lock()

    async def run(self, what: str, job: Callable[[], T], declared_ms: float) -> T:
        async with self._turn:
            result, ms = _timed(job)
            self._took(what, ms)
            await asyncio.sleep(declared_ms / 1e3)
            return result

    async def close(self) -> None:
        pass


class ThreadWorker:
    """For real time: one thread that computes when nothing else would.

    Of two cores the reflex and the loop need both now and then. A low priority alone isn't enough for that: what wakes
    up then still waits until the thread has used its slice, 3 ms at each hand-over.
    """

    def __init__(self, took: Took) -> None:
        self._took = took
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="model", initializer=_when_idle)

    async def run(self, what: str, job: Callable[[], T], declared_ms: float) -> T:
        result, ms = await asyncio.get_running_loop().run_in_executor(self._pool, _timed, job)
        self._took(what, ms)
        return result

    async def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
        await asyncio.to_thread(self._pool.shutdown)


def _when_idle() -> None:
    """Of the calling thread alone, on Linux. A sandbox may forbid it: then it is only nice."""
    try:
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    except (AttributeError, OSError):
        os.setpriority(os.PRIO_PROCESS, 0, NICE)


def _timed(job: Callable[[], T]) -> tuple[T, float]:
    began = time.perf_counter()
    result = job()
    return result, (time.perf_counter() - began) * 1e3
