"""The rolling vision cache: frames that were encoded as they arrived, and which of them a question takes.

Causal: a frame counts from its capture on, and a question takes none that was captured after it. Of a moment asked for
the last frame captured by then is taken; frames stand once, oldest first. Knows no encoder and no clock.
"""

from __future__ import annotations

import math
import re
from collections import deque
from dataclasses import dataclass

from handrail.runtime.engine.prompt import Features
from handrail.streams.clock import NS_PER_S
from handrail.streams.errors import ConfigError

FRAMES = 8  # that the fused model is trained with (seed 000)
MOST_HELD = 48
LONGEST_NS = 60 * NS_PER_S
BACK_NS = NS_PER_S  # between frames of "backward" (seed 001: 1 fps from the question back)
FIXED_S = 4.0  # seed 001's shorter fixed duration, for walking outdoors; 32 for rooms
DEFAULT = "fixed:10"  # as the model is trained in runtime mode


@dataclass(frozen=True, slots=True)
class Encoded:
    device_ns: int  # capture
    features: Features


@dataclass(frozen=True, slots=True)
class Sampling:
    """``uniform``: evenly over all that is held; ``fixed``: over the last ``seconds``; ``backward``: at 1 fps from the
    question back; ``last``: the newest alone (seed 001, "timestamp-aware" and "fixed-duration" sampling)."""

    kind: str
    seconds: float = FIXED_S

    @staticmethod
    def parse(text: str) -> Sampling:
        """"uniform", "backward", "fixed[:SECONDS]", "last". Raises ConfigError."""
        found = re.fullmatch(r"(uniform|backward|last)|fixed(?::([0-9]{1,2}(?:\.[0-9]{1,3})?))?", text)
        if found is None or (found[2] is not None and not 0 < float(found[2]) <= LONGEST_NS / NS_PER_S):
            raise ConfigError(
                f"sampling {text!r}: expected uniform, backward, last or fixed:SECONDS (up to {LONGEST_NS // NS_PER_S})"
            )
        return Sampling(found[1] or "fixed", float(found[2] or FIXED_S))

    def moments(self, oldest_ns: int, asked_ns: int, count: int = FRAMES) -> list[int]:
        """The times whose frames are wanted, oldest first."""
        match self.kind:
            case "last":
                return [asked_ns]
            case "backward":
                return [asked_ns - k * BACK_NS for k in reversed(range(count))]
            case "uniform":
                span_ns = max(0, asked_ns - oldest_ns)
            case _:
                span_ns = math.floor(self.seconds * NS_PER_S)
        return [asked_ns - span_ns * k // count for k in reversed(range(count))]


class FeatureCache:
    """Bounded in number and age."""

    def __init__(self) -> None:
        self._held: deque[Encoded] = deque(maxlen=MOST_HELD)

    def add(self, encoded: Encoded) -> None:
        """Frames come in order of capture; one that doesn't is left out."""
        if self._held and encoded.device_ns <= self._held[-1].device_ns:
            return
        while self._held and self._held[0].device_ns < encoded.device_ns - LONGEST_NS:
            self._held.popleft()
        self._held.append(encoded)

    def pick(self, sampling: Sampling, asked_ns: int) -> list[Encoded]:
        """At most 8, none captured after ``asked_ns``; fewer where fewer are held."""
        known = [e for e in self._held if e.device_ns <= asked_ns]
        if not known:
            return []
        chosen: dict[int, Encoded] = {}
        for moment in sampling.moments(known[0].device_ns, asked_ns):
            before = [e for e in known if e.device_ns <= moment]
            if before and asked_ns - before[-1].device_ns <= LONGEST_NS:
                chosen[before[-1].device_ns] = before[-1]
        if not chosen:  # the window holds none: the newest is what there is
            chosen[known[-1].device_ns] = known[-1]
        return [chosen[t] for t in sorted(chosen)]

    @property
    def newest_ns(self) -> int | None:
        return self._held[-1].device_ns if self._held else None

    def __len__(self) -> int:
        return len(self._held)

    def clear(self) -> None:
        """Time or place jumped: what was seen lies elsewhere."""
        self._held.clear()
