"""Where models compute: one job at a time, off the loop's thread in real time, inline on virtual time.

    features = await worker.run(lambda: vision.encode(frame), declared.encode_ms)

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

NICE = 10  # hazards come first: of two cores the reflex and the loop need both now and then


class Worker(Protocol):
    async def run(self, job: Callable[[], T], declared_ms: float) -> T:
        """Its result, or what it raised. ``declared_ms``: how long it takes on virtual time."""
        ...

    async def close(self) -> None: ...


class InlineWorker:
    """For virtual time: the job runs at once and takes the declared time, so that every run is the same."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()

    async def run(self, job: Callable[[], T], declared_ms: float) -> T:
        async with self._turn:
            result = job()
            await asyncio.sleep(declared_ms / 1e3)
            return result

    async def close(self) -> None:
        pass


class ThreadWorker:
    """For real time: one thread at low priority."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="model", initializer=_low_priority)

    async def run(self, job: Callable[[], T], declared_ms: float) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, job)

    async def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)


def _low_priority() -> None:
    os.setpriority(os.PRIO_PROCESS, 0, NICE)  # on Linux 0 is the calling thread alone


def measured(job: Callable[[], T], took: Callable[[float], None]) -> Callable[[], T]:
    """The job, reporting its milliseconds."""

    def timed() -> T:
        began = time.perf_counter()
        result = job()
        took((time.perf_counter() - began) * 1e3)
        return result

    return timed
