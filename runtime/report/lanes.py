"""Questions and goals on the time line, beside what was said: where each lane's bars lie, and the steps of every goal.

Percent of the width where a field says ``_pc``; times in seconds on the recording's time line. Knows no HTML.
"""

from __future__ import annotations

from dataclasses import dataclass

from handrail.runtime.events import GoalChanged
from handrail.runtime.report.answers import Card, plain
from handrail.runtime.summary import Run

S = 1e9  # ns
AIMED = ("goal", "step")  # kinds of queries that belong to a goal


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
