"""Damaged copies of real recordings, each replayed to its end: the main process must live, and every end must be told.

Four kinds of damage in turn: one byte, a burst of 64 bytes, a block of 4 KiB zeroed, the file cut short. The native
readers die on some of them; what is shown here is that the process which speaks to the wearer does not. A copy is
either refused with one clear line, or replayed: then whatever the reader lost is a fault event *and* a spoken line.
Each replay runs on a virtual loop in this very process (or a worker's, whose death would be noticed).
"""

from __future__ import annotations

import argparse
import random
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from handrail.benchmarks.command import Outcome, from_1
from handrail.benchmarks.parallel import run_jobs
from handrail.runtime.events import AnyEvent, Ended, Fault, Spoken
from handrail.runtime.replay import Hooks, replay
from handrail.streams.errors import HandrailError, MissingDependencyError, SourceError
from handrail.streams.source import DecodePlan

KINDS = ("byte", "burst", "zeroed", "truncated")
EVERYTHING = DecodePlan(stereo_hz=30.0, rgb_hz=10.0)  # most native code per copy
RECORDINGS = Path(__file__).resolve().parent.parent.parent / "shared" / "data" / "aria"


@dataclass(frozen=True, slots=True)
class Job:
    original: Path
    index: int
    seed: int

    @property
    def kind(self) -> str:
        return KINDS[self.index % len(KINDS)]


@dataclass(frozen=True, slots=True)
class Verdict:
    name: str  # which copy, and what was done to it
    end: Literal["refused", "faulted", "whole", "failed"]
    message: str = ""


@dataclass(frozen=True, slots=True)
class DamageResult:
    verdicts: tuple[Verdict, ...] = field(default=())

    @property
    def counts(self) -> dict[str, int]:
        found = Counter(v.end for v in self.verdicts)
        return {end: found[end] for end in ("refused", "faulted", "whole", "failed")}

    @property
    def failures(self) -> list[str]:
        return [f"{v.name}: {v.message}" for v in self.verdicts if v.end == "failed"]


def recordings() -> list[Path]:
    """The real recordings lying beside the repository; empty where there are none."""
    return sorted(RECORDINGS.glob("gen*/*.vrs"))


def run_damage(
    count: int, seed: int, originals: Sequence[Path] | None = None, processes: int | None = 1
) -> DamageResult:
    """Raises SourceError where there are no recordings, MissingDependencyError without projectaria_tools."""
    originals = recordings() if originals is None else originals
    if not originals:
        raise SourceError("expected recordings in ../shared/data/aria, found none: there is nothing to damage")
    jobs = [Job(originals[(i // len(KINDS)) % len(originals)], i, seed) for i in range(count)]
    return DamageResult(tuple(run_jobs(judge, jobs, "damaged copies", processes)))


def damaged(job: Job) -> tuple[str, bytes]:
    """Name and content of a copy; the same for the same seed."""
    dice = random.Random(f"{job.seed} {job.index}")  # noqa: S311 - reproducible, not secret
    content = bytearray(job.original.read_bytes())
    at = dice.randrange(len(content))
    match job.kind:
        case "byte":
            content[at] ^= dice.randrange(1, 256)
        case "burst":
            content[at : at + 64] = dice.randbytes(len(content[at : at + 64]))
        case "zeroed":
            content[at : at + 4096] = bytes(len(content[at : at + 4096]))
        case _:
            del content[at:]
    return f"{job.index}: {job.original.name}, {job.kind} at {at}", bytes(content)


def judge(job: Job) -> Verdict:
    """Replay one copy to its end."""
    name, content = damaged(job)
    events: list[AnyEvent] = []
    with tempfile.TemporaryDirectory(prefix="handrail-damage-") as folder:
        copy = Path(folder) / "copy.vrs"
        copy.write_bytes(content)
        try:
            replay(f"vrs:{copy}", plan=EVERYTHING, hooks=Hooks(on_event=events.append))
        except MissingDependencyError:
            raise
        except HandrailError as e:
            one_line = "\n" not in str(e)
            return Verdict(name, "refused" if one_line else "failed", str(e).replace(str(copy), copy.name))
        except Exception as e:  # whatever else comes out is what this looks for
            return Verdict(name, "failed", f"{type(e).__name__}: {e}")
    return _told(name, events)


def _told(name: str, events: list[AnyEvent]) -> Verdict:
    if not events or not isinstance(events[-1], Ended):
        return Verdict(name, "failed", "the log has no end")
    faults = [e for e in events if isinstance(e, Fault)]
    if not faults:
        return Verdict(name, "whole")  # the damage lies where nobody looks, or left whole records alone
    if not any(isinstance(e, Spoken) and e.kind == "health" for e in events):
        return Verdict(name, "failed", f"{faults[0].detail}: nothing was said about it")
    return Verdict(name, "faulted", faults[0].detail)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--count", type=from_1, default=500, help="damaged copies (500)")
    parser.add_argument("--seed", type=int, default=0, help="of the damage (0)")


def run(args: argparse.Namespace) -> Outcome:
    result = run_damage(args.count, args.seed, processes=None)
    figures = {"copies": args.count, "seed": args.seed, **result.counts, "failures": result.failures}
    line = ", ".join(f"{n} {end}" for end, n in result.counts.items())
    return Outcome(figures, not result.failures, f"{args.count} damaged copies: {line}")
