"""Questions and goals as the page draws them: one card for each query, one row for each goal, lanes on the time line.

Percent of the width where a field says ``_pc``. All texts are data, and lose their control characters here; knows no
HTML. Times in seconds on the recording's time line, ``_ms`` from asking.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from handrail.runtime.events import GoalChanged
from handrail.runtime.redacted import Redacted
from handrail.runtime.report.spoken import SpokenClause, spoken_clauses
from handrail.runtime.summary import AnswerGiven, Answering, Run, side_of

S = 1e9  # ns
ALOUD = ("question", "scene", "goal", "read")  # kinds that somebody waits for
AIMED = ("goal", "step")
MOST_OPEN = 8  # cards that are unfolded when the page opens
MOST_TEXTS = 60
PARTS = ("read", "encode", "sensors", "prompt", "prefill", "decode", "end")  # those with a colour of their own
WHY = {
    "silent": "The model had nothing to say, and was asked to be silent then.",
    "cancelled": "Broken off: something newer was asked, or time or place jumped.",
    "limit": "Stopped at the most tokens that an answer may have.",
    "repeated": "Stopped: it went round in circles.",
    "open": "The run ended before it was answered.",
}
SENSORS = {
    "imu": "IMU", "magbaro": "magnetometer, barometer", "gaze": "gaze", "hands": "hands", "trajectory": "trajectory",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Part:
    name: str
    look: str  # one of PARTS, or "other"
    ms: float
    left_pc: float
    width_pc: float


@dataclass(frozen=True, slots=True)
class Mark:
    name: str
    look: str
    ms: float
    left_pc: float


@dataclass(frozen=True, slots=True)
class Shown:
    """A frame that the model was shown; ``picture`` is None where none is kept."""

    captured_s: float
    picture: Redacted | None


@dataclass(frozen=True, slots=True)
class Sensed:
    name: str
    valid_pc: float  # of its bins


@dataclass(frozen=True, slots=True)
class Card:
    id: int
    given: AnswerGiven
    question: str
    wrote: str
    why: str  # what the outcome means, where its name doesn't say
    detail: str  # why it was refused or failed; "" otherwise
    clauses: list[SpokenClause]
    shown: list[Shown]
    encoded: int  # frames that had to be encoded for it
    sensors: list[Sensed]
    texts: list[str]  # read in the frames and quoted to the model
    prompt_tokens: int
    reused_tokens: int
    parts: list[Part]
    marks: list[Mark]
    total_ms: float  # to the last token
    axis_ms: float  # the bar's full width
    open: bool  # unfolded


def cards(run: Run, pictures: Mapping[int, Redacted]) -> list[Card]:
    """Every query in the order in which they were asked."""
    spoken = spoken_clauses(run)
    found: list[Card] = []
    for query_id, a in run.answers.items():
        unfolded = a.asked.kind in ALOUD and sum(card.open for card in found) < MOST_OPEN
        found.append(_card(run, a, spoken[query_id], pictures, unfolded))
    return found


def _card(
    run: Run, a: Answering, clauses: list[SpokenClause], pictures: Mapping[int, Redacted], unfolded: bool
) -> Card:
    given, begun, answered = a.given(run.sounds), a.begun, a.answered
    first_ns = 0 if run.started is None else run.started.first_device_ns
    total_ms = sum(given.parts_ms.values())
    told = answered is not None and answered.detail in [c.text for c in clauses]
    axis_ms = max(total_ms, given.first_word_ms or 0.0, given.first_token_ms or 0.0)
    return Card(
        a.asked.query_id, given, plain(given.question), plain(given.text),
        WHY.get(given.outcome, ""), "" if answered is None or told else plain(answered.detail),
        [SpokenClause(plain(c.text), c.written_s, plain(c.became), c.heard) for c in clauses],
        [] if begun is None else [Shown((ns - first_ns) / S, pictures.get(ns)) for ns in begun.frames],
        0 if begun is None else begun.encoded,
        [Sensed(SENSORS.get(name, plain(name)), round(100 * min(max(v, 0.0), 1.0), 1))
         for name, v in given.sensors.items()],
        [] if begun is None else [plain(text) for text in begun.texts],
        0 if begun is None else begun.prompt_tokens, 0 if begun is None else begun.reused_tokens,
        _parts(given.parts_ms, axis_ms), _marks(given, axis_ms), total_ms, axis_ms, unfolded,
    )  # fmt: skip


def _parts(parts_ms: Mapping[str, float], axis_ms: float) -> list[Part]:
    """End to end, in the order in which they began."""
    parts, before_ms = [], 0.0
    for name, ms in parts_ms.items():
        look = name if name in PARTS else "other"
        left_pc, right_pc = (round(100 * t / axis_ms, 3) if axis_ms > 0 else 0.0 for t in (before_ms, before_ms + ms))
        parts.append(Part(plain(name), look, ms, left_pc, round(right_pc - left_pc, 3)))
        before_ms += ms
    return parts


def _marks(given: AnswerGiven, axis_ms: float) -> list[Mark]:
    times = (("first token", "token", given.first_token_ms), ("first word heard", "word", given.first_word_ms))
    return [
        Mark(name, look, ms, round(100 * ms / axis_ms, 3))
        for name, look, ms in times if ms is not None and axis_ms > 0
    ]


# -- on the time line ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AskedBar:
    """A question from asking to the first word and on to the end of it: of what was heard, or of writing."""

    left_pc: float
    room_pc: float  # up to the next one: where its words fit
    wait_pc: float  # of that room: from asking to the first word heard, or to the end where none was
    heard_pc: float  # of that room: from the first word to the end
    asked_s: float
    kind: str
    text: str
    label: str


@dataclass(frozen=True, slots=True)
class GoalBand:
    left_pc: float
    width_pc: float
    state: str
    text: str
    label: str


@dataclass(frozen=True, slots=True)
class Lanes:
    asked: list[AskedBar]
    goals: list[GoalBand]
    steps: list[tuple[float, str]]  # (left_pc, label)


@dataclass(frozen=True, slots=True)
class GoalRow:
    text: str
    from_s: float
    until_s: float
    state: str  # the last one; "active" when the run ended first
    steps: list[tuple[float, str]]  # (asked at, outcome)


def lanes(run: Run, duration_s: float, asked: list[Card]) -> Lanes:
    def pc(t_s: float) -> float:
        return round(100 * min(max(t_s / duration_s, 0.0), 1.0), 4)

    following_s = [card.given.asked_s for card in asked[1:]] + [duration_s]
    bars = [_bar(card, min(end_s, duration_s), duration_s) for card, end_s in zip(asked, following_s, strict=False)]
    goals = goal_rows(run)
    return Lanes(
        bars,
        [GoalBand(pc(g.from_s), round(pc(g.until_s) - pc(g.from_s), 4), g.state, g.text,
                  f"Goal {g.text}: {g.state}, {g.from_s:.1f} to {g.until_s:.1f} s") for g in goals],
        [(pc(t_s), f"step at {t_s:.1f} s: {outcome}") for g in goals for t_s, outcome in g.steps],
    )


def _bar(card: Card, room_end_s: float, duration_s: float) -> AskedBar:
    given = card.given
    room_s = max(room_end_s - given.asked_s, 1e-3)
    heard = [span for clause in card.clauses for span in clause.heard]
    first_s, last_s = min((a for a, _ in heard), default=None), max((b for _, b in heard), default=0.0)
    written_s = given.asked_s + card.total_ms / 1e3
    word_s = written_s if first_s is None else first_s
    end_s = max(written_s, last_s) if first_s is not None else word_s
    wait_pc = min(max(100 * (word_s - given.asked_s) / room_s, 0.0), 100.0)
    heard_pc = min(max(100 * (end_s - word_s) / room_s, 0.0), 100.0 - wait_pc)
    told = f"first word after {first_s - given.asked_s:.1f} s" if first_s is not None else "nothing heard"
    return AskedBar(
        round(100 * given.asked_s / duration_s, 4), round(100 * room_s / duration_s, 4), round(wait_pc, 2),
        round(heard_pc, 2), given.asked_s, given.kind, card.question,
        f"{given.asked_s:.1f} seconds, {given.kind}: {card.question} ({given.outcome}, {told})",
    )


def goal_rows(run: Run) -> list[GoalRow]:
    by_id: dict[int, list[GoalChanged]] = {}
    for change in run.goals:
        by_id.setdefault(change.goal_id, []).append(change)
    rows = []
    for changes in by_id.values():
        first, last = changes[0], changes[-1]
        until_ns = run.end_ns if last.state == "active" else last.t_ns
        steps = [
            (a.asked.t_ns / S, "open" if a.answered is None else a.answered.outcome)
            for a in run.answers.values()
            if a.asked.kind in AIMED and a.asked.text == first.text and first.t_ns <= a.asked.t_ns <= until_ns
        ]
        state = plain(last.state.replace("_", " "))
        rows.append(GoalRow(plain(first.text), first.t_ns / S, until_ns / S, state, steps))
    return rows


# -- texts --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TextRow:
    first_s: float
    text: str
    confidence: float
    where: str  # from the nose, when it was read last


def text_rows(run: Run) -> list[TextRow]:
    """Every text that was read, as it was read last, in the order of their first reading."""
    return [
        TextRow(t_ns / S, plain(seen.text), seen.confidence,
                "" if seen.bearing_deg is None else side_of(seen.bearing_deg))
        for t_ns, seen in run.texts.values()
    ]


def plain(text: str) -> str:
    """On one line, with what can't be printed (control characters, marks that turn the direction) as a dot."""
    return " ".join("".join(c if c.isprintable() else " " if c.isspace() else "·" for c in text).split())
