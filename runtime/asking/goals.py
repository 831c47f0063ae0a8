"""A goal ("find the door"): active until it is reached, given up or replaced; and when its next step is due.

A step is due because of what happened, never because time has passed: the wearer has walked or turned and settled,
something new stands in the way, what is wanted has appeared, or the wearer stands where the last step left them. Never
before the last one has been heard and a few seconds are over, nor while anything is being said.

    goal = begun(1, "find the door")
    if why := due(goal, scene, now_ns, speaking):
        goal = asked(goal, why, scene)           # now the model works
        goal = ended(goal, now_ns, said=True)    # its last word was heard, or it wasn't said

Knows no model and no words of a step. Positions: level frame; ``after_seam`` forgets them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import StrEnum

from handrail.runtime.asking.place import Known, Place, ahead, confirmed, with_known
from handrail.runtime.asking.prompts import REACHED
from handrail.runtime.scene import CORRIDOR_HALF_WIDTH_M, Obstacle, Scene, Wearer
from handrail.streams.clock import NS_PER_S

SPACING_S = 4.0  # from the last step's last word
MOVED_M = 3.0
TURNED_DEG = 45.0
SETTLED_RADSEC = 0.35  # 20 degrees a second: slower, the head looks somewhere
AHEAD_M = 4.0  # what stands nearer than this in the corridor is in the way
STILL_S = 20.0  # so long in one place after a step: once more, then no more
STILL_M = 0.7
_IDLE_WORDS = frozenset("the and for find get reach goal nearest with from into some any way".split())


class GoalState(StrEnum):
    ACTIVE = "active"
    REACHED = "reached"
    GIVEN_UP = "given_up"
    REPLACED = "replaced"


class Due(StrEnum):
    """Why a step is due. In order: the first that holds is given."""

    FIRST = "no step yet"
    WANTED = "what is wanted has appeared"
    IN_WAY = "something new in the way"
    TURNED = "turned"
    MOVED = "walked on"
    STILL = "standing still"


@dataclass(frozen=True, slots=True)
class Step:
    """What it was told for, and where."""

    why: Due
    place: Place


@dataclass(frozen=True, slots=True)
class Goal:
    id: int
    text: str
    told: Step | None = None  # the last that was heard
    asking: Step | None = None  # the model works on it, or it is being said
    ended_ns: int | None = None  # when the last one's end was heard, or it failed
    known: tuple[Known, ...] = ()  # things that were there at a step


def begun(goal_id: int, text: str) -> Goal:
    return Goal(goal_id, text)


def due(goal: Goal, scene: Scene | None, now_ns: int, speaking: bool) -> Due | None:
    """Why the next step is due now; None while it isn't. ``speaking``: any answer is being worked out or said."""
    if scene is None or not scene.quality.usable or speaking or goal.asking is not None:
        return None
    if goal.ended_ns is not None and now_ns - goal.ended_ns < SPACING_S * NS_PER_S:
        return None
    return _why(goal, scene, now_ns)


def asked(goal: Goal, why: Due, scene: Scene | None) -> Goal:
    """The step is being worked out from this scene. Without one (blind, a seam) the next is a first one again."""
    if scene is None:
        return replace(goal, asking=None)
    known = with_known(goal.known, confirmed(scene))
    return replace(goal, asking=Step(why, Place.of(scene.wearer)), known=known)


def ended(goal: Goal, now_ns: int, said: bool) -> Goal:
    """Heard to its end, or not: then the wearer still goes by the one before, and why it was due may hold again."""
    told = goal.asking if said else goal.told
    return replace(goal, told=told, asking=None, ended_ns=now_ns)


def after_seam(goal: Goal) -> Goal:
    """Place and tracks are others now."""
    return replace(goal, told=None, asking=None, known=())


def reached(answer: str) -> bool:
    """Whether an answer, or its first clause, begins in the fixed form. "Reached the wall." is another sentence."""
    word = re.escape(REACHED.rstrip(".").casefold())
    return re.match(rf"\W*{word}\s*(?:[.!。]|\n|$)", answer.casefold()) is not None


def _why(goal: Goal, scene: Scene, now_ns: int) -> Due | None:
    w = scene.wearer
    if goal.told is None:
        return Due.FIRST
    wanted = wanted_words(goal.text)
    new = [o for o in confirmed(scene) if not any(k.fits(o) and k.label == o.label for k in goal.known)]
    if any(is_wanted(o.label, wanted) for o in new):
        return Due.WANTED
    if any(_in_way(o, w) and not any(k.fits(o) for k in goal.known) for o in new):
        return Due.IN_WAY
    place = goal.told.place
    settled = abs(w.turn_rate_radsec) <= SETTLED_RADSEC
    if settled and place.turned_deg(w) >= TURNED_DEG:
        return Due.TURNED
    if settled and place.moved_m(w) >= MOVED_M:
        return Due.MOVED
    waited = goal.ended_ns is not None and now_ns - goal.ended_ns >= STILL_S * NS_PER_S
    still = w.travel_rad is None and place.moved_m(w) <= STILL_M
    return Due.STILL if still and waited and goal.told.why is not Due.STILL else None


def _in_way(o: Obstacle, w: Wearer) -> bool:
    along_m, across_m = ahead(o, w)
    return 0 < along_m <= AHEAD_M and abs(across_m) <= CORRIDOR_HALF_WIDTH_M


def wanted_words(text: str) -> frozenset[str]:
    """Words of a goal that may be a detector's: without the plural's s."""
    words = re.findall(r"[^\W\d_]{3,}", text.casefold())
    return frozenset(_singular(word) for word in words if word not in _IDLE_WORDS)


def is_wanted(label: str | None, wanted: frozenset[str]) -> bool:
    """Every word of the label is among them: "dining table" for "find the dining table", not for "the table"."""
    words = (label or "").casefold().split()
    return bool(words) and all(_singular(word) in wanted for word in words)


def _singular(word: str) -> str:
    return word[:-1] if word.endswith("s") and not word.endswith("ss") else word
