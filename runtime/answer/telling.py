"""The words of one answer: tokens in, clauses out, each fit to be spoken; and the hand that gives them to speech.

A clause leaves as soon as it is whole. One that promises safety is withheld, one that was said already ends the answer.
Speech takes few clauses at a time, so that its bounded queue never drops one of a long answer. Knows no model.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from handrail.runtime import config
from handrail.runtime.speech.speech import Speech
from handrail.runtime.speech.utterance import Frame
from handrail.runtime.wording.clauses import ClauseSplitter
from handrail.runtime.wording.detokenise import Detokeniser
from handrail.runtime.wording.promises import promise
from handrail.runtime.wording.repetition import Repetition
from handrail.runtime.wording.speakable import speakable

TTL_S = 10.0  # of a clause, from when speech has room for it
AHEAD = 0  # clauses that wait in speech when the next is handed over: a second one could wait past its time
_DIRECTION = re.compile(r"\b(left|right|ahead|behind|front|straight|back|turn\w*|o'?clock|beside|next to you)\b", re.I)


@dataclass(frozen=True, slots=True)
class Clause:
    text: str
    withheld: str | None = None  # why it isn't said


class Words:
    """``add`` each token; what it returns is ready. ``over`` says why no more tokens are wanted."""

    def __init__(self, decode: Callable[[list[int]], str], wearer: config.Wearer) -> None:
        self._detokeniser = Detokeniser(decode)
        self._splitter = ClauseSplitter()
        self._repetition = Repetition()
        self._wearer = wearer
        self.tokens: list[int] = []
        self.text = ""
        self.said = 0  # clauses that weren't withheld
        self.over = False

    def add(self, token: int) -> list[Clause]:
        self.tokens.append(token)
        self.over = self._repetition.add(token)
        piece = self._detokeniser.add(token)
        self.text += piece
        return self._fit(self._splitter.add(piece))

    def end(self) -> list[Clause]:
        """What is left, once no more tokens come."""
        piece = self._detokeniser.end()
        self.text += piece
        return self._fit([*self._splitter.add(piece), *self._splitter.end()])

    def _fit(self, clauses: list[str]) -> list[Clause]:
        found = []
        for clause in clauses:
            if self._repetition.seen(clause):
                self.over = True
                break
            text = speakable(clause, self._wearer)
            if text:
                found.append(Clause(text, promise(text)))
        self.said += sum(clause.withheld is None for clause in found)
        return found


@dataclass(frozen=True, slots=True)
class Said:
    """A clause on its way."""

    text: str
    frame: Frame | None  # the heading its directions refer to; None: it names none
    captured_ns: int | None


class Handing:
    """Clauses, in order, to speech. ``run`` until cancelled."""

    def __init__(self, speech: Speech) -> None:
        self._speech = speech
        self._ready: deque[Said] = deque()  # as many as an answer's tokens make at most
        self._filled = asyncio.Event()

    def say(self, said: Said) -> None:
        self._ready.append(said)
        self._filled.set()

    def withdraw(self) -> None:
        """Nothing of what waits here or was handed over is said any more."""
        self._ready.clear()
        self._speech.withdraw()

    async def run(self) -> None:
        while True:
            self._filled.clear()
            await self._filled.wait()
            while self._ready:
                await self._speech.at_most(AHEAD)
                if self._ready:  # not withdrawn meanwhile
                    said = self._ready.popleft()
                    self._speech.say(said.text, TTL_S, frame=said.frame, captured_ns=said.captured_ns)

    @property
    def busy(self) -> bool:
        """Whether clauses wait for room."""
        return bool(self._ready)

    async def empty(self) -> None:
        """Until all of it has been handed over and has left the queue."""
        while self._ready:
            await self._speech.at_most(0)
            await asyncio.sleep(0)  # the hand has its turn
        await self._speech.at_most(0)


def directed(text: str, frame: Frame | None) -> Frame | None:
    """The frame, where the words hold a direction."""
    return frame if frame is not None and _DIRECTION.search(text) else None
