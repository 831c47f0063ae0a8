"""A bundle's graphs on a GPU: the same numbers as on the CPU, and how long each takes.

CUDA and TensorRT through ONNX Runtime, asked for strictly. TensorRT builds its engines here, which takes minutes the
first time; they are kept. Inputs are random and the same for all: parity of graphs, not of answers.
"""

from __future__ import annotations

import argparse
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from handrail.benchmarks.command import Outcome, from_1
from handrail.runtime.bundle import Bundle, Manifest, open_bundle
from handrail.runtime.grid import BINS, STREAMS
from handrail.runtime.grid.imu import AXES, LENGTH
from handrail.runtime.preprocess import mask
from handrail.runtime.providers import Provider, open_session, tensorrt_options
from handrail.runtime.terminal import print_table, say
from handrail.streams.cache import cache_folder
from handrail.streams.errors import ConfigError, MissingDependencyError

Inputs = dict[str, NDArray[Any]]
WITHIN = {"cuda": 1e-3, "tensorrt": 1e-2}  # of outputs' spread: other kernels add in another order
PROMPT = 256  # tokens of the prefill, and of the past of a step


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    graph: str
    inputs: Inputs


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("bundle", type=Path, help="a bundle folder; for TensorRT exported with --provider tensorrt")
    parser.add_argument("--providers", default="cuda,tensorrt", help="comma-separated (cuda,tensorrt)")
    parser.add_argument("--runs", type=from_1, default=50, help="of each graph, after warming up (50)")


def run(args: argparse.Namespace) -> Outcome:
    providers = args.providers.split(",")
    if unknown := set(providers) - set(WITHIN):
        raise ConfigError(f"--providers {','.join(sorted(unknown))}: expected cuda, tensorrt or both")
    if shutil.which("nvidia-smi") is None:
        raise MissingDependencyError("no NVIDIA driver here (nvidia-smi): this bench needs a GPU")
    bundle = open_bundle(args.bundle)
    if bundle.manifest.decoder.get("cache") == "shared":
        raise ConfigError(f"{args.bundle}: its decoder is made for the CPU; export it with --provider tensorrt")
    rows = [row for provider in providers for row in _measured(bundle, provider, args.runs)]
    print_table(
        "graphs on the GPU against the CPU",
        ("provider", "what", "off, of spread", "ready s", "p50 ms", "p95 ms"),
        [(r["provider"], r["what"], r["off"], r["ready_s"], r["p50_ms"], r["p95_ms"]) for r in rows],
    )
    held = [r["off"] <= WITHIN[r["provider"]] for r in rows]  # NaN is not
    short = [f"{r['provider']} {r['what']}: off by {r['off']}" for r, good in zip(rows, held, strict=True) if not good]
    line = "; ".join(short) or f"{len(rows)} graphs agree with the CPU"
    return Outcome({"bundle": bundle.manifest.name, "family": bundle.manifest.family, "rows": rows}, not short, line)


def _measured(bundle: Bundle, provider: Provider, runs: int) -> Iterator[dict[str, Any]]:
    for case in cases(bundle.manifest, set(bundle.manifest.files)):
        say(f"{provider}: {case.name}")
        path = bundle.path(case.graph)
        expected = open_session(path, "cpu").run(None, case.inputs)
        began = time.perf_counter()
        options: dict[str, str] = {}
        if provider == "tensorrt":
            options = tensorrt_options(bundle.manifest, case.graph, cache_folder("engines"))
        session = open_session(path, provider, options)
        found = session.run(None, case.inputs)
        ready_s = time.perf_counter() - began
        times = []
        for _ in range(runs):
            began = time.perf_counter()
            session.run(None, case.inputs)
            times.append((time.perf_counter() - began) * 1e3)
        offs = [np.abs(a - b).max() / max(np.std(a), 1e-6) for a, b in zip(expected, found, strict=True)]
        off = float(np.max(offs))  # NaN where one is
        p50_ms, p95_ms = np.percentile(times, (50, 95)).round(3).tolist()
        yield {
            "provider": provider, "what": case.name, "off": round(off, 6), "ready_s": round(ready_s, 2),
            "p50_ms": p50_ms, "p95_ms": p95_ms,
        }  # fmt: skip


def cases(manifest: Manifest, files: set[str], seed: int = 0) -> Iterator[Case]:
    """One frame, the sensors, a prefill, and a token after it."""
    rng = np.random.default_rng(seed)

    def noise(*shape: int) -> NDArray[np.float32]:
        return rng.normal(size=shape).astype(np.float32)

    yield Case("one frame", "vision.onnx", {"pixels": noise(1, *manifest.vision["pixels"])})
    if "fusion.onnx" in files:
        sensors: Inputs = {"question": noise(1, manifest.decoder["d_model"])}
        for stream, width in STREAMS.items():
            sensors |= {stream: noise(1, BINS, width), f"{stream}_valid": np.ones((1, BINS), np.bool_)}
        yield Case("sensors", "fusion.onnx", sensors)
    if "primus.onnx" in files:
        yield Case("two IMU windows", "primus.onnx", {"windows": noise(2, AXES, LENGTH)})
    yield Case(f"prefill of {PROMPT}", "decoder.onnx", _decoder(manifest.decoder, PROMPT, 0, noise))
    yield Case(f"a token after {PROMPT}", "decoder.onnx", _decoder(manifest.decoder, 1, PROMPT, noise))


def _decoder(decoder: dict[str, Any], new: int, past: int, noise: Any) -> Inputs:
    d, axes, total = decoder["d_model"], decoder["axes"], past + new
    none = np.full(total, -1)
    inputs: Inputs = {
        "inputs_embeds": noise(1, new, d),
        "position_ids": np.broadcast_to(np.arange(past, total), (axes, 1, new)).copy(),
    }
    for name, window in decoder["masks"].items():
        inputs[name] = mask(none, new, window=window)[None, None]
    if k := decoder["deepstack"]:
        inputs["deepstack"] = np.zeros((k, 1, new, d), np.float32)
    for layer in range(decoder["layers"]):
        for part in ("key", "value"):
            inputs[f"past.{layer}.{part}"] = noise(1, decoder["kv_heads"], past, decoder["head_dim"])
    return inputs
