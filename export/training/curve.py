"""The log of a training (CSV, a row a step) and its picture. Knows no model."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from handrail.runtime.terminal import write_whole
from handrail.streams.errors import InputError, OutputError

SMOOTHED_OVER = 20  # steps


@dataclass(frozen=True, slots=True)
class StepDone:
    """What one step was like: a row of the log."""

    step: int
    loss: float  # mean over the examples of each answer's mean negative log-likelihood
    lr: float  # of the fusion network
    grad_norm: float  # before clipping
    tokens: int  # in the prompts and answers of the step
    seconds: float


COLUMNS = tuple(field.name for field in fields(StepDone))


class StepLog:
    """``with StepLog(path, after=400) as log: log.append(done)``: goes on after that step, later rows are cut off."""

    def __init__(self, path: Path, after: int = 0) -> None:
        """Raises InputError for a file that is no log, OutputError when it can't be written."""
        kept = [row for row in read_steps(path) if row.step <= after] if after and path.exists() else []
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as e:
            raise OutputError(f"{path.parent}: can't be made ({e.strerror}); choose another folder") from e
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerows([COLUMNS, *map(astuple, kept)])
        write_whole(path, text.getvalue().encode())
        self._path = path
        try:
            self._file: IO[str] = path.open("a", encoding="utf-8", newline="")
        except OSError as e:
            raise OutputError(f"{path}: can't be written ({e.strerror})") from e
        self._writer = csv.writer(self._file, lineterminator="\n")

    def append(self, done: StepDone) -> None:
        try:
            self._writer.writerow(astuple(done))
            self._file.flush()
        except OSError as e:
            raise OutputError(f"{self._path}: can't be written ({e.strerror}); make room") from e

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None) -> None:
        self._file.close()


def read_steps(path: Path) -> list[StepDone]:
    """The rows of a log. A torn last line (the writer died) is left out; InputError names any other bad one."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    except (OSError, UnicodeDecodeError) as e:
        raise InputError(f"{path}: expected the log of a training, can't read it: {e}") from e
    rows = []
    for number, line in enumerate(lines[1:], 2):
        if not line.endswith("\n"):
            break
        try:
            step, loss, lr, norm, tokens, seconds = line.split(",")
            rows.append(StepDone(int(step), float(loss), float(lr), float(norm), int(tokens), float(seconds)))
        except ValueError as e:
            raise InputError(f"{path}, line {number}: expected {', '.join(COLUMNS)}, got {line.strip()[:60]!r}") from e
    return rows


def smoothed(values: Sequence[float], over: int = SMOOTHED_OVER) -> list[float]:
    """Mean of each value and those before it, ``over`` of them at most."""
    return [math.fsum(values[max(0, i + 1 - over) : i + 1]) / min(i + 1, over) for i in range(len(values))]


def draw_curve(rows: Sequence[StepDone], path: Path, title: str) -> bool:
    """The loss over steps as PNG; False where matplotlib (extra ``bench``) isn't installed. Raises OutputError."""
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError:
        return False
    steps, losses = [row.step for row in rows], [row.loss for row in rows]
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.add_subplot()
    axes.plot(steps, losses, color="#9db4c8", linewidth=0.8, label="each step")
    axes.plot(steps, smoothed(losses), color="#14456b", linewidth=1.8, label=f"mean of the last {SMOOTHED_OVER}")
    axes.set(title=title, xlabel="step", ylabel="answer NLL, mean per example (nats a token)")
    axes.set_ylim(bottom=0.0)
    axes.legend()
    picture = io.BytesIO()
    figure.savefig(picture, format="png", dpi=120)
    write_whole(path, picture.getvalue())
    return True
