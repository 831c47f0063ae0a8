"""What of the earlier turns a question may lean on ("and on the left?"): the last two, shortened, for half a minute.

Older answers are about where the wearer no longer is. Knows no model; after a seam there is no earlier turn.
"""

from __future__ import annotations

from dataclasses import dataclass

from handrail.streams.clock import NS_PER_S

FOLLOWS_S = 30.0  # a question so soon after the last answer's end is a follow-up
MOST_TURNS = 2
MOST_CHARACTERS = 240  # of a question or an answer: some 60 tokens


@dataclass(frozen=True, slots=True)
class Turn:
    question: str
    answer: str  # as far as it was said
    ended_ns: int  # when its last word was heard


@dataclass(frozen=True, slots=True)
class Conversation:
    turns: tuple[Turn, ...] = ()  # oldest first

    def answered(self, question: str, answer: str, now_ns: int) -> Conversation:
        """With one more turn; one that said nothing is none."""
        if not answer.strip():
            return self
        turn = Turn(_short(question), _short(answer), now_ns)
        return Conversation((*self.turns, turn)[-MOST_TURNS:])

    def follows(self, now_ns: int) -> bool:
        """Whether a question asked now is a follow-up."""
        return bool(self.kept(now_ns))

    def kept(self, now_ns: int) -> tuple[Turn, ...]:
        """The turns a question asked now may lean on; none once the last has ended too long ago."""
        if not self.turns or not 0 <= now_ns - self.turns[-1].ended_ns <= FOLLOWS_S * NS_PER_S:
            return ()
        kept: list[Turn] = []
        until_ns = now_ns
        for turn in reversed(self.turns):
            if until_ns - turn.ended_ns > 2 * FOLLOWS_S * NS_PER_S:  # its successor may have taken long to be said
                break
            kept.insert(0, turn)
            until_ns = turn.ended_ns
        return tuple(kept)


def _short(text: str) -> str:
    """The beginning, whole words."""
    text = " ".join(text.split())
    if len(text) <= MOST_CHARACTERS:
        return text
    head = text[: MOST_CHARACTERS - 1]
    return (head[: head.rfind(" ")] if " " in head else head) + "…"
