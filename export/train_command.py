"""``handrail train``: the fused model's adapters and fusion network, from a data set of clips.

    step-000400/   checkpoints, the newest few: safetensors and JSON
    log.csv        a row a step: loss, rate, gradient, tokens, seconds
    loss.png       the curve
"""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

from handrail.runtime.terminal import say, write_json
from handrail.streams.errors import ConfigError, MissingDependencyError, OutputError

if TYPE_CHECKING:
    from handrail.export.training.curve import StepDone
    from handrail.export.training.fitting import Fitted, Job

INSTALL = "run `make setup-export`"
GIB = 1 << 30


class TrainCommand:
    name = "train"
    help = "train the fused model (LoRA adapters and sensor fusion) on a data set of clips"
    examples = (
        "handrail train --backbone qwen3-vl-4b --data vista/ --stage 1 --out runs/stage1",
        "handrail train --backbone qwen3-vl-4b --data vista/ --stage 2 --from runs/stage1 --out runs/stage2",
        "handrail train --backbone qwen3-vl-4b --data vista/ --stage 2 --out runs/stage2 --resume",
        "handrail train --backbone tiny:qwen3-vl --data small.jsonl --stage 1 --out runs/try --steps 20",
    )

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add = parser.add_argument
        add("--backbone", required=True, metavar="SOURCE",
            help="one of `handrail models list`, a folder with a Qwen3-VL, InternVL3, Gemma 3 or SmolVLM2, a hub id, "
                 "or tiny:FAMILY: a random one to try data and options with")  # fmt: skip
        add("--revision", help="of the hub id")
        add("--side", type=int, metavar="PIXELS", help="of frames, where the backbone leaves it open")
        add("--data", required=True, type=Path, metavar="DIR|FILE",
            help="examples as .jsonl (`pydoc handrail.export.training.data`); those whose split is train are used")
        add("--stage", required=True, type=int, choices=(1, 2), help="1: eight sensor tokens; 2: 28, after stage 1")
        add("--out", required=True, type=Path, metavar="DIR", help="where everything goes")
        add("--from", dest="start", type=Path, metavar="DIR", help="stage 2: the run or checkpoint of stage 1")
        add("--resume", nargs="?", const=True, type=Path, metavar="DIR",
            help="go on from the newest checkpoint in --out, or from this one, as if it had never stopped")  # fmt: skip
        add("--imu-encoder", type=Path, metavar="FILE", help="PRIMUS weights; without them the IMU stream is left out")
        add("--mode", choices=("paper", "runtime"), default="paper",
            help="paper: all of each clip (default); runtime: what the glasses know at its end")  # fmt: skip
        add("--window", type=float, default=10.0, metavar="S", help="runtime mode: how far back, seconds (default: 10)")
        add("--steps", type=int, default=1000, metavar="N", help="updates in all (default: 1000)")
        add("--batch", type=int, default=8, metavar="N", help="examples an update (default: 8)")
        add("--at-once", type=int, default=1, metavar="N", help="of them, in memory at a time (default: 1)")
        add("--warmup", type=int, default=200, metavar="N",
            help="stage 2: updates in which only the sensor side learns (default: 200)")  # fmt: skip
        add("--lr-lora", type=float, default=1e-4, metavar="R", help="rate of the adapters at first (default: 1e-4)")
        add("--lr-fusion", type=float, default=3e-4, metavar="R", help="of the sensor side (default: 3e-4)")
        add("--seed", type=int, default=0, metavar="N", help="of everything random (default: 0)")
        add("--save-every", type=int, default=200, metavar="N", help="updates between checkpoints (default: 200)")
        add("--keep", type=int, default=3, metavar="N", help="checkpoints that stay (default: 3)")
        add("--device", choices=("cpu", "cuda"), help="default: cuda where there is one")
        add("--cache", type=Path, metavar="DIR", help="where cut clips are kept (default: the user's cache folder)")
        add("--cache-gib", type=float, default=64.0, metavar="N", help="how large it may grow (default: 64)")

    def run(self, args: argparse.Namespace) -> int:
        try:  # imported here: torch takes seconds that a mistyped option shouldn't wait for
            from handrail.export.training.fitting import Hooks, fit
        except ModuleNotFoundError as e:
            if e.name is None or e.name.split(".")[0] == "handrail":
                raise
            raise MissingDependencyError(f"training needs {e.name}, which isn't installed: {INSTALL}") from e
        job = _job(args)
        with _Bars(job.settings.steps) as bars:
            fitted = fit(job, Hooks(_to_stderr, _to_stderr, bars.show, bars.step))
        return _told(job, fitted, args.json)


def _job(args: argparse.Namespace) -> Job:
    """Raises ConfigError for a value out of range, OutputError for a folder that can't be made."""
    import msgspec
    import torch

    from handrail.export.training.fitting import Job
    from handrail.export.training.trainer import Settings

    device: Literal["cpu", "cuda"] = args.device or ("cuda" if torch.cuda.is_available() else "cpu")
    chosen = {
        "stage": args.stage, "steps": args.steps, "batch": args.batch, "at_once": args.at_once, "seed": args.seed,
        "warmup": args.warmup, "lr_lora": args.lr_lora, "lr_fusion": args.lr_fusion, "mode": args.mode,
        "window_s": args.window,
        "precision": "bfloat16" if device == "cuda" else "float32",
    }  # fmt: skip
    try:
        settings = msgspec.convert(chosen, Settings)
    except msgspec.ValidationError as e:
        raise ConfigError(f"{_option(str(e))}: {str(e)[:1].lower()}{str(e)[1:]}") from e
    for name in ("save_every", "keep", "cache_gib"):
        if not 0 < getattr(args, name) < math.inf:
            raise ConfigError(f"--{name.replace('_', '-')}: expected a number above 0, got {getattr(args, name)}")
    try:
        args.out.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise OutputError(f"--out {args.out}: can't be made ({e.strerror}); choose another folder") from e
    resume = args.out if args.resume is True else args.resume
    return Job(
        args.backbone, args.data, args.out, settings, args.revision, args.side, args.imu_encoder, args.start, resume,
        device, args.cache, round(args.cache_gib * GIB), args.save_every, args.keep,
    )  # fmt: skip


def _option(message: str) -> str:
    """The option that msgspec complains of, as it is written on the command line."""
    key = message.rpartition("$.")[2].strip("`")
    return {"window_s": "--window"}.get(key, "--" + key.replace("_", "-"))


def _told(job: Job, fitted: Fitted, json_file: Path | None) -> int:
    """Figures and one line. Raises KeyboardInterrupt where that is how it ended."""
    from handrail.export.training.curve import smoothed

    outcome = fitted.outcome
    losses = [row.loss for row in outcome.log]
    figures: dict[str, Any] = {
        "stage": job.settings.stage,
        "steps": len(outcome.log),
        "finished": not outcome.stopped,
        "examples": fitted.examples,
        "trained_parameters": fitted.trained_parameters,
        "loss_first": losses[0] if losses else None,
        "loss_last": smoothed(losses)[-1] if losses else None,  # mean of the last steps
        "seconds": round(sum(row.seconds for row in outcome.log), 3),
        "checkpoint": outcome.checkpoint.name,
        "backbone": fitted.identity.backbone,
    }
    if json_file is not None:
        write_json(json_file, figures)
    if not outcome.drawn:
        say("note: no loss.png, matplotlib isn't installed: pip install 'handrail[bench]'", sys.stderr)
    loss = f"loss {figures['loss_first']:.3f} to {figures['loss_last']:.3f}" if losses else "no step"
    say(
        f"stage {job.settings.stage}: {len(losses)} of {job.settings.steps} steps on {fitted.examples} examples, "
        f"{loss}, {figures['seconds']:.0f} s; checkpoint: {outcome.checkpoint}"
    )
    if outcome.stopped:
        say("stopped; the same command with --resume (and without --from) goes on", sys.stderr)
        raise KeyboardInterrupt
    return 0


def _to_stderr(line: str) -> None:
    say(line, sys.stderr)


class _Bars:
    """Progress on a terminal only: a screen reader must not hear a bar redrawn."""

    def __init__(self, steps: int) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        self._steps = steps
        self._progress = Progress(
            TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(),
            console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty(),
        )  # fmt: skip
        self._tasks: dict[str, Any] = {}

    def show(self, doing: str, done: int, of: int | None) -> None:
        if doing not in self._tasks:
            self._tasks[doing] = self._progress.add_task(doing, total=of)
        self._progress.update(self._tasks[doing], completed=done)

    def step(self, done: StepDone) -> None:
        self.show("training", done.step, self._steps)
        self._progress.update(self._tasks["training"], description=f"training, loss {done.loss:.3f}")

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None) -> None:
        self._progress.stop()


command = TrainCommand()
