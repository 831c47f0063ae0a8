"""The same replay many times, in fresh processes and under several hash seeds: one event log, or it fails."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from handrail.benchmarks.command import Outcome, from_1
from handrail.streams.errors import HandrailError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("uri", nargs="?", default="world:7?seconds=6", help="what to replay (world:7?seconds=6)")
    parser.add_argument("--count", type=from_1, default=20, help="replays (20)")
    parser.add_argument("--hash-seeds", type=from_1, default=5, help="different PYTHONHASHSEEDs among them (5)")


def run(args: argparse.Namespace) -> Outcome:
    hashes = [replay_hash(args.uri, hash_seed=i % args.hash_seeds) for i in range(args.count)]
    counted = Counter(hashes)
    line = f"{args.count} replays under {args.hash_seeds} hash seeds: {len(counted)} different event log(s)"
    return Outcome({"uri": args.uri, "replays": args.count, "sha256": dict(counted)}, len(counted) == 1, line)


def replay_hash(uri: str, hash_seed: int) -> str:
    """SHA-256 of the event log of one replay in a process of its own. Raises HandrailError when it fails."""
    with tempfile.TemporaryDirectory(prefix="handrail-repeat-") as out:
        done = subprocess.run(  # noqa: S603 - our own command
            [sys.executable, "-m", "handrail.runtime.cli", "replay", uri, "--out", out, "--no-report"],
            env={**os.environ, "PYTHONHASHSEED": str(hash_seed)}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode != 0:
            raise HandrailError(f"replay of {uri}: exit {done.returncode}: {done.stderr.strip()}")
        return str(json.loads((Path(out) / "summary.json").read_text())["events_sha256"])
