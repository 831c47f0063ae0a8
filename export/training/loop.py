"""A training from its first or next step to its last: log, checkpoints, and an end that loses nothing.

    <out>/step-000400/    checkpoints, the newest few
    <out>/log.csv         a row a step
    <out>/loss.png        the curve

Batches of the next step are made while the present one is computed. Ctrl-C lets the step end and writes a checkpoint.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from handrail.export.model.fused import Batch
from handrail.export.training.checkpoint import write_checkpoint
from handrail.export.training.curve import StepDone, StepLog, draw_curve, read_steps
from handrail.export.training.resume import Identity, taken
from handrail.export.training.trainer import Feed, Trainer, step_batches

KEEP, SAVE_EVERY = 3, 200


@dataclass(frozen=True, slots=True)
class Outcome:
    checkpoint: Path  # the last one
    stopped: bool  # before its last step, because somebody asked for it
    log: tuple[StepDone, ...]  # of all steps, those before a resumption too
    drawn: bool  # False: no matplotlib


def train(
    trainer: Trainer,
    feed: Feed,
    identity: Identity,
    out: Path,
    *,
    save_every: int = SAVE_EVERY,
    keep: int = KEEP,
    watch: Callable[[StepDone], None] = lambda done: None,
) -> Outcome:
    """Train on until ``settings.steps``. Raises HandrailError (a loss that isn't finite, no room, unreadable data);
    checkpoints written before are as good as ever."""
    settings = trainer.settings
    saved: Path | None = None
    with _asked_to_stop() as asked, StepLog(out / "log.csv", trainer.step) as log, _Ahead(feed, trainer) as ahead:
        while trainer.step < settings.steps and not asked.is_set():
            done = trainer.train_step(ahead.take(trainer.step))
            log.append(done)
            watch(done)
            saved = None
            if trainer.step % save_every == 0:
                saved = write_checkpoint(out, taken(trainer, identity), keep)
        if saved is None:
            saved = write_checkpoint(out, taken(trainer, identity), keep)
    rows = tuple(read_steps(out / "log.csv"))
    drawn = draw_curve(rows, out / "loss.png", f"{identity.backbone.family}, stage {settings.stage}")
    return Outcome(saved, trainer.step < settings.steps, rows, drawn)


class _Ahead:
    """Makes the batches of the step after the one that is asked for, in a thread."""

    def __init__(self, feed: Feed, trainer: Trainer) -> None:
        self._feed, self._settings = feed, trainer.settings
        self._thread = ThreadPoolExecutor(1, "batches")
        self._next: tuple[int, Future[list[Batch]]] | None = None

    def take(self, step: int) -> list[Batch]:
        """The batches of the step that comes after ``step`` steps."""
        if self._next is None or self._next[0] != step:
            self._next = self._ask(step)
        batches = self._next[1].result()
        self._next = self._ask(step + 1) if step + 1 < self._settings.steps else None
        return batches

    def _ask(self, step: int) -> tuple[int, Future[list[Batch]]]:
        return step, self._thread.submit(step_batches, self._settings, self._feed, step)

    def __enter__(self) -> _Ahead:
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.shutdown(cancel_futures=True)


@contextlib.contextmanager
def _asked_to_stop() -> Iterator[threading.Event]:
    """Ctrl-C sets it; a second one interrupts at once, as ever. A step cut in half would be neither done nor undone."""
    asked = threading.Event()

    def first(number: int, frame: FrameType | None) -> None:
        asked.set()
        signal.signal(number, before)

    try:
        before: Any = signal.signal(signal.SIGINT, first)
    except ValueError:  # not in the main thread: nobody sends it signals
        yield asked
        return
    try:
        yield asked
    finally:
        signal.signal(signal.SIGINT, before)
