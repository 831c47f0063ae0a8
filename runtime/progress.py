"""Bars for long work: bytes read of bytes in all, things done of all. On a terminal only: a screen reader must not hear
a bar redrawn."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)


class BytesBar:
    """``with BytesBar("verifying") as bar: open_bundle(folder, bar)``; called with (bytes done, bytes in all)."""

    def __init__(self, doing: str) -> None:
        self._bar = Progress(
            TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn(), TransferSpeedColumn(),
            TimeRemainingColumn(), console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty(),
        )  # fmt: skip
        self._task = self._bar.add_task(doing, total=None)

    def start(self, doing: str, total: int) -> Self:
        """The next file."""
        self._bar.reset(self._task, description=doing, total=total)
        return self

    def __call__(self, done: int, total: int) -> None:
        self._bar.update(self._task, completed=done, total=total)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None) -> None:
        self._bar.stop()


class CountBar:
    """``with CountBar("asked", 200) as bar: ... bar.step()``"""

    def __init__(self, doing: str, total: int) -> None:
        self._bar = Progress(
            TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(),
            console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty(),
        )  # fmt: skip
        self._task = self._bar.add_task(doing, total=total)

    def step(self) -> None:
        self._bar.advance(self._task)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None) -> None:
        self._bar.stop()
