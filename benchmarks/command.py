"""``handrail bench NAME``: the proofs and measurements, each a module with the same three parts.

A bench is a module with ``HELP`` (one line), ``add_arguments(parser)`` and ``run(args) -> Outcome``. Only the one asked
for is imported. The exit code is 1 when a figure falls short of what is promised.
"""

from __future__ import annotations

import argparse
import importlib
import math
import platform
from dataclasses import dataclass
from typing import Any, Protocol

from handrail.runtime.terminal import say, write_json

BENCHES = {
    "latency": "the reflex path in real time: from capture to the first audible sample, per stage and in all",
    "world": "obstacles found, warnings in time and false alarms, against the simulated world's truth",
    "outages": "random camera outages: how soon the wearer is told, how soon guidance is back",
    "damage": "damaged recordings through the whole path: no death, a clear error or a spoken state",
    "bundles": "damaged bundles of model files: each refused before any of its files is parsed",
    "signs": "words read on drawn and photographed signs, with and without a second look, by their size",
    "repeat": "the same replay many times and under several hash seeds: one and the same event log",
    "speed": "a looped recording on virtual time: seconds of recording per second",
    "engine": "the language decoder beside other engines: first token, tokens a second, memory, perplexity",
    "train": "a tiny model in both training stages: learns, and goes on after a kill to the same weights",
    "gpu": "a bundle's graphs on CUDA and TensorRT: parity with the CPU, and latency",
    "questions": "a bundle under questions: repeatable, silent when cancelled, memory that stays flat",
    "buffer": "the rolling buffer at four times nominal rates: resident memory over time",
}


@dataclass(frozen=True, slots=True)
class Outcome:
    figures: dict[str, Any]
    held: bool
    line: str  # for people


class Bench(Protocol):
    def add_arguments(self, parser: argparse.ArgumentParser) -> None: ...

    def run(self, args: argparse.Namespace) -> Outcome: ...


def from_1(text: str) -> int:
    """An option's number of things to try: none at all would prove everything."""
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= 1_000_000):
        raise argparse.ArgumentTypeError(f"expected a whole number from 1 to 1000000, got {text!r}")
    return int(text)


def above_0(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"expected a number above 0, got {text!r}")
    return value


class BenchCommand:
    name = "bench"
    help = "measure and prove: latency, recall, outages, damage, questions, signs, other engines, memory"
    examples = (
        "handrail bench latency --json latency.json",
        "handrail bench world --seeds 1000:1020 --json world.json",
        "handrail bench outages --count 1000",
        "handrail bench damage --count 500",
        "handrail bench engine --json engine.json --peer-python openvino-genai=peers/bin/python",
    )

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        benches = parser.add_subparsers(dest="bench", required=True, metavar="NAME")
        for name, what in BENCHES.items():
            nested = benches.add_parser(name, help=what, description=what)
            _module(name).add_arguments(nested)

    def run(self, args: argparse.Namespace) -> int:
        outcome = _module(args.bench).run(args)
        if args.json is not None:
            write_json(args.json, {"bench": args.bench, "machine": machine(), "held": outcome.held, **outcome.figures})
        say(outcome.line)
        return 0 if outcome.held else 1


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
    import os

    import cv2
    import numpy as np

    return {
        "cores": os.cpu_count(), "processor": _processor(), "system": platform.system(),
        "python": platform.python_version(), "numpy": np.__version__, "opencv": cv2.__version__,
    }  # fmt: skip


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()


def _module(name: str) -> Bench:
    module: Any = importlib.import_module(f"handrail.benchmarks.{name}")
    return module  # type: ignore[no-any-return]


command = BenchCommand()
