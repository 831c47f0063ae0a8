"""The reflex path in real time: from the first frame in which a hazard meets the warning rule to the first sound.

Pre-rendered simulated walks are replayed in real time, the reflex in its worker process, the sound going to a card that
discards it (its reported buffer counts). Beside it, a reader decodes a looped real recording as a live session would:
the SLAM pair at 10 Hz and RGB at 1 Hz, at nice 10. A hazard is a true thing in the way and counts once: its first alert
before the walker runs into it. Confirmation frames are within the figure, since it begins with the first frame in which
the rule held. A hazard counts once, and so does a track: what was told too near or too far was told.

With ``--model`` the session answers questions all the while: frames are encoded as they arrive, and a prompt is read or
an answer written at any time.

The reflex worker asks for a higher priority than the rest; ``worker_nice`` in the figures says what it got.

Not in it: what lies before the hand-over of a frame in real glasses is declared (``streams.source.DECLARED_DELAY_MS``).
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import statistics
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from handrail.benchmarks.command import Outcome, from_1
from handrail.benchmarks.damage import recordings
from handrail.benchmarks.parallel import run_jobs
from handrail.benchmarks.world import Walk, about
from handrail.runtime.events import Alerted, Answered, AnyEvent, FrameSkipped, SceneChanged, SoundStarted, Started
from handrail.runtime.log import Timing
from handrail.runtime.reflex.runner import WORKER_NICE, Seen
from handrail.runtime.replay import Hooks, replay
from handrail.runtime.summary import latency_of
from handrail.runtime.terminal import print_table, say
from handrail.streams.clock import now_ns
from handrail.streams.drawn import tape_of
from handrail.streams.samples import Kind, Sample
from handrail.streams.source import DECLARED_DELAY_MS, DecodePlan
from handrail.streams.world.truth import TrueObstacle, Truth, truth_of

PROMISED_P95_MS = 150.0
WALK_S = 40.0
HAZARDS_A_WALK = 7  # about as many: how many walks to draw before the first is replayed
KINDS = ("textured", "mixed", "step-down", "head-bar", "dusk", "pole")
MS = 1e6


class Measured:
    """Latencies in milliseconds, by part, over all walks."""

    def __init__(self) -> None:
        self.parts: dict[str, list[float]] = {}
        self.hazards: list[float] = []
        self.slow: list[str] = []  # over what is promised, with their parts
        self.unheard = 0  # hazards that were due to be told and whose tone never sounded
        self.skipped = 0
        self.looks = 0
        self.answers = 0
        self.walked_s = 0.0

    def encoder_share(self) -> float:
        """Of one core by the clock, that frames encoded as they arrive took."""
        return sum(self.parts.get("pictures.encode", ())) / 1e3 / max(self.walked_s, 1.0)

    def add(self, part: str, ms: float) -> None:
        self.parts.setdefault(part, []).append(ms)

    def take_in(self, other: Measured) -> None:
        for part, values in other.parts.items():
            self.parts.setdefault(part, []).extend(values)
        self.hazards += other.hazards
        self.slow += other.slow
        self.unheard += other.unheard
        self.skipped += other.skipped
        self.looks += other.looks
        self.answers += other.answers
        self.walked_s += other.walked_s

    def walk(self, walk: Walk, events: list[AnyEvent], offset_ns: int) -> None:
        """Take in the log of one walk; ``offset_ns``: session time of a capture less its device time."""
        for e in events:
            match e:
                case SceneChanged():
                    self.looks += 1
                    self.add("capture to scene", (e.t_ns - e.scene.device_ns - offset_ns) / MS)
                case FrameSkipped():
                    self.skipped += 1
                case Answered():
                    self.answers += 1
        self.walked_s += WALK_S
        tones = _tones(events)
        for thing, alert in _first_alerts(events, truth_of(str(walk.seed), walk.options)):
            tone = tones.get(id(alert))
            if tone is None:
                self.unheard += 1
                continue
            whole = (tone.audible_ns - alert.first_rule_device_ns - offset_ns) / MS
            to_confirm = (alert.device_ns - alert.first_rule_device_ns) / MS
            self.hazards.append(whole)
            self.add("alert to heard", (tone.audible_ns - alert.t_ns) / MS)
            self.add("frames to confirm", to_confirm)
            if whole > PROMISED_P95_MS:
                self.slow.append(f"{walk.uri} {thing.kind} at {alert.distance_m:.1f} m: {whole:.0f} ms, "
                                 f"{to_confirm:.0f} of it to confirm")  # fmt: skip


def _first_alerts(events: list[AnyEvent], truth: Truth) -> Iterator[tuple[TrueObstacle, Alerted]]:
    """Each hazard and each track once: the first alert of the track that was about it, however far off its distance,
    but not one that was about another thing."""
    told: set[int] = set()
    tracks: set[int] = set()
    unclear: dict[int, Alerted] = {}  # by track: its first alert, which was about nothing that is there
    for e in events:
        if not isinstance(e, Alerted):
            continue
        thing = about(e, truth)
        if thing is None:
            unclear.setdefault(e.obstacle_id, e)
        elif thing.index not in told and e.obstacle_id not in tracks and _ahead(thing, e, truth):
            told.add(thing.index)
            tracks.add(e.obstacle_id)
            yield thing, unclear.get(e.obstacle_id, e)
        else:
            tracks.add(e.obstacle_id)


def _tones(events: list[AnyEvent]) -> dict[int, SoundStarted]:
    """``id`` of an alert -> the tone that it started: the next one of the same bearing."""
    waiting: dict[float, Alerted] = {}
    tones: dict[int, SoundStarted] = {}
    for e in events:
        match e:
            case Alerted():
                waiting[e.bearing_deg] = e
            case SoundStarted(utterance_id=None, bearing_deg=float(bearing)) if bearing in waiting:
                tones[id(waiting.pop(bearing))] = e
    return tones


def _ahead(thing: TrueObstacle, alert: Alerted, truth: Truth) -> bool:
    """In the way and not run into yet: the simulated walker passes through what it hits."""
    run_into = thing.contact_ns is not None and alert.device_ns >= thing.contact_ns
    return truth.seen_from(thing, alert.device_ns).in_corridor and not run_into


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--hazards", type=from_1, default=200, help="distinct hazards at least (200)")
    parser.add_argument("--seed", type=int, default=1000, help="of the first walk (1000)")
    parser.add_argument("--model", type=Path, metavar="BUNDLE", help="answer questions with it all the while")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="write the distribution as a PNG")


def run(args: argparse.Namespace) -> Outcome:
    measured = Measured()
    walks = 0
    run_jobs(draw, [_nth(args.seed, i) for i in range(-(-args.hazards // HAZARDS_A_WALK))], "walks drawn")
    with decoding_load() as loaded:
        while len(measured.hazards) < args.hazards:
            # A process of its own, as a session has: after twenty walks in one, its heap made them 10 ms slower.
            with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as process:
                measured.take_in(process.submit(measured_walk, _nth(args.seed, walks), args.model).result())
            walks += 1
            say(f"walk {walks}: {len(measured.hazards)} hazards, "
                f"median {statistics.median(measured.hazards or [0.0]):.0f} ms", sys.stderr)  # fmt: skip
    figures = _figures(measured, walks, loaded)
    figures["answering"] = None if args.model is None else {
        "bundle": args.model.name, "answers": measured.answers, "encoder_share": round(measured.encoder_share(), 3),
    }  # fmt: skip
    if args.plot is not None:
        plot(measured.hazards, args.plot)
    p95 = figures["hazard_to_heard_ms"]["p95"]
    line = f"{len(measured.hazards)} hazards: p95 {p95:.0f} ms to the first sound (promised: {PROMISED_P95_MS:.0f})"
    return Outcome(figures, p95 <= PROMISED_P95_MS, line)


def _nth(first_seed: int, n: int) -> Walk:
    return Walk(first_seed + n // len(KINDS), KINDS[n % len(KINDS)], WALK_S, 2)


def draw(walk: Walk) -> None:
    tape_of(walk.uri)


def measured_walk(walk: Walk, model: Path | None = None) -> Measured:
    measured = Measured()
    events: list[AnyEvent] = []
    handed: list[int] = []  # hand-over less capture of each frame, the loop's clock less the device's
    started_ns = 0

    def event(e: AnyEvent) -> None:
        nonlocal started_ns
        if isinstance(e, Started):
            started_ns = now_ns() - e.t_ns
        events.append(e)

    def sample(s: Sample) -> None:
        if s.stream.kind is Kind.SLAM:
            handed.append(s.host_ns - s.device_ns)

    def seen(look: Seen) -> None:
        for stage, ms in look.stages_ms.items():
            measured.add(f"reflex: {stage}", ms)

    def timing(t: Timing) -> None:
        if t.ms is not None:
            measured.add(t.what, t.ms)

    hooks = Hooks(on_event=event, on_seen=seen, on_sample=sample, on_timing=timing)
    loaded = None
    if model is not None:
        from handrail.benchmarks.asking_load import WithPictures, answering  # needs what a replay without doesn't

        loaded, hooks.wrap = answering(model, WALK_S), WithPictures
    tape = f"tape:{tape_of(walk.uri)}"
    replay(tape, plan=DecodePlan(), speed="real", sound="null", hooks=hooks, loaded=loaded)
    offset_ns = min(handed) - round(DECLARED_DELAY_MS[Kind.SLAM] * MS) - started_ns
    measured.walk(walk, events, offset_ns)
    return measured


def _figures(m: Measured, walks: int, loaded: str) -> dict[str, Any]:
    rows = {"hazard to heard": m.hazards, **m.parts}
    latencies = {name: latency_of(values) for name, values in rows.items()}
    print_table("reflex path, ms", ("part", "n", "p50", "p95", "p99"),
                [(name, v.n, v.p50, v.p95, v.p99) for name, v in latencies.items()])  # fmt: skip
    as_figures = {name: {"n": v.n, "p50": v.p50, "p95": v.p95, "p99": v.p99} for name, v in latencies.items()}
    return {
        "walks": walks, "hazard_to_heard_ms": as_figures.pop("hazard to heard"), "parts_ms": as_figures,
        "declared_delivery_ms": DECLARED_DELAY_MS[Kind.SLAM], "looks": m.looks, "frames_skipped": m.skipped,
        "unheard": m.unheard, "slow": m.slow, "load": loaded, "worker_nice": _granted_nice(),
    }  # fmt: skip


def _granted_nice() -> int:
    """The priority that a process here gets when it asks for the reflex worker's."""
    asking = f"import os\ntry: print(os.nice({WORKER_NICE}))\nexcept PermissionError: print(os.nice(0))"
    asked = subprocess.run([sys.executable, "-c", asking], capture_output=True, text=True, check=True)  # noqa: S603
    return int(asked.stdout)


@contextlib.contextmanager
def decoding_load() -> Iterator[str]:
    """Decode a real recording in real time in another process while the block runs; says what it decodes."""
    originals = [path for path in recordings() if path.parent.name == "gen2"]
    if not originals:
        yield "none: the Gen 2 recording isn't here"
        return
    uri = f"vrs:{originals[0]}?loop=100000"
    load = subprocess.Popen([sys.executable, "-m", "handrail.benchmarks.decode_load", uri])  # noqa: S603
    try:
        yield "SLAM pair at 10 Hz and RGB at 1 Hz of the Gen 2 recording, nice 10"
    finally:
        load.terminate()
        load.wait()


def plot(values_ms: list[float], path: Path) -> None:
    """Histogram with the promise marked."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 3.5), layout="constrained")
    axes.hist(values_ms, bins=40, color="#2f6f9f")
    axes.axvline(PROMISED_P95_MS, color="#b3261e", linestyle="--", label=f"promised p95: {PROMISED_P95_MS:.0f} ms")
    axes.set(xlabel="first frame that meets the warning rule to first sample heard, ms", ylabel="hazards")
    axes.legend()
    figure.savefig(path, dpi=120)
    plt.close(figure)
