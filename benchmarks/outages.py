"""Random camera outages on simulated walks, replayed on virtual time: does the wearer hear of each, and how soon?

    blind earcon     0.5 s after the last good frame was judged; never for a gap under 0.5 s
    "I can't see."   begins within 1.5 s of the last good frame's capture
    guidance back    a scene, and with it warnings, within 1 s of the next good frame's capture

An outage is no frames, black frames, saturated ones or frozen ones, of one camera or both. One that begins while the
wearer has been told of blindness and not yet of sight is flapping, which is announced once: then blindness is what must
still be told at its end. Everything is read off the event log; nothing is asked of the state machine.
"""

from __future__ import annotations

import argparse
import itertools
import random
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from handrail.benchmarks.command import Outcome, from_1
from handrail.benchmarks.parallel import run_jobs
from handrail.runtime.events import AnyEvent, SceneChanged, SoundStarted, Spoken
from handrail.runtime.replay import Hooks, replay
from handrail.runtime.speech.phrases import Notice
from handrail.streams.drawn import tape_of
from handrail.streams.faults import Fault, FaultySource, What
from handrail.streams.samples import Kind

WALK = "world:{seed}?kind=free&seconds=12&gen=2"
FIRST_WALK, WALKS = 1000, 8  # rendered once, used again with other outages
KINDS = (What.GAP, What.GAP, What.BLACK, What.SATURATED, What.FREEZE)
EARCON_S, WORDS_S, BACK_S = 0.5, 1.5, 1.0
LATENESS_S = 0.04  # a period and the buffer of the sound device


@dataclass(frozen=True, slots=True)
class Job:
    walk: int
    seed: int


@dataclass(slots=True)
class Found:
    outages: int = 0  # gaps in judged frames that the wearer must hear of
    silent_gaps: int = 0  # shorter ones
    flapping: int = 0  # of the outages: they began before sight was told
    earcon_s: list[float] = field(default_factory=list)  # after the last good frame was judged
    words_s: list[float] = field(default_factory=list)  # after the last good frame's capture
    back_s: list[float] = field(default_factory=list)  # scene after the next good frame's capture
    misses: list[str] = field(default_factory=list)


def outages_of(seed: int, length_s: float = 11.5) -> list[Fault]:
    """Three or four outages, one in four of them a short gap, with pauses of sight between them."""
    dice = random.Random(seed)  # noqa: S311 - reproducible, not secret
    faults: list[Fault] = []
    at = dice.uniform(1.2, 2.2)
    while True:
        lasts = dice.uniform(0.15, 0.6) if dice.random() < 0.25 else dice.uniform(0.6, 3.0)
        if at + lasts > length_s - 1.2:
            return faults
        faults.append(Fault(Kind.SLAM, dice.choice(KINDS), at, at + lasts))
        at += lasts + dice.uniform(0.8, 2.2)


def run_job(job: Job) -> Found:
    events: list[AnyEvent] = []
    faults = outages_of(job.seed)
    tape = tape_of(WALK.format(seed=FIRST_WALK + job.walk))
    replay(f"tape:{tape}", hooks=Hooks(on_event=events.append, wrap=lambda source: FaultySource(source, faults)))
    return judge(events, f"walk {job.walk}, outages {job.seed}")


def judge(events: list[AnyEvent], where: str) -> Found:
    """Compare every gap between good frames with what was heard in it."""
    found = Found()
    good = [(e.t_ns / 1e9, e.t_ns / 1e9 - e.age_ms / 1e3) for e in events
            if isinstance(e, SceneChanged) and e.scene.quality.usable]  # fmt: skip
    earcons = [e.audible_ns / 1e9 for e in events if isinstance(e, SoundStarted) and e.sound == "earcon.blind"]
    words = _heard(events, Notice.CANT_SEE)
    again = [e.audible_ns / 1e9 for e in events if isinstance(e, SoundStarted) and e.sound == "earcon.again"]
    for (judged, captured), (judged_next, captured_next) in itertools.pairwise(good):
        gap = round(judged_next - judged, 6)  # half a second is half a second, whatever floats make of it
        here = f"{where}: frames stop at {judged:.2f} s for {gap:.2f} s"
        first = next((t - judged for t in earcons if judged < t <= judged_next + LATENESS_S), None)
        if gap <= EARCON_S:
            found.silent_gaps += gap > 0.15
            if first is not None:
                found.misses.append(f"{here}: blind earcon in a short gap")
            continue
        found.outages += 1
        found.back_s.append(judged_next - captured_next)
        if _last(earcons, judged) > _last(again, judged + LATENESS_S):
            found.flapping += 1
            if _last(again, judged_next) > judged:
                found.misses.append(f"{here}: sight was told in the middle of it")
            continue
        if first is None or abs(first - EARCON_S) > LATENESS_S:
            found.misses.append(f"{here}: blind earcon after {first} s")
        else:
            found.earcon_s.append(first)
        if gap > WORDS_S:
            said = next((t - captured for t in words if judged < t <= judged_next), None)
            if said is None or said > WORDS_S:
                found.misses.append(f"{here}: words after {said} s")
            else:
                found.words_s.append(said)
        if judged_next - captured_next > BACK_S:
            found.misses.append(f"{here}: guidance back after {judged_next - captured_next:.2f} s")
    return found


def _last(times: list[float], until: float) -> float:
    return max((t for t in times if t <= until), default=-1.0)


def _heard(events: list[AnyEvent], notice: Notice) -> list[float]:
    ids = {e.utterance_id for e in events if isinstance(e, Spoken) and e.text == notice.value}
    return [e.audible_ns / 1e9 for e in events if isinstance(e, SoundStarted) and e.utterance_id in ids]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--count", type=from_1, default=1000, help="outages of at least 0.5 s (default: 1000)")
    parser.add_argument("--seed", type=int, default=0, help="of the first session (default: 0)")


def run_outages(count: int, seed: int = 0, processes: int | None = None) -> Found:
    """Sessions of 12 s until ``count`` outages have been heard of or missed."""
    for walk in range(WALKS):
        tape_of(WALK.format(seed=FIRST_WALK + walk))
    total, next_seed = Found(), seed
    while total.outages < count:
        batch = max(1, (count - total.outages) // 3)
        jobs = [Job((next_seed + i) % WALKS, next_seed + i) for i in range(batch)]
        next_seed += batch
        for found in run_jobs(run_job, jobs, "outages", processes):
            total.outages += found.outages
            total.silent_gaps += found.silent_gaps
            total.flapping += found.flapping
            for name in ("earcon_s", "words_s", "back_s", "misses"):
                getattr(total, name).extend(getattr(found, name))
    return total


def run(args: argparse.Namespace) -> Outcome:
    found = run_outages(args.count, args.seed)
    figures: dict[str, Any] = {
        "outages": found.outages, "silent_gaps": found.silent_gaps, "flapping": found.flapping, "misses": found.misses,
        "earcon_after_judged_s": spread(found.earcon_s), "words_after_capture_s": spread(found.words_s),
        "back_after_capture_s": spread(found.back_s),
    }  # fmt: skip
    line = (
        f"{found.outages} outages ({found.flapping} while still told blind), {len(found.misses)} misses; "
        f"median and longest: blind earcon {_at(found.earcon_s)}, words {_at(found.words_s)}, "
        f"guidance back {_at(found.back_s)}"
    )
    return Outcome(figures, not found.misses, line)


def spread(values: list[float]) -> dict[str, float | int | None]:
    if not values:
        return {"n": 0, "p50": None, "max": None}
    return {"n": len(values), "p50": round(float(np.median(values)), 4), "max": round(max(values), 4)}


def _at(values: list[float]) -> str:
    return f"{np.median(values):.2f} s, {max(values):.2f} s" if values else "none"


