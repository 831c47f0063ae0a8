"""Figures of a run as the page draws them: the time line, latency distributions, tables. Percent of the width or height
where a field says ``_pc``; knows no HTML."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from handrail.runtime.log import Timing
from handrail.runtime.summary import Heard, Latency, Run, latency_of

S = 1e9  # ns
LANES = ("now", "next", "normal")
_PX_PER_S = 26  # so that a bar's words can be read
_NARROWEST_PX, _WIDEST_PX = 700, 60_000
_TICK_PX = 48  # room for "9999 s"
_ROUND_STEPS_S = (0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600)


@dataclass(frozen=True, slots=True)
class Band:
    left_pc: float
    width_pc: float
    state: str
    label: str


@dataclass(frozen=True, slots=True)
class Bar:
    left_pc: float
    room_pc: float  # up to the next bar in the lane: where its words fit
    share_pc: float  # of that room: how long it was heard
    lane: str
    text: str
    start_s: float
    kind: str


@dataclass(frozen=True, slots=True)
class Timeline:
    duration_s: float
    width_px: int  # at least; the page widens it to its own width
    ticks: list[tuple[float, str]]  # (left_pc, label)
    bands: list[Band]
    bars: list[Bar]
    tones: dict[str, str]  # earcon name -> SVG path, x in milliseconds, y from 0 to 1
    alerts_pc: list[float]


def timeline(run: Run) -> Timeline:
    """States as bands, utterances as bars in a lane for each priority, earcons and alerts as ticks."""
    duration_s = max(run.end_ns / S, 1e-3)

    def pc(t_ns: float) -> float:
        return round(100 * min(max(t_ns / S / duration_s, 0.0), 1.0), 4)

    bands = []
    ends = [e.t_ns for e in run.states[1:]] + [run.end_ns]
    for event, end_ns in zip(run.states, ends, strict=False):
        bands.append(Band(pc(event.t_ns), round(pc(end_ns) - pc(event.t_ns), 4), event.state.value,
                          f"{event.state.value} from {event.t_ns / S:.1f} s: {event.reason}"))
    tones: dict[str, list[str]] = {}
    for sounding in run.sounds:
        if sounding.sound.utterance_id is None:
            name = sounding.sound.sound.removeprefix("earcon.")
            tones.setdefault(name, []).append(f"M{sounding.sound.audible_ns / 1e6:.0f} 0V1")
    heard = [h for s in run.sounds if (h := s.as_heard()) is not None]
    bars = [bar for lane in LANES for bar in _lane_bars([h for h in heard if h.priority == lane], duration_s)]
    width_px = min(max(round(duration_s * _PX_PER_S), _NARROWEST_PX), _WIDEST_PX)
    most_ticks = width_px / _TICK_PX
    step_s = next((s for s in _ROUND_STEPS_S if duration_s / s <= most_ticks), duration_s / most_ticks)
    ticks = [(pc(i * step_s * S), f"{i * step_s:g} s") for i in range(int(duration_s / step_s) + 1)]
    return Timeline(
        duration_s, width_px, ticks, bands, bars,
        {name: "".join(marks) for name, marks in sorted(tones.items())}, [pc(a.t_ns) for a in run.alerts],
    )


def _lane_bars(heard: list[Heard], duration_s: float) -> list[Bar]:
    """In order of time, so that a keyboard walks along them."""
    heard = sorted(heard, key=lambda h: h.start_s)
    following_s = [h.start_s for h in heard[1:]] + [duration_s]
    bars = []
    for h, end_s in zip(heard, following_s, strict=False):
        room_s = max(end_s - h.start_s, 1e-3)
        share = min((h.end_s - h.start_s) / room_s, 1.0)
        bars.append(Bar(round(100 * h.start_s / duration_s, 4), round(100 * room_s / duration_s, 4),
                        round(100 * share, 2), h.priority, h.text, h.start_s, h.kind))
    return bars


@dataclass(frozen=True, slots=True)
class Distribution:
    """A histogram and the share of values up to each point, in a box of 100 by 100."""

    n: int
    bars: list[tuple[float, float, float]]  # (x_pc, width_pc, height_pc)
    cumulative: str  # polyline points, y downwards
    marks: list[tuple[str, float, float]]  # (name, x_pc, ms)
    ticks: list[tuple[float, str]]


def distribution(values_ms: Sequence[float], figures: Latency) -> Distribution:
    """``figures`` are those of ``values_ms``."""
    if not values_ms:
        return Distribution(0, [], "", [], [])
    values = np.sort(np.asarray(values_ms, dtype=np.float64))
    step = next((s * 10**e for e in range(-1, 6) for s in (1, 2, 5) if values[-1] / (s * 10**e) <= 6), 1e6)
    top = max(step * math.ceil(values[-1] / step), step)
    counts, edges = np.histogram(np.clip(values, 0, top), bins=40, range=(0.0, top))
    bars = [
        (round(100 * float(edge) / top, 3), 2.5, round(100 * int(count) / int(counts.max()), 2))
        for edge, count in zip(edges, counts, strict=False) if count
    ]
    at = np.linspace(0, len(values) - 1, min(len(values), 120)).round().astype(int)
    points, y = ["0,100"], 100.0
    for i in at:
        x, y_before, y = 100 * max(float(values[i]), 0.0) / top, y, 100 - 100 * (int(i) + 1) / len(values)
        points.append(f"{x:.2f},{y_before:.2f} {x:.2f},{y:.2f}")  # a step: no values lie between
    points.append("100,0")
    marks = [
        (name, round(100 * min(max(ms, 0.0), top) / top, 2), ms)
        for name, ms in (("p50", figures.p50), ("p95", figures.p95), ("p99", figures.p99)) if ms is not None
    ]
    ticks = [(100 * i * step / top, f"{i * step:g}") for i in range(int(top / step) + 1)]
    return Distribution(len(values), bars, " ".join(points), marks, ticks)


@dataclass(frozen=True, slots=True)
class UtteranceRow:
    queued_s: float | None
    heard: str  # "1.20–2.45 s", several when it was resumed; "" when it never sounded
    priority: str
    kind: str
    text: str
    outcome: str  # "heard", "unsaid: expired", ...


def utterance_rows(run: Run) -> list[UtteranceRow]:
    """Every utterance that was queued or heard, in order of its number, the unsaid ones with their reason."""
    heard: dict[int, list[tuple[float, float, str, str, str]]] = {}
    for s in run.sounds:
        if s.sound.utterance_id is not None and (h := s.as_heard()) is not None:
            heard.setdefault(s.sound.utterance_id, []).append((h.start_s, h.end_s, h.text, h.priority, h.kind))
    rows = []
    for uid in sorted({*run.queued, *heard, *run.unsaid}):
        queued, sounded, unsaid = run.queued.get(uid), heard.get(uid, []), run.unsaid.get(uid)
        text, priority, kind = "", "", ""
        if queued is not None:
            text, priority, kind = queued.text, queued.priority.name.lower(), queued.kind
        if sounded:
            text, priority, kind = sounded[-1][2:]
        outcome = f"unsaid: {unsaid.reason}" if unsaid is not None else "heard" if sounded else "no end in the log"
        rows.append(UtteranceRow(
            None if queued is None else queued.t_ns / S, ", ".join(f"{a:.2f}–{b:.2f} s" for a, b, *_ in sounded),
            priority, kind, text, outcome,
        ))
    return rows


def stage_rows(timings: Iterable[Timing]) -> list[tuple[str, Latency, float]]:
    """(what, figures, longest ms) of everything that was measured with a duration, in order of name."""
    by_stage: dict[str, list[float]] = {}
    for timing in timings:
        if timing.ms is not None and math.isfinite(timing.ms):
            by_stage.setdefault(timing.what, []).append(timing.ms)
    return [(what, latency_of(values), max(values)) for what, values in sorted(by_stage.items())]
