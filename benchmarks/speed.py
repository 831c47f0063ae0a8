"""A looped recording on virtual time through the whole path: seconds of recording per second of waiting."""

from __future__ import annotations

import argparse
import statistics

from handrail.benchmarks.command import Outcome, from_1
from handrail.benchmarks.damage import recordings
from handrail.runtime.replay import replay
from handrail.streams.errors import SourceError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("uri", nargs="?", default=None,
                        help="what to replay (the Gen 2 corridor recording, looped to 10 s)")  # fmt: skip
    parser.add_argument("--runs", type=from_1, default=3, help="of which the median counts (3)")


def run(args: argparse.Namespace) -> Outcome:
    uri = args.uri or _looped_corridor()
    runs = [replay(uri) for _ in range(args.runs)]
    factors = [(r.info.duration_s or r.duration_s) / r.took_s for r in runs]
    median = statistics.median(factors)
    name, length_s = uri.rpartition("/")[2], runs[0].info.duration_s
    line = f"{length_s:.1f} s of {name}: {median:.2f} times real time (median of {args.runs})"
    figures = {"recording_s": length_s, "took_s": [round(r.took_s, 3) for r in runs],
               "times_real_time": round(median, 3)}  # fmt: skip
    return Outcome(figures, median > 1.0, line)


def _looped_corridor() -> str:
    for path in recordings():
        if path.parent.name == "gen2":
            return f"vrs:{path}?loop=33"
    raise SourceError("expected the Gen 2 recording in ../shared/data/aria, found none; name another: bench speed URI")
