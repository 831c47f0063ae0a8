"""One thing to be said: with its priority, expiry and a way to work out its words at the moment it is spoken.

Words are never stored. An utterance holds a function from the *moment* (newest scene, its age) to ``Say`` or
``Silence``, so that distance and direction are those of the moment, and so that silence is a typed decision with a
reason. The function is the validity test too: it is asked when the utterance leaves the queue, again after rendering,
and ``turned`` is asked while it plays. Knows nothing of sound. Times are the running loop's, in ns.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from handrail.runtime.events import Priority
from handrail.runtime.scene import Scene, Wearer, wrap_deg
from handrail.streams.clock import NS_PER_S

MAX_AGE_NS = NS_PER_S  # no guidance from a frame older than this at the start of speech
TURN_DEG = 30.0  # a turn of the frame that the words used makes "left", "right" and "ten o'clock" wrong


class Unspoken(StrEnum):
    """Why something is not said."""

    EXPIRED = "expired"  # past its own time, or the frame behind it is too old
    INVALID = "invalid"  # the world or the wearer has moved on
    SUPERSEDED = "superseded"  # a newer one about the same took its place
    OVERFLOW = "overflow"  # the queue was full of more urgent ones
    CUT = "cut"  # interrupted, or hushed
    DEVICE = "device"  # the voice or the speaker failed


@dataclass(frozen=True, slots=True)
class Moment:
    now_ns: int  # when the first sample will be heard
    scene: Scene | None  # the newest; None before the first and after a seam
    captured_ns: int  # loop time at which its frame was captured

    def seen_ns(self, device_ns: int) -> int:
        """Loop time of the capture at ``device_ns``. Needs a scene."""
        assert self.scene is not None
        return self.captured_ns - (self.scene.device_ns - device_ns)


@dataclass(frozen=True, slots=True)
class Frame:
    """The heading that spoken directions were relative to: which one, and where it pointed."""

    travel: bool  # True: direction of travel; False: the nose
    heading_rad: float

    @staticmethod
    def of(w: Wearer) -> Frame:
        return Frame(w.travel_rad is not None, w.reference_rad)

    def turned(self, w: Wearer) -> bool:
        """Whether that same heading has turned so far that the directions are wrong.

        A walker who has stopped has no heading of travel; then the nose stands in for it.
        """
        now_rad = w.reference_rad if self.travel else w.nose_rad
        return abs(wrap_deg(math.degrees(now_rad - self.heading_rad))) >= TURN_DEG


@dataclass(frozen=True, slots=True)
class Say:
    text: str
    frame: Frame | None = None  # None: no direction in the words
    captured_ns: int | None = None  # of the frame behind the words
    source_device_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Silence:
    reason: Unspoken


Words = Callable[[Moment], Say | Silence]


@dataclass(frozen=True, slots=True)
class Utterance:
    id: int  # in order of offering
    priority: Priority
    severity: int  # among equals in priority the greater goes first, and a NOW cuts a lesser NOW
    kind: str  # "hazard", "health", "status", "answer"
    key: str  # what it is about: a newer one with the same key replaces it
    words: Words
    expires_ns: int  # not started after this
    obstacle_id: int | None = None
    fallback: str | None = None  # rendered beforehand, for when the voice has failed
    said_clauses: int = 0  # of a NORMAL text, before it was interrupted
    place: int = 0  # among equals the smaller goes first: its first id, so that what was cut goes on where it was

    @property
    def rank(self) -> tuple[int, int]:
        """Smaller goes first."""
        return (int(self.priority), -self.severity)

    def cuts(self, other: Utterance) -> bool:
        return self.priority is Priority.NOW and self.rank < other.rank

    def judged(self, moment: Moment) -> Say | Silence:
        if moment.now_ns > self.expires_ns:
            return Silence(Unspoken.EXPIRED)
        return self.words(moment)


def fixed(text: str, frame: Frame | None = None, captured_ns: int | None = None) -> Words:
    """Words that are what they are; invalid once ``frame``, the one they were made for, has turned."""

    def words(moment: Moment) -> Say | Silence:
        if frame is not None and (moment.scene is None or frame.turned(moment.scene.wearer)):
            return Silence(Unspoken.INVALID)
        return Say(text, frame, captured_ns)

    return words


def clauses(text: str) -> list[str]:
    """Where speech may pause for something else: after . ! ? ; and white space. "2.5 m" is one piece."""
    return [c for c in re.split(r"(?<=[.!?;])\s+", text.strip()) if c]
