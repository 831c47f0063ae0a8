"""Questions as the page draws them, one card for each query; and the texts that were read.

Percent of the width where a field says ``_pc``. All texts are data, and lose their control characters here; knows no
HTML. Times in seconds on the recording's time line, ``_ms`` from asking.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from handrail.runtime.redacted import Redacted
from handrail.runtime.report.spoken import SpokenClause, spoken_clauses
from handrail.runtime.summary import AnswerGiven, Answering, Run, side_of

S = 1e9  # ns
ALOUD = ("question", "scene", "goal", "read")  # kinds that somebody waits for
MOST_OPEN = 8  # cards that are unfolded when the page opens
MOST_DRAWN = 240  # pictures on all cards together, of some 6 KB; one may stand on several
MOST_TEXTS = 60
PARTS = ("read", "encode", "sensors", "prompt", "prefill", "decode")  # those with a colour of their own
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
    drawn = 0
    for query_id, a in run.answers.items():
        unfolded = a.asked.kind in ALOUD and sum(card.open for card in found) < MOST_OPEN
        found.append(_card(run, a, spoken[query_id], pictures if drawn < MOST_DRAWN else {}, unfolded))
        drawn += sum(shown.picture is not None for shown in found[-1].shown)
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
