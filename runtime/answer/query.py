"""One thing to be answered, from asking to the last word: where its time went, and what came of it.

``Stopwatch`` cuts the loop's time into parts without a gap, so that they add up. Knows no model.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from handrail.streams.clock import NS_PER_S, now_ns


class Kind(StrEnum):
    QUESTION = "question"  # the wearer asked
    SCENE = "scene"  # "what is around?"
    GOAL = "goal"  # the first step towards it
    STEP = "step"  # the next one, when it is due
    READ = "read"  # "read that"
    CHANGE = "change"  # of the scene: nobody asked


ASKED_ALOUD = (Kind.QUESTION, Kind.SCENE, Kind.GOAL, Kind.READ)  # somebody waits for these


class Outcome(StrEnum):
    SAID = "said"
    SILENT = "silent"  # the model had nothing to say, and that is what it was asked to do then
    REFUSED = "refused"  # it can't be answered now, and why was said
    CANCELLED = "cancelled"
    LIMIT = "limit"  # as many tokens as an answer may have
    REPEATED = "repeated"  # it went round in circles
    FAILED = "failed"


class Line(StrEnum):
    """What is said where there is no answer."""

    NOT_YET = "I can't see yet."
    TOO_LONG = "That question is too long."
    NO_QUESTION = "I heard no question."
    NOTHING = "I have no answer to that."
    NO_MODEL = "No model is loaded. I can't answer that."
    CUT_SHORT = "The answer was longer. Ask again for more."
    FAILED = "The answer failed. Ask again."
    CHANGED = "You have turned since. Ask again."
    JUMPED = "The scene has changed. Ask again."
    NO_GOAL = "There is no goal."
    GOAL_GIVEN_UP = "Goal given up."
    NO_READER = "I can't read text: no reader is installed."


@dataclass(frozen=True, slots=True)
class Query:
    id: int
    kind: Kind
    text: str
    asked_ns: int  # loop time


@dataclass(slots=True)
class Stopwatch:
    last_ns: int = field(default_factory=now_ns)
    parts_ms: dict[str, float] = field(default_factory=dict)
    first_token_ms: float | None = None

    def mark(self, part: str) -> None:
        """All since the last mark went into this."""
        now = now_ns()
        self.parts_ms[part] = self.parts_ms.get(part, 0.0) + (now - self.last_ns) / NS_PER_S * 1e3
        self.last_ns = now

    def token(self) -> None:
        """All that was marked so far lies before the first one."""
        if self.first_token_ms is None:
            self.first_token_ms = sum(self.parts_ms.values())
