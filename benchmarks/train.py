"""Training on a tiny random model, both stages: a small set is learnt by heart, and a run that is killed and goes on
ends with the weights of one that never stopped, byte for byte. Also how long a step takes here.

Six clips of simulated walks; some ask the same and differ in what is seen and felt alone. All by ``handrail train``.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from handrail.benchmarks.command import Outcome
from handrail.runtime.terminal import say
from handrail.streams.errors import HandrailError

LOSS_BELOW, STEP_S = 0.1, 0.5
STEPS, SAVE_EVERY, WARMUP = {1: 120, 2: 80}, 15, 10
RATES = ("--lr-lora", "1e-2", "--lr-fusion", "3e-3")  # for a model of 64 dimensions
CLIPS = (  # walk, category, form, text, answer
    ("1?kind=textured", "TC02", "question", "What is in the way?", "A box ahead."),
    ("2?kind=free", "TC02", "question", "What is in the way?", "Nothing here."),
    ("3?kind=free", "TC10", "scene", None, "A corridor, ten metres."),
    ("4?kind=step-down", "TC04", "question", "Where is the step?", "Two steps ahead."),
    ("5?kind=pole", "TC04", "goal", "Find the door.", "Turn left."),
    ("6?kind=mixed", "TC04", "goal", "Find the door.", "Go on, then right."),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--family", default="smolvlm2", help="of the tiny model (smolvlm2)")
    parser.add_argument("--kills", type=int, choices=range(1, 11), metavar="1-10", default=2, help="in each stage (2)")
    parser.add_argument("--seed", type=int, default=0, help="of when it is killed (0)")


def run(args: argparse.Namespace) -> Outcome:
    dice = random.Random(args.seed)  # noqa: S311 - reproducible, not secret
    with tempfile.TemporaryDirectory(prefix="handrail-train-") as place:
        folder = Path(place)
        write_data(folder / "clips.jsonl")
        stages = [_stage(folder, args.family, stage, args.kills, dice) for stage in (1, 2)]
    held = all(s["same_weights"] and s["loss"] < LOSS_BELOW and s["step_s"] < STEP_S for s in stages)
    line = "; ".join(
        f"stage {s['stage']}: loss {s['loss_first']:.1f} to {s['loss']:.3f}, {s['step_s']:.2f} s a step, killed at "
        f"{' and '.join(map(str, s['killed_at']))}: " + ("same weights" if s["same_weights"] else "OTHER WEIGHTS")
        for s in stages
    )
    return Outcome({"family": args.family, "clips": len(CLIPS), "stages": stages}, held, line)


def write_data(path: Path) -> None:
    with path.open("w", encoding="utf-8") as lines:
        for index, (walk, category, form, text, answer) in enumerate(CLIPS):
            asked = {} if text is None else {"text": text}
            recording = f"world:{walk}&gen=1&seconds=2"
            lines.write(json.dumps({
                "clip": f"walk-{index}", "category": category, "form": form, **asked, "references": [answer],
                "recording": recording, "time_s": [0.0, 1.9], "split": "train",
            }) + "\n")  # fmt: skip


def _stage(folder: Path, family: str, stage: int, kills: int, dice: random.Random) -> dict[str, Any]:
    """Once in one go, once killed and gone on; stage 2 starts from the first of stage 1."""
    whole, broken = folder / f"whole-{stage}", folder / f"broken-{stage}"
    start = [] if stage == 1 else ["--from", str(folder / "whole-1")]
    command = [
        sys.executable, "-m", "handrail.runtime.cli", "train", "--backbone", f"tiny:{family}", "--data",
        str(folder / "clips.jsonl"), "--stage", str(stage), "--steps", str(STEPS[stage]), "--batch", str(len(CLIPS)),
        "--at-once", str(len(CLIPS)), "--warmup", str(WARMUP), "--save-every", str(SAVE_EVERY), *RATES,
        "--device", "cpu", "--out",
    ]  # fmt: skip
    say(f"stage {stage}, in one go")
    _finish([*command, str(whole), *start])
    killed_at = sorted(dice.sample(range(SAVE_EVERY + 1, STEPS[stage] - 1), kills))
    for step in killed_at:
        say(f"stage {stage}, killed after step {step}")
        _kill_after([*command, str(broken), *_going_on(broken, start)], broken, step)
    _finish([*command, str(broken), *_going_on(broken, start)])
    rows = _log(whole)
    losses = [float(row["loss"]) for row in rows]
    return {
        "stage": stage, "steps": len(rows), "loss_first": losses[0], "loss": statistics.fmean(losses[-10:]),
        "step_s": statistics.median(float(row["seconds"]) for row in rows), "killed_at": killed_at,
        "weights_sha256": _weights(whole), "same_weights": _weights(whole) == _weights(broken),
    }  # fmt: skip


def _going_on(out: Path, start: list[str]) -> list[str]:
    return ["--resume"] if any(out.glob("step-*")) else start


def _finish(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own command
    if done.returncode != 0:
        raise HandrailError(f"training: exit {done.returncode}: {done.stderr.strip()}")


def _kill_after(command: list[str], out: Path, step: int) -> None:
    """SIGKILL once the log has that step: in the middle of the next one."""
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as training:  # noqa: S603
        while training.poll() is None:
            if len(_log(out)) >= step:
                training.kill()
                return
            time.sleep(0.02)
        raise HandrailError(f"training ended before it was killed: {training.communicate()[1].strip()}")


def _log(out: Path) -> list[dict[str, str]]:
    path = out / "log.csv"
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


def _weights(out: Path) -> str:
    return hashlib.sha256((max(out.glob("step-*")) / "weights.safetensors").read_bytes()).hexdigest()
