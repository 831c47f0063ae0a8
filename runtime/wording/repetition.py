"""Whether a model goes round in circles: the same few tokens over and over, or a clause that was said already.

Greedy decoding of a small model ends in loops. The rule for tokens: the last ones are one group of at most 24, three
times over, 12 tokens or more in all. Memory is bounded: 24 tokens and 64 clauses. Doesn't know what the tokens mean.
"""

from __future__ import annotations

import re
from collections import deque

LONGEST = 24  # tokens of a group
LEAST = 12  # tokens in all: "ha ha ha" is no loop
TIMES = 3
_CLAUSES = 64


class Repetition:
    """Of one answer."""

    def __init__(self) -> None:
        self._last: deque[int] = deque(maxlen=LONGEST)  # newest first
        self._runs = [0] * (LONGEST + 1)  # at n: how many tokens in a row equal the one n before them
        self._said: deque[str] = deque(maxlen=_CLAUSES)

    def add(self, token: int) -> bool:
        """Whether the tokens so far end in a loop."""
        looping = False
        for n, earlier in enumerate(self._last, 1):
            self._runs[n] = self._runs[n] + 1 if earlier == token else 0
            looping = looping or self._runs[n] + n >= max(TIMES * n, LEAST)
        self._last.appendleft(token)
        return looping

    def seen(self, clause: str) -> bool:
        """Whether these words were a clause before; from now on they were. Case and punctuation don't count."""
        words = " ".join(re.findall(r"\w+", clause.casefold()))
        if words in self._said:
            return True
        self._said.append(words)
        return False
