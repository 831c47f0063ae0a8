"""Whether a change of scene is worth telling unasked. Quiet is a feature: mostly it is not.

Worth it: a thing with a name that wasn't there, another place after a walk or a turn, a way that narrows or opens. It
must hold for a second, since depth and labels flicker. Then the wearer's detail level decides: brief never, normal once
a minute, full once in 20 s at most. Not while walking fast, while a hazard is near, or while anything is being said.

    decision, memory = decide(memory, scene, now_ns, wearer.detail, speaking)
    if isinstance(decision, Tell):
        memory = asked(memory, scene)
        memory = ended(memory, now_ns, said=True)

An answer that the wearer asked for and that described the scene counts too: ``asked`` and ``ended`` for it. Knows no
model. Positions: level frame; after a seam begin with a new ``Memory``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Literal

from handrail.runtime.asking.place import Known, Place, ahead, confirmed, with_known
from handrail.runtime.scene import Obstacle, Scene, Thing, time_to_contact_s
from handrail.runtime.speech.phrases import speakable
from handrail.streams.clock import NS_PER_S

EVERY_S = {"brief": math.inf, "normal": 60.0, "full": 20.0}
HOLDS_S = 1.0
SETTLING_S = 5.0  # at the beginning everything is new: it is taken in without a word
THING_M = 5.0  # things farther away aren't told
SAME_THING_M = 3.0  # another of the same name so near a known one is no news: a row of chairs
PLACE_M = 8.0
TURN_DEG, TURN_M = 60.0, 3.0  # a turn counts once that much is walked since: looking round is no change
FAST_MSEC = 1.5
HAZARD_S, DROP_M = 4.0, 4.0
SIDE_M, ALONG_M = 2.0, 4.0  # how far the width of the way is looked at, to each side and ahead
MIDDLE_M = 0.3
NARROW_M = 1.6  # a way under this is narrow
CHANGED_BY = 0.6  # times as wide

Level = Literal["brief", "normal", "full"]


class Quiet(StrEnum):
    """Why nothing is told."""

    NOTHING_NEW = "nothing new"
    NOT_WANTED = "detail level"
    TOO_SOON = "too soon"
    SPEAKING = "something is being said"
    FAST = "walking fast"
    HAZARD = "hazard near"
    UNSEEN = "no usable scene"
    NOT_HELD = "not held long enough"
    SETTLING = "just begun"


@dataclass(frozen=True, slots=True)
class Tell:
    reason: str  # what is new, in a few words of ours


@dataclass(frozen=True, slots=True)
class Silence:
    reason: Quiet


@dataclass(frozen=True, slots=True)
class Described:
    """What a description was of."""

    place: Place
    width_m: float | None  # of the way; None: not known


@dataclass(frozen=True, slots=True)
class Memory:
    begun_ns: int | None = None  # of the first look
    last: Described | None = None
    asking: Described | None = None  # being worked out or said
    told_ns: int | None = None  # when the last one's end was heard, or it failed
    known: tuple[Known, ...] = ()  # things with names, told or there at the beginning
    news: str | None = None  # what is new in the last look
    news_ns: int | None = None  # since when it has been


def decide(
    memory: Memory, scene: Scene | None, now_ns: int, level: Level, speaking: bool
) -> tuple[Tell | Silence, Memory]:
    """For every look. ``speaking``: any answer is being worked out or said."""
    if scene is None or not scene.quality.usable:
        return Silence(Quiet.UNSEEN), replace(memory, news=None, news_ns=None)
    if memory.begun_ns is None or now_ns - memory.begun_ns < SETTLING_S * NS_PER_S:
        begun_ns = now_ns if memory.begun_ns is None else memory.begun_ns
        known = with_known(memory.known, _named(scene))
        return Silence(Quiet.SETTLING), replace(memory, begun_ns=begun_ns, last=_described(scene), known=known)
    news = _news(memory, scene)
    since_ns = memory.news_ns if news is not None and news == memory.news else now_ns
    memory = replace(memory, news=news, news_ns=None if news is None else since_ns)
    quiet = _quiet(memory, scene, now_ns, level, speaking)
    if news is None or quiet is not None:
        return Silence(quiet or Quiet.NOTHING_NEW), memory
    return Tell(news), memory


def asked(memory: Memory, scene: Scene) -> Memory:
    """A description of this scene is being worked out."""
    known = with_known(memory.known, _named(scene))
    return replace(memory, asking=_described(scene), known=known, news=None, news_ns=None)


def ended(memory: Memory, now_ns: int, said: bool) -> Memory:
    """Heard to its end, or not. Things that went untold stay known: by the time of another try they are passed."""
    last = memory.asking if said and memory.asking is not None else memory.last
    return replace(memory, last=last, asking=None, told_ns=now_ns)


def _quiet(memory: Memory, scene: Scene, now_ns: int, level: Level, speaking: bool) -> Quiet | None:
    """What speaks against telling."""
    if memory.news is None or memory.news_ns is None:
        return Quiet.NOTHING_NEW
    if EVERY_S[level] == math.inf:
        return Quiet.NOT_WANTED
    if speaking or memory.asking is not None:
        return Quiet.SPEAKING
    if memory.told_ns is not None and now_ns - memory.told_ns < EVERY_S[level] * NS_PER_S:
        return Quiet.TOO_SOON
    if now_ns - memory.news_ns < HOLDS_S * NS_PER_S:
        return Quiet.NOT_HELD
    if scene.wearer.travel_rad is not None and scene.wearer.speed_msec > FAST_MSEC:
        return Quiet.FAST
    return Quiet.HAZARD if any(_hazardous(o, scene) for o in confirmed(scene)) else None


def _news(memory: Memory, scene: Scene) -> str | None:
    """What is new since the last description: the nearest thing, else the place, else the width of the way."""
    for o in _named(scene):
        fits = (k.label == o.label and k.fits(o, SAME_THING_M) for k in memory.known)
        if o.seen_from(scene.wearer)[0] <= THING_M and not any(fits):
            return speakable(o.label).lower()
    if memory.last is None:
        return None
    place, w = memory.last.place, scene.wearer
    moved_m = place.moved_m(w)
    if moved_m >= PLACE_M or (moved_m >= TURN_M and w.travel_rad is not None and place.turned_deg(w) >= TURN_DEG):
        return "another place"
    before_m, now_m = memory.last.width_m, _width_m(scene)
    if before_m is None or now_m is None:
        return None
    if now_m <= NARROW_M and now_m <= CHANGED_BY * before_m:
        return "the way narrows"
    return "the way opens" if before_m <= NARROW_M and before_m <= CHANGED_BY * now_m else None


def _named(scene: Scene) -> list[Obstacle]:
    """Confirmed things with a name that can be said, nearest first."""
    named = [o for o in confirmed(scene) if o.label is not None and speakable(o.label) != "Obstacle"]
    return sorted(named, key=lambda o: (o.seen_from(scene.wearer)[0], o.id))


def _described(scene: Scene) -> Described:
    return Described(Place.of(scene.wearer), _width_m(scene))


def _hazardous(o: Obstacle, scene: Scene) -> bool:
    contact_s = time_to_contact_s(o, scene.wearer)
    near = o.thing is Thing.DROP_OFF and o.seen_from(scene.wearer)[0] <= DROP_M
    return near or (contact_s is not None and contact_s <= HAZARD_S)


def _width_m(scene: Scene) -> float | None:
    """Between what stands nearest on the left and on the right, two metres to each side at most; None: not known.

    What stands in the middle is in the way, and makes it no narrower.
    """
    if scene.coverage is None or scene.coverage.corridor_known < 0.5:
        return None
    places = [ahead(o, scene.wearer) for o in confirmed(scene) if o.thing is Thing.OBSTACLE]
    across = [across_m for along_m, across_m in places if 0 < along_m <= ALONG_M and abs(across_m) >= MIDDLE_M]
    left_m = min((-a for a in across if a < 0), default=SIDE_M)
    right_m = min((a for a in across if a > 0), default=SIDE_M)
    return min(left_m, SIDE_M) + min(right_m, SIDE_M)
