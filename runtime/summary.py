"""``summary.json``: what a run heard, said and cost, from its events alone. Its keys are stable: others build on them.

Times in seconds on the recording's time line: 0 is the start of the session, which is ``first_device_ns`` on the device
clock; a sound's time is when it is *heard*. ``bearing_deg`` is clockwise from the reference heading (of travel while
walking, of the nose while standing still): **negative is left, positive is right**. Latencies run from capture to the
scene being there, or to the first sample being heard.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec
import numpy as np

from handrail.runtime.events import (
    Alerted,
    AnswerBegun,
    Answered,
    AnyEvent,
    Asked,
    ClauseReady,
    Ended,
    Fault,
    FrameSkipped,
    GoalChanged,
    Queued,
    SceneChanged,
    Seam,
    SoundEnded,
    SoundStarted,
    Spoken,
    Started,
    StateChanged,
    StreamCount,
    TextSeen,
    Unsaid,
)
from handrail.runtime.scene import Scene, Thing
from handrail.runtime.terminal import print_table, say

NS_PER_S = 1e9
NS_PER_MS = 1e6
AHEAD_DEG, BESIDE_DEG = 45.0, 100.0  # up to here a thing is ahead, beside
PATHS = ("frame_to_scene", "frame_to_earcon", "frame_to_phrase")


class Heard(msgspec.Struct, frozen=True):
    """An utterance as far as it was heard: one that was cut ends where it was cut."""

    start_s: float
    end_s: float
    text: str
    priority: str  # "now", "next", "normal"
    kind: str  # "hazard", "health", "status", "answer"
    source_device_ns: int | None


class Latency(msgspec.Struct, frozen=True):
    """Milliseconds; percentiles interpolate linearly and are None when n is 0."""

    n: int
    p50: float | None
    p95: float | None
    p99: float | None


class AnswerGiven(msgspec.Struct, frozen=True):
    """What came of a question, a goal's step or a change of scene."""

    kind: str  # "question", "scene", "goal", "step", "read", "change"
    question: str
    asked_s: float
    outcome: str  # "said", "silent", "refused", "cancelled", "limit", "repeated", "failed"; "open": the run ended first
    text: str  # what the model wrote
    said: list[str]  # clauses handed to speech
    frames: int
    sensors: dict[str, float]  # stream -> share of its 64 bins that were valid
    tokens: int
    first_token_ms: float | None  # from asking, as the next two
    first_word_ms: float | None  # to the first sample heard of the answer
    parts_ms: dict[str, float]  # they add up to the time from asking to the last token


class StateAt(msgspec.Struct, frozen=True):
    t_s: float
    state: str


class FinalObstacle(msgspec.Struct, frozen=True):
    """``label`` is a detector's word, "drop_off" where the ground is missing, else None."""

    bearing_deg: float
    distance_m: float
    height_band: str
    label: str | None


class FinalScene(msgspec.Struct, frozen=True):
    obstacles: tuple[FinalObstacle, ...] = ()


class Summary(msgspec.Struct, frozen=True):
    streams: dict[str, StreamCount]
    utterances: list[Heard]
    latency_ms: dict[str, Latency]
    states: list[StateAt]
    scene_final: FinalScene
    answers: list[AnswerGiven]
    events_sha256: str
    realtime_factor: float | None  # recording's seconds per second it took; None when not measured


class Run:
    """Everything that the summary and the report need of a run, gathered in one pass over its events."""

    def __init__(self) -> None:
        self.started: Started | None = None
        self.ended: Ended | None = None
        self.end_ns = 0  # of the last thing that happened or was heard
        self.states: list[StateChanged] = []
        self.latencies_ms: dict[str, list[float]] = {path: [] for path in PATHS}
        self.first_tones_ms: list[float] = []  # of "frame_to_earcon": one for each thing, when it was first told
        self.last_scene: Scene | None = None
        self.sounds: list[Sounding] = []  # all, in the order in which they were started
        self.queued: dict[int, Queued] = {}
        self.unsaid: dict[int, Unsaid] = {}  # the last reason of each utterance
        self.alerts: list[Alerted] = []
        self.skipped: dict[str, int] = {}  # reason -> frames
        self.faults: list[Fault | Seam] = []
        self.answers: dict[int, Answering] = {}  # by query
        self.goals: list[GoalChanged] = []
        self.texts: dict[int, tuple[int, TextSeen]] = {}  # by text: when it was first read, and as it was read last
        self.found: set[tuple[int, int]] = set()  # every obstacle that was ever confirmed: (scenes begun anew, id)
        self._told: set[tuple[int, int]] = set()
        self._news: list[float] = []  # bearings of first alerts whose tone hasn't been heard yet
        self._playing: dict[int, Sounding] = {}
        self._waiting: dict[int, Spoken] = {}  # words whose sound hasn't started

    def add(self, event: AnyEvent) -> None:
        self.end_ns = max(self.end_ns, event.t_ns)
        match event:
            case Started():
                self.started = event
            case SceneChanged():
                self.last_scene = event.scene
                self.found.update((len(self.faults), o.id) for o in event.scene.obstacles if o.confirmed)
                self._took("frame_to_scene", event.t_ns, event.scene.device_ns)
            case FrameSkipped():
                self.skipped[event.reason] = self.skipped.get(event.reason, 0) + 1
            case Alerted():
                self._alerted(event)
            case Queued():
                self.queued[event.utterance_id] = event
            case Spoken():
                self._spoken(event)
            case SoundStarted():
                self._sounds(event)
            case SoundEnded():
                if event.utterance_id is not None and (playing := self._playing.pop(event.utterance_id, None)):
                    playing.heard_s = event.heard_s
            case Unsaid():
                self.unsaid[event.utterance_id] = event
            case StateChanged():
                self.states.append(event)
            case Seam() | Fault():
                self.faults.append(event)
            case Asked():
                self.answers[event.query_id] = Answering(event)
            case AnswerBegun():
                self.answers[event.query_id].begun = event
            case ClauseReady():
                self.answers[event.query_id].clauses.append(event)
            case Answered():
                self.answers[event.query_id].answered = event
            case GoalChanged():
                self.goals.append(event)
            case TextSeen():
                self.texts[event.text_id] = self.texts.get(event.text_id, (event.t_ns, event))[0], event
            case Ended():
                self.ended = event

    def _alerted(self, event: Alerted) -> None:
        """A repeat is about what was last seen a while ago: how old that is says nothing of how quick a warning is."""
        self.alerts.append(event)
        key = len(self.faults), event.obstacle_id  # after a seam, or a worker lost, numbers begin at 1 again
        if key not in self._told:
            self._told.add(key)
            self._news.append(event.bearing_deg)

    def _spoken(self, event: Spoken) -> None:
        """Words and sound of an utterance come in either order; one that was cut may sound again with other words."""
        playing = self._playing.get(event.utterance_id)
        if playing is not None and playing.words is None:
            playing.words = event
            self._hazard_heard(playing)
        else:
            self._waiting[event.utterance_id] = event

    def _sounds(self, event: SoundStarted) -> None:
        sounding = Sounding(event, event.duration_s)
        self.sounds.append(sounding)
        self.end_ns = max(self.end_ns, event.audible_ns + round(event.duration_s * NS_PER_S))
        if event.utterance_id is not None:
            sounding.words = self._waiting.pop(event.utterance_id, None)
            self._playing[event.utterance_id] = sounding
            self._hazard_heard(sounding)
        elif event.source_device_ns is not None:
            self._took("frame_to_earcon", event.audible_ns, event.source_device_ns)
            if event.bearing_deg in self._news:
                self._news.remove(event.bearing_deg)
                self.first_tones_ms.append(self.latencies_ms["frame_to_earcon"][-1])

    def _hazard_heard(self, s: Sounding) -> None:
        if s.words is not None and s.words.kind == "hazard" and s.words.source_device_ns is not None:
            self._took("frame_to_phrase", s.sound.audible_ns, s.words.source_device_ns)

    def _took(self, path: str, t_ns: int, device_ns: int) -> None:
        first_device_ns = 0 if self.started is None else self.started.first_device_ns
        self.latencies_ms[path].append((t_ns - (device_ns - first_device_ns)) / NS_PER_MS)

    def summary(self, *, events_sha256: str, realtime_factor: float | None = None) -> Summary:
        return Summary(
            streams={} if self.ended is None else self.ended.streams,
            utterances=[heard for s in self.sounds if (heard := s.as_heard())],
            latency_ms={path: latency_of(values) for path, values in self.latencies_ms.items()},
            states=[StateAt(round(e.t_ns / NS_PER_S, 6), e.state.value) for e in self.states],
            scene_final=_final(self.last_scene),
            answers=[a.given(self.sounds) for a in self.answers.values()],
            events_sha256=events_sha256,
            realtime_factor=realtime_factor,
        )


@dataclass(slots=True)
class Sounding:
    """A sound, the words it carries if any, and how much of it was heard."""

    sound: SoundStarted
    heard_s: float
    words: Spoken | None = None

    def as_heard(self) -> Heard | None:
        if self.words is None or self.heard_s <= 0:
            return None
        start_s = self.sound.audible_ns / NS_PER_S
        return Heard(
            round(start_s, 6), round(start_s + self.heard_s, 6), self.words.text, self.words.priority.name.lower(),
            self.words.kind, self.words.source_device_ns,
        )


@dataclass(slots=True)
class Answering:
    """A query and all that is in the log about it."""

    asked: Asked
    begun: AnswerBegun | None = None
    clauses: list[ClauseReady] = field(default_factory=list)
    answered: Answered | None = None

    def given(self, sounds: Iterable[Sounding]) -> AnswerGiven:
        begun, answered = self.begun, self.answered
        said = [c.text for c in self.clauses if c.withheld is None]
        return AnswerGiven(
            self.asked.kind, self.asked.text, round(self.asked.t_ns / NS_PER_S, 6),
            "open" if answered is None else answered.outcome, "" if answered is None else answered.text, said,
            0 if begun is None else len(begun.frames), {} if begun is None else begun.sensors,
            0 if answered is None else len(answered.tokens), None if answered is None else answered.first_token_ms,
            self._first_word_ms(sounds, said), {} if answered is None else answered.parts_ms,
        )

    def _first_word_ms(self, sounds: Iterable[Sounding], said: list[str]) -> float | None:
        """From asking to the first sample of the first of its clauses that was heard."""
        for s in sounds:
            if s.words is not None and s.words.kind == "answer" and s.sound.audible_ns >= self.asked.t_ns:
                if any(s.words.text in clause for clause in said):
                    return round((s.sound.audible_ns - self.asked.t_ns) / NS_PER_MS, 3)
        return None


def gather(events: Iterable[AnyEvent]) -> Run:
    """One pass over the events of a run (``log.read_log``); a log without its end is fine."""
    run = Run()
    for event in events:
        run.add(event)
    return run


def summarise(events: Iterable[AnyEvent], *, events_sha256: str, realtime_factor: float | None = None) -> Summary:
    """The summary of a run from its events. A log without its end has empty ``streams``."""
    return gather(events).summary(events_sha256=events_sha256, realtime_factor=realtime_factor)


def latency_of(values_ms: Iterable[float]) -> Latency:
    values = np.fromiter(values_ms, dtype=np.float64)
    if not len(values):
        return Latency(0, None, None, None)
    p50, p95, p99 = (round(float(p), 3) for p in np.percentile(values, [50, 95, 99]))
    return Latency(len(values), p50, p95, p99)


def print_summary(summary: Summary) -> None:
    """The summary as a few short tables and lines on standard output."""
    if summary.streams:
        print_table(
            "streams", ("stream", "received", "dropped", "late"),
            [(label, c.received, c.dropped, c.late) for label, c in summary.streams.items()],
        )
    print_table(
        "latency from capture, ms", ("path", "n", "p50", "p95", "p99"),
        [(path, v.n, v.p50, v.p95, v.p99) for path, v in summary.latency_ms.items()],
    )
    print_table(
        "heard", ("from s", "to s", "priority", "kind", "text"),
        [(f"{u.start_s:.2f}", f"{u.end_s:.2f}", u.priority, u.kind, u.text) for u in summary.utterances],
    )
    for a in summary.answers:
        print_answer(a)
    say("states: " + (", ".join(f"{s.state} at {s.t_s:.2f} s" for s in summary.states) or "none"))
    obstacles = [
        f"{o.label or 'obstacle'} ({o.height_band}) {o.distance_m:.1f} m {side_of(o.bearing_deg)}"
        for o in sorted(summary.scene_final.obstacles, key=lambda o: relevance(o.bearing_deg, o.distance_m))
    ]
    say("last scene: " + ("; ".join(obstacles) or "no confirmed obstacle"))
    if summary.realtime_factor is not None:
        say(f"speed: {summary.realtime_factor:.2f} times real time")
    say(f"events: sha256 {summary.events_sha256}")


def print_answer(a: AnswerGiven) -> None:
    """Question, answer and where the time went, in two lines."""
    parts = ", ".join(f"{part} {ms:.0f}" for part, ms in a.parts_ms.items())
    heard = "no answer heard" if a.first_word_ms is None else f"first word after {a.first_word_ms / 1e3:.2f} s"
    say(f"{a.kind} at {a.asked_s:.2f} s: {a.question}")
    say(f"  {a.outcome}, {heard}; {a.frames} frames, {a.tokens} tokens; ms: {parts or 'none'}")


def in_one_line(run: Run, summary: Summary) -> str:
    """What a run came to: what was said and sounded, what was found and where the first of it lies at the end."""
    said, tones = len(summary.utterances), sum(s.sound.utterance_id is None for s in run.sounds)
    heard = [f"{n} {what}{'' if n == 1 else 's'}" for n, what in ((said, "phrase"), (tones, "tone")) if n]
    found = f"{len(run.found)} thing{'' if len(run.found) == 1 else 's'}" if run.found else "nothing confirmed"
    line = f"in {run.end_ns / NS_PER_S:.1f} s: heard {' and '.join(heard) or 'nothing'}; found {found}"
    if summary.scene_final.obstacles:
        first = min(summary.scene_final.obstacles, key=lambda o: relevance(o.bearing_deg, o.distance_m))
        line += f", at the end {first.distance_m:.1f} m {side_of(first.bearing_deg)}"
    return line


def relevance(bearing_deg: float, distance_m: float) -> tuple[int, float]:
    """What is told first: things ahead, then beside, then behind, each by distance."""
    return sum(abs(bearing_deg) > limit for limit in (AHEAD_DEG, BESIDE_DEG)), distance_m


def side_of(bearing_deg: float) -> str:
    """A bearing for people: "12° left", "40° right", "ahead"."""
    rounded = round(bearing_deg)
    if rounded == 0:
        return "ahead"
    return f"{abs(rounded)}° {'left' if rounded < 0 else 'right'}"


def _final(scene: Scene | None) -> FinalScene:
    if scene is None:
        return FinalScene()
    found = []
    for o in scene.obstacles:
        if o.confirmed:
            distance_m, bearing_deg = o.seen_from(scene.wearer)
            label = o.label or ("drop_off" if o.thing is Thing.DROP_OFF else None)
            found.append(FinalObstacle(round(bearing_deg, 2), round(distance_m, 3), o.band.value, label))
    return FinalScene(tuple(found))
