"""Text found over time, kept by place and content: one sign seen in many pictures is one entry with one id.

    places = Places()
    for place in places.see(device_ns, sights, nose_rad, pitch_rad):   # what is new, or read better than before
        log(TextSeen(t_ns, device_ns, place.id, place.text, place.confidence, place.bearing_from(nose_rad)))

Directions are kept against the level frame's x axis, so that they stay while the head turns; how far a sign moves while
the wearer walks past is left to a generous tolerance, and what is gone for ``FORGET_S`` is forgotten. Knows no
distances: two equal signs in one direction, one behind the other, are one. Everything is bounded, and one picture takes
well under 5 ms.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import msgspec

from handrail.runtime.scene import wrap_deg
from handrail.runtime.scenetext.reader import is_scrap
from handrail.runtime.scenetext.sights import Sight

FORGET_S = 15.0
MOST_PLACES = 32
MOST_LINES = 24  # of one picture, the most confident first
LEAST_CONFIDENCE = 0.5  # below it what was read is mostly wrong, and would come anew in every picture
NEAR_DEG = 8.0  # between the edges of two looks at one sign
ALIKE = 0.6  # similarity from which two readings at one place are of one sign
MOST_COMPARED = 48  # letters
FULLER = 0.8  # a fuller reading replaces a part of it if it has so much of its confidence


class Place(msgspec.Struct, frozen=True):
    id: int  # stable while it is remembered; never given again
    text: str  # of the best reading, as it was read
    confidence: float  # of that reading
    azimuth_deg: float  # of its middle when last seen, clockwise from the level frame's x axis
    elevation_deg: float  # above the horizon, by the nose's pitch
    width_deg: float
    height_px: float  # in the picture of its best reading
    looks: int
    first_device_ns: int
    last_device_ns: int

    def bearing_from(self, nose_rad: float) -> float:
        """Degrees clockwise from the nose."""
        return wrap_deg(self.azimuth_deg + math.degrees(nose_rad))


class Places:
    def __init__(self) -> None:
        self._places: list[Place] = []  # the last seen first
        self._given = 0  # ids

    def __len__(self) -> int:
        return len(self._places)

    def seam(self) -> None:
        """Time or place jumped: nothing seen before is where it was. Ids go on."""
        self._places = []

    def now(self, device_ns: int) -> list[Place]:
        """What is remembered at that time: the last seen first, among these the best read."""
        return [p for p in self._places if device_ns - p.last_device_ns <= FORGET_S * 1e9]

    def see(self, device_ns: int, seen: Sequence[Sight], nose_rad: float = 0.0, pitch_rad: float = 0.0) -> list[Place]:
        """Take in the lines of one picture; gives those that are new or now read better, in the order of confidence.

        ``nose_rad``, ``pitch_rad``: ``Scene.wearer``'s at the picture's capture; 0 where nothing is known of the head.
        """
        old, taken, changed = self.now(device_ns), dict[int, Place](), list[Place]()
        in_part: list[Place] = []  # of which only a part was read now: other parts may follow
        for sight in _most_confident(seen):
            here = _place(device_ns, sight, nose_rad, pitch_rad)
            found = _match(here, [p for p in old if p.id not in taken])
            if found is None and _match(here, in_part, parts_only=True) is not None:
                continue
            if found is None:
                self._given += 1
                here = msgspec.structs.replace(here, id=self._given)
                changed.append(here)
            else:
                if _part(here.text, found.text):
                    in_part.append(found)
                here = _again(found, here)
                if _letters(here.text) != _letters(found.text):
                    changed.append(here)
            taken[here.id] = here
        self._places = [*taken.values(), *(p for p in old if p.id not in taken)][:MOST_PLACES]
        return changed


def _most_confident(seen: Sequence[Sight]) -> list[Sight]:
    """In an order that doesn't depend on the one they came in."""
    lines = [(s, s.line.text, s.line.confidence) for s in seen]
    kept = [s for s, text, sure in lines if sure >= LEAST_CONFIDENCE and _letters(text) and not is_scrap(text, sure)]
    return sorted(kept, key=lambda s: (-s.line.confidence, s.bearing_deg, s.elevation_deg, s.line.text))[:MOST_LINES]


def _place(device_ns: int, s: Sight, nose_rad: float, pitch_rad: float) -> Place:
    return Place(
        id=0, text=s.line.text[: 4 * MOST_COMPARED], confidence=s.line.confidence,
        azimuth_deg=wrap_deg(s.bearing_deg - math.degrees(nose_rad)),
        elevation_deg=s.elevation_deg + math.degrees(pitch_rad),
        width_deg=s.width_deg, height_px=s.line.height_px, looks=1, first_device_ns=device_ns, last_device_ns=device_ns,
    )  # fmt: skip


def similarity(a: str, b: str) -> float:
    """1 - edit distance / length of the longer, over letters and digits in lower case; 1: equal, 0: nothing alike."""
    a, b = _letters(a), _letters(b)
    return 1.0 if a == b else 1.0 - distance(a, b) / max(len(a), len(b))


def distance(a: str, b: str) -> int:
    """Levenshtein's, by Myers' bit vectors as Hyyrö gives them (2001): a step a letter, so that hostile text can't
    take long. It stands here since the standard library has none and a package for it would weigh megabytes."""
    if not a:
        return len(b)
    where: dict[str, int] = {}
    for i, letter in enumerate(a):
        where[letter] = where.get(letter, 0) | 1 << i
    whole, last = (1 << len(a)) - 1, 1 << (len(a) - 1)
    up, down, found = whole, 0, len(a)
    for letter in b:
        match = where.get(letter, 0)
        zero = (((match & up) + up) ^ up) | match | down
        right, left = down | ~(zero | up) & whole, up & zero
        found += bool(right & last) - bool(left & last)
        right, left = right << 1 | 1, left << 1
        up, down = (left | ~(zero | right)) & whole, right & zero & whole
    return found


@lru_cache(512)
def _letters(text: str) -> str:
    return "".join(c for c in text.casefold() if c.isalnum())[:MOST_COMPARED]


def _match(here: Place, among: Sequence[Place], parts_only: bool = False) -> Place | None:
    """The remembered place that this is another look at: near it, and alike or one a part of the other."""
    scored = []
    for p in among:
        apart_deg = abs(wrap_deg(here.azimuth_deg - p.azimuth_deg))
        if not _near(here, p, apart_deg):
            continue
        alike = 0.0 if parts_only else similarity(here.text, p.text)
        score = max(alike, ALIKE if _part(here.text, p.text) or _part(p.text, here.text) else 0.0)
        if score >= ALIKE:
            scored.append((-score, apart_deg, p.id, p))
    return min(scored)[-1] if scored else None


def _near(a: Place, b: Place, apart_deg: float) -> bool:
    beside = apart_deg - (a.width_deg + b.width_deg) / 2 <= NEAR_DEG
    return beside and abs(a.elevation_deg - b.elevation_deg) <= NEAR_DEG


def _part(short: str, whole: str) -> bool:
    """Whether one reading is a piece of the other, two letters at least, and less than all of it."""
    short, whole = _letters(short), _letters(whole)
    return 2 <= len(short) < len(whole) and short in whole


def _again(before: Place, here: Place) -> Place:
    """Where it is now, with the better of both readings."""
    best = _fuller(before, here)
    return msgspec.structs.replace(
        here, id=before.id, text=best.text, confidence=best.confidence, height_px=best.height_px,
        looks=before.looks + 1, first_device_ns=before.first_device_ns,
    )  # fmt: skip


def _fuller(before: Place, here: Place) -> Place:
    """The reading to keep: the whole rather than a part of it, else the more confident, else the earlier."""
    if _part(before.text, here.text):
        return here if here.confidence >= FULLER * before.confidence else before
    if _part(here.text, before.text):
        return before if before.confidence >= FULLER * here.confidence else here
    return here if here.confidence > before.confidence else before
