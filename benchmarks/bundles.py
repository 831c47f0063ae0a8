"""Damaged copies of a bundle of model files (``bundle_damage``): each must be refused in one clear line before any of
its files is parsed, and no other error may come out."""

from __future__ import annotations

import argparse
import io
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from handrail.benchmarks.bundle_damage import damage
from handrail.benchmarks.command import Outcome, from_1
from handrail.runtime.bundle import About, BundleWriter, Source, open_bundle
from handrail.streams.errors import BundleError


@dataclass(frozen=True, slots=True)
class Verdict:
    what: str  # was done to the copy
    message: str  # of the BundleError, or why this copy failed
    refused: bool


def small_bundle(folder: Path) -> Path:
    """A bundle of 30 kB with a file of every kind. The graphs are noise: nobody gets to parse them."""
    noise = np.random.default_rng(7)
    rows = io.BytesIO()
    np.save(rows, noise.normal(size=(50, 16)).astype(np.float32))
    with BundleWriter(folder) as bundle:
        bundle.write("decoder.onnx", noise.bytes(3000))
        bundle.write("decoder.onnx.data", noise.bytes(20_000))
        bundle.write("embeddings.npy", rows.getvalue())
        bundle.write("tokenizer.json", b'{"model": {"vocab": {"a": 0}}}')
        bundle.write("chat_template.jinja", b"{{ messages }}")
        bundle.write("LICENSE.txt", b"Apache-2.0")
        bundle.describe(About(
            name="small", family="made-up", source=Source(name="noise", revision="7"), licence="Apache-2.0",
            provenance=("made for a bench",), stage=1, quantisation="int8", provider="CPUExecutionProvider",
            decoder={"layers": 2}, tokens={"sensor": 5},
        ))  # fmt: skip
    return folder


def judge(original: Path, index: int, seed: int = 0) -> Verdict:
    with tempfile.TemporaryDirectory(prefix="handrail-bundle-") as place:
        copy = Path(place) / "bundle"
        shutil.copytree(original, copy)
        what = f"{index}: {damage(copy, index, seed)}"
        try:
            open_bundle(copy)
        except BundleError as e:
            line = str(e).replace(place, "")
            return Verdict(what, line, refused="\n" not in line and "; " in line)
        except Exception as e:  # whatever else comes out is what this looks for
            return Verdict(what, f"{type(e).__name__}: {e}", refused=False)
    return Verdict(what, "was opened", refused=False)


def run_bundles(count: int, seed: int = 0) -> list[Verdict]:
    with tempfile.TemporaryDirectory(prefix="handrail-bundle-") as place:
        original = small_bundle(Path(place) / "small")
        open_bundle(original)
        return [judge(original, index, seed) for index in range(count)]


HELP = "damaged bundles of model files: each is refused before any of its files is parsed"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--count", type=from_1, default=500, help="damaged copies (500)")
    parser.add_argument("--seed", type=int, default=0, help="of the damage (0)")


def run(args: argparse.Namespace) -> Outcome:
    verdicts = run_bundles(args.count, args.seed)
    failures = [f"{v.what}: {v.message}" for v in verdicts if not v.refused]
    figures = {"copies": args.count, "seed": args.seed, "refused": len(verdicts) - len(failures), "failures": failures}
    return Outcome(figures, not failures, f"{figures['refused']} of {args.count} damaged bundles refused")
