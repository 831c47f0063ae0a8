"""Runs independent jobs in a few processes, started by exec, with a progress bar; results in the order of the jobs."""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import TypeVar

from rich.console import Console
from rich.progress import Progress

JOBS_PER_PROCESS = 25

J = TypeVar("J")
R = TypeVar("R")


def run_jobs(work: Callable[[J], R], jobs: Sequence[J], what: str, processes: int | None = None) -> list[R]:
    """``work`` must be a module's function. One process runs everything right here (simpler to debug)."""
    n = min(processes or os.cpu_count() or 1, max(1, len(jobs)))
    bar = Progress(console=Console(stderr=True), disable=not sys.stderr.isatty())
    with bar:
        task = bar.add_task(what, total=len(jobs))
        results: list[R] = []
        if n == 1:
            for job in jobs:
                results.append(work(job))
                bar.advance(task)
            return results
        # Fresh processes now and then: each replay leaves 4 MB in the C library's heap that it doesn't hand back.
        # Not by ``max_tasks_per_child``: in Python 3.11 a pool whose last processes end by it waits for ever.
        for start in range(0, len(jobs), n * JOBS_PER_PROCESS):
            with ProcessPoolExecutor(n, mp_context=multiprocessing.get_context("spawn")) as pool:
                for result in pool.map(work, jobs[start : start + n * JOBS_PER_PROCESS]):
                    results.append(result)
                    bar.advance(task)
        return results
