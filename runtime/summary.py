"""``summary.json``: what a run heard, said and cost, from its events alone. Its keys are stable: others build on them.

Times in seconds on the recording's time line: 0 is the start of the session, which is ``first_device_ns`` on the device
clock; a sound's time is when it is *heard*. ``bearing_deg`` is clockwise from the reference heading (of travel while
walking, of the nose while standing still): **negative is left, positive is right**. Latencies run from capture to the
scene being there, or to the first sample being heard.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import msgspec
import numpy as np

from handrail.runtime.events import (
    AnyEvent,
    Ended,
    SceneChanged,
    SoundEnded,
    SoundStarted,
    Spoken,
    Started,
    StateChanged,
    StreamCount,
)
from handrail.runtime.scene import Scene, Thing
from handrail.runtime.terminal import print_table, say

NS_PER_S = 1e9
NS_PER_MS = 1e6
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
    events_sha256: str
    realtime_factor: float | None  # recording's seconds per second it took; None when not measured


def summarise(
    events: Iterable[AnyEvent], *, events_sha256: str, realtime_factor: float | None = None
) -> Summary:
    """One pass over the events of a run (``log.read_log``). A log without its end has empty ``streams``."""
    streams: dict[str, StreamCount] = {}
    states: list[StateAt] = []
    latencies: dict[str, list[float]] = {path: [] for path in PATHS}
    scene: Scene | None = None
    speech = _Speech()
    first_device_ns = 0

    def since_capture_ms(t_ns: int, device_ns: int) -> float:
        return (t_ns - (device_ns - first_device_ns)) / NS_PER_MS

    for event in events:
        match event:
            case Started():
                first_device_ns = event.first_device_ns
            case SceneChanged():
                scene = event.scene
                latencies["frame_to_scene"].append(since_capture_ms(event.t_ns, scene.device_ns))
            case SoundStarted():
                speech.started(event)
                if event.sound.startswith("earcon.") and event.source_device_ns is not None:
                    latencies["frame_to_earcon"].append(since_capture_ms(event.audible_ns, event.source_device_ns))
            case SoundEnded():
                speech.ended(event)
            case Spoken():
                speech.spoken(event)
            case StateChanged():
                states.append(StateAt(round(event.t_ns / NS_PER_S, 6), event.state.value))
            case Ended():
                streams = event.streams
            case _:
                pass
    latencies["frame_to_phrase"] = [since_capture_ms(*hazard) for hazard in speech.hazards()]
    return Summary(
        streams=streams,
        utterances=speech.heard(),
        latency_ms={path: latency_of(values) for path, values in latencies.items()},
        states=states,
        scene_final=_final(scene),
        events_sha256=events_sha256,
        realtime_factor=realtime_factor,
    )


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
    say("states: " + (", ".join(f"{s.state} at {s.t_s:.2f} s" for s in summary.states) or "none"))
    obstacles = [
        f"{o.label or 'obstacle'} ({o.height_band}) {o.distance_m:.1f} m {side_of(o.bearing_deg)}"
        for o in summary.scene_final.obstacles
    ]
    say("last scene: " + ("; ".join(obstacles) or "no confirmed obstacle"))
    if summary.realtime_factor is not None:
        say(f"speed: {summary.realtime_factor:.2f} times real time")
    say(f"events: sha256 {summary.events_sha256}")


def side_of(bearing_deg: float) -> str:
    """A bearing for people: "12° left", "40° right", "ahead"."""
    rounded = round(bearing_deg)
    if rounded == 0:
        return "ahead"
    return f"{abs(rounded)}° {'left' if rounded < 0 else 'right'}"


@dataclass(slots=True)
class _Sounding:
    sound: SoundStarted
    heard_s: float
    words: Spoken | None


class _Speech:
    """Joins what was spoken with when it was heard, whichever event comes first. An utterance may sound more than once
    (cut, then resumed with other words)."""

    def __init__(self) -> None:
        self._all: list[_Sounding] = []
        self._playing: dict[int, _Sounding] = {}
        self._waiting: dict[int, Spoken] = {}  # words whose sound hasn't started

    def spoken(self, event: Spoken) -> None:
        playing = self._playing.get(event.utterance_id)
        if playing is not None and playing.words is None:
            playing.words = event
        else:
            self._waiting[event.utterance_id] = event

    def started(self, event: SoundStarted) -> None:
        if event.utterance_id is not None:
            sounding = _Sounding(event, event.duration_s, self._waiting.pop(event.utterance_id, None))
            self._all.append(sounding)
            self._playing[event.utterance_id] = sounding

    def ended(self, event: SoundEnded) -> None:
        if event.utterance_id is not None and (playing := self._playing.pop(event.utterance_id, None)) is not None:
            playing.heard_s = event.heard_s

    def hazards(self) -> Iterator[tuple[int, int]]:
        """(audible_ns, source_device_ns) of each hazard phrase that was heard."""
        for s in self._all:
            if s.words is not None and s.words.kind == "hazard" and s.words.source_device_ns is not None:
                yield s.sound.audible_ns, s.words.source_device_ns

    def heard(self) -> list[Heard]:
        heard = []
        for s in self._all:
            if s.words is None or s.heard_s <= 0:
                continue
            start_s = s.sound.audible_ns / NS_PER_S
            heard.append(
                Heard(round(start_s, 6), round(start_s + s.heard_s, 6), s.words.text, s.words.priority.name.lower(),
                      s.words.kind, s.words.source_device_ns)
            )
        return heard


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
