"""Simulated walks through the whole path, against their truth: what was found, when it was told, what was told in vain.

Recall and precision per kind of obstacle (``scoring``); for every contact on the unwarned path, how long before it the
earcon and the phrase had *ended*; on walks with nothing in the way, how much was said and sounded; false NOW alerts an
hour. Thresholds were frozen on seeds 0-99; figures are reported on 1000-1019.
"""

from __future__ import annotations

import argparse
import math
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from handrail.benchmarks.command import Outcome, above_0, from_1
from handrail.benchmarks.parallel import run_jobs
from handrail.benchmarks.scoring import Tally, score
from handrail.runtime.events import Alerted, AnyEvent, Priority, Queued, SceneChanged, SoundEnded, SoundStarted
from handrail.runtime.replay import Hooks, replay
from handrail.runtime.terminal import print_table
from handrail.streams.drawn import tape_of
from handrail.streams.errors import ConfigError
from handrail.streams.world.options import KINDS
from handrail.streams.world.truth import TrueObstacle, Truth, truth_of

EARCON_LEAD_S, PHRASE_LEAD_S = 1.5, 0.9
VISIBLE_S = 2.5  # seen so long, a warning in time is promised
SENSING_M = 5.0  # visible farther off doesn't count towards it
RECALL, PRECISION = 0.95, 0.9  # textured obstacles
TEXTURED = ("ground", "knee", "waist", "head")  # kinds of the truth that a "textured" walk holds
PROMISED = {"textured", "free"}  # kinds of walks that are judged; the others are reported as measured
SPEECH_A_MINUTE, TONE_SHARE = 1.0, 0.10
ABOUT_M = 1.0  # an alert this near to a thing is about it


@dataclass(frozen=True, slots=True)
class Walk:
    seed: int
    kind: str
    seconds: float
    generation: int

    @property
    def uri(self) -> str:
        return f"world:{self.seed}?kind={self.kind}&seconds={self.seconds:g}&gen={self.generation}"

    @property
    def options(self) -> dict[str, str]:
        return {"kind": self.kind, "seconds": f"{self.seconds:g}", "gen": str(self.generation)}


@dataclass(frozen=True, slots=True)
class Contact:
    """One collision of the unwarned walker."""

    kind: str
    seed: int
    visible_s: float
    earcon_lead_s: float | None  # from the end of the earcon to contact; None: never warned
    phrase_lead_s: float | None

    @property
    def promised(self) -> bool:
        return self.visible_s >= VISIBLE_S

    @property
    def in_time(self) -> bool:
        return (self.earcon_lead_s or -1.0) >= EARCON_LEAD_S and (self.phrase_lead_s or -1.0) >= PHRASE_LEAD_S


@dataclass(slots=True)
class Found:
    walk: Walk
    tally: Tally
    duration_s: float
    contacts: list[Contact] = field(default_factory=list)
    now_alerts: int = 0
    false_now: int = 0  # NOW, and what it is about (within a metre) is nothing, or nothing in the way
    utterances: int = 0
    tone_s: float = 0.0


def run_walk(walk: Walk) -> Found:
    events: list[AnyEvent] = []
    replayed = replay(f"tape:{tape_of(walk.uri)}", hooks=Hooks(on_event=events.append))
    truth = truth_of(str(walk.seed), walk.options)
    first_ns = replayed.info.first_device_ns
    found = Found(walk, Tally(), replayed.info.duration_s or 0.0)
    for event in events:
        match event:
            case SceneChanged():
                found.tally.add(score(event.scene, truth))
            case SoundEnded(_, sound, _, heard_s, _) if sound.startswith("earcon."):
                found.tone_s += heard_s
            case SoundEnded():
                found.utterances += event.heard_s > 0
            case Alerted():
                thing = about(event, truth)
                true = thing is not None and truth.seen_from(thing, event.device_ns).in_corridor
                found.now_alerts += event.priority is Priority.NOW
                found.false_now += event.priority is Priority.NOW and not true
    found.contacts = [_contact(o, truth, events, first_ns, walk) for o in truth.obstacles if o.contact_ns is not None]
    return found


def about(alert: Alerted, truth: Truth) -> TrueObstacle | None:
    """The true thing an alert is about: the nearest to the place it names, within a metre, a drop for a drop-off."""
    pose = truth.pose_at(alert.device_ns)
    best, best_m = None, ABOUT_M
    for o in truth.obstacles:
        if o.drop_off != (alert.rule == "drop_off"):
            continue
        s = truth.seen_from(o, alert.device_ns, pose.travel_rad)
        turn = math.radians(s.bearing_deg - alert.bearing_deg)
        off_m = math.sqrt(max(0.0, s.distance_m**2 + alert.distance_m**2
                              - 2 * s.distance_m * alert.distance_m * math.cos(turn)))  # fmt: skip
        if off_m < best_m:
            best, best_m = o, off_m
    return best


def _contact(o: TrueObstacle, truth: Truth, events: list[AnyEvent], first_ns: int, walk: Walk) -> Contact:
    assert o.contact_ns is not None
    contact_s = (o.contact_ns - first_ns) / 1e9
    looks = [e.scene.device_ns for e in events if isinstance(e, SceneChanged) and e.scene.device_ns < o.contact_ns]
    period_s = (looks[-1] - looks[0]) / 1e9 / max(1, len(looks) - 1) if len(looks) > 1 else 0.1
    visible = [t for t in looks if truth.seen_from(o, t).distance_m <= SENSING_M and truth.visible_to_pair(o, t)]
    earcon_s, phrase_s = _told(o, truth, events, contact_s)
    return Contact(
        o.kind, walk.seed, round(len(visible) * period_s, 2),
        None if earcon_s is None else round(contact_s - earcon_s, 3),
        None if phrase_s is None else round(contact_s - phrase_s, 3),
    )  # fmt: skip


def _told(o: TrueObstacle, truth: Truth, events: list[AnyEvent], before_s: float) -> tuple[float | None, float | None]:
    """When the first earcon and the first phrase about it had been heard to the end (seconds since the start)."""
    earcon_s = phrase_s = None
    mine: set[int] = set()
    frames: set[int] = set()
    bearings: set[float] = set()  # an alert and its earcon have the same one
    sounding: dict[int, float] = {}
    previous: AnyEvent | None = None
    for e in events:
        match e:
            case Alerted() if (thing := about(e, truth)) is not None and thing.index == o.index:
                frames.add(e.device_ns)
                bearings.add(e.bearing_deg)
            case Queued() if isinstance(previous, Alerted) and previous.device_ns in frames and e.t_ns == previous.t_ns:
                mine.add(e.utterance_id)
            case SoundStarted() if e.utterance_id in mine and e.utterance_id is not None:
                sounding[e.utterance_id] = e.audible_ns / 1e9
            case SoundStarted() if e.utterance_id is None and e.bearing_deg in bearings and earcon_s is None:
                earcon_s = e.audible_ns / 1e9 + e.duration_s
            case SoundEnded() if e.whole and e.utterance_id in sounding and phrase_s is None:
                phrase_s = sounding[e.utterance_id] + e.heard_s
        if not isinstance(e, SoundStarted):
            previous = e
    return earcon_s, phrase_s


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seeds", default="1000:1020", metavar="A:B", help="first and one past the last (1000:1020)")
    parser.add_argument("--kinds", default="all", help="comma-separated, or all: " + ", ".join(KINDS))
    parser.add_argument("--seconds", type=above_0, default=12.0, help="of each walk (12)")
    parser.add_argument("--gen", type=int, choices=(1, 2), default=2, help="of the glasses (2)")
    parser.add_argument("--jobs", type=from_1, default=None, help="processes (all cores)")


def run(args: argparse.Namespace) -> Outcome:
    kinds = KINDS if args.kinds == "all" else tuple(args.kinds.split(","))
    walks = [Walk(seed, kind, args.seconds, args.gen) for kind in kinds for seed in _seeds(args.seeds)]
    found = run_jobs(run_walk, walks, "walks", args.jobs)
    per_kind = {kind: _figures([f for f in found if f.walk.kind == kind]) for kind in kinds}
    _print(per_kind)
    shortfalls = _shortfalls(per_kind)
    hours = sum(f.duration_s for f in found) / 3600
    figures: dict[str, Any] = {
        "seeds": args.seeds, "seconds": args.seconds, "generation": args.gen, "kinds": per_kind,
        "false_now_an_hour": round(sum(f.false_now for f in found) / max(hours, 1e-9), 2), "hours": round(hours, 3),
        "shortfalls": shortfalls,
    }  # fmt: skip
    line = f"{len(walks)} walks, {figures['false_now_an_hour']} false NOW an hour: "
    judged = "all that is promised held" if set(per_kind) & PROMISED else "measured; textured and free ones are judged"
    return Outcome(figures, not shortfalls, line + ("; ".join(shortfalls) or judged))


def _seeds(text: str) -> range:
    first, _, end = text.partition(":")
    if not (first.isascii() and first.isdigit() and end.isascii() and end.isdigit() and int(first) < int(end)):
        raise ConfigError(f"--seeds {text}: expected A:B with A before B, e.g. 1000:1020")
    return range(int(first), int(end))


def _figures(found: list[Found]) -> dict[str, Any]:
    tally = Tally()
    for f in found:
        tally.found += f.tally.found
        tally.remembered += f.tally.remembered
        tally.missed += f.tally.missed
        tally.wrong += f.tally.wrong
    kinds = sorted({*tally.found, *(k for k, _ in tally.missed)} - {"aside"})
    contacts = [c for f in found for c in f.contacts]
    promised = [c for c in contacts if c.promised]
    minutes = sum(f.duration_s for f in found) / 60
    return {
        "walks": len(found), "minutes": round(minutes, 2),
        "recall": {k: _share(tally.recall((k,))) for k in kinds}, "recall_all": _share(tally.recall(kinds)),
        "precision_all": _share(tally.precision((*kinds, "aside"))),
        "missed": {f"{k}: {why}": n for (k, why), n in sorted(tally.missed.items()) if k != "aside"},
        "wrong": {f"{k}: {why}": n for (k, why), n in sorted(tally.wrong.items())},
        "contacts": len(contacts), "contacts_promised": len(promised),
        "promised_in_time": sum(c.in_time for c in promised),
        "other_contacts": dict(Counter(_reason(c) for c in contacts if not c.promised)),
        "late": [f"seed {c.seed} {c.kind}: earcon {c.earcon_lead_s}, phrase {c.phrase_lead_s}"
                 for c in promised if not c.in_time],
        "now_alerts": sum(f.now_alerts for f in found), "false_now": sum(f.false_now for f in found),
        "utterances_a_minute": round(sum(f.utterances for f in found) / max(minutes, 1e-9), 2),
        "tone_share": round(sum(f.tone_s for f in found) / max(minutes * 60, 1e-9), 4),
    }  # fmt: skip


def _reason(c: Contact) -> str:
    if c.visible_s == 0:
        return "never visible to the pair"
    return "seen late, warned in time" if c.in_time else "seen late, warned late" if c.earcon_lead_s else "seen late"


def _shortfalls(per_kind: dict[str, dict[str, Any]]) -> list[str]:
    short = []
    if (t := per_kind.get("textured")) is not None:
        if (t["recall_all"] or 0) < RECALL:
            short.append(f"textured: recall {t['recall_all']} under {RECALL}")
        if (t["precision_all"] or 0) < PRECISION:
            short.append(f"textured: precision {t['precision_all']} under {PRECISION}")
        if t["promised_in_time"] < t["contacts_promised"]:
            short.append(f"textured: {t['contacts_promised'] - t['promised_in_time']} of {t['contacts_promised']} late")
    if (f := per_kind.get("free")) is not None:
        if f["utterances_a_minute"] > SPEECH_A_MINUTE:
            short.append(f"free: {f['utterances_a_minute']} utterances a minute")
        if f["tone_share"] > TONE_SHARE:
            short.append(f"free: tones {f['tone_share']:.0%} of the time")
    return short


def _share(value: float) -> float | None:
    return None if math.isnan(value) else round(value, 4)


def _print(per_kind: dict[str, dict[str, Any]]) -> None:
    print_table(
        "simulated walks against their truth",
        ("kind", "walks", "recall", "precision", "contacts", "promised", "in time", "false NOW", "said/min", "tones"),
        [(kind, f["walks"], f["recall_all"], f["precision_all"], f["contacts"], f["contacts_promised"],
          f["promised_in_time"], f["false_now"], f["utterances_a_minute"], f["tone_share"])
         for kind, f in per_kind.items()],
    )  # fmt: skip
