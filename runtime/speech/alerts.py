"""The warning rule: which confirmed obstacles and drop-offs need telling now. A pure function of scene and memory.

    alert, memory = decide(scene, memory, rules)

One alert a scene at most, the most urgent; the next comes with the next scene. Time is the scene's device time, so that
the result depends on nothing else. Knows nothing of words and sounds, nor of what is behind an obstacle.

In the way is what the relative motion brings within the corridor (``scene.closing``): a wall alongside, a thing passed
by, or anything at all while standing among still things is not, and is never told.
"""

from __future__ import annotations

import math

import msgspec

from handrail.runtime.events import Priority
from handrail.runtime.scene import CORRIDOR_HALF_WIDTH_M, Band, Closing, Obstacle, Scene, Thing, Wearer, closing

NOW_S = 2.0  # contact sooner than this cuts in, and repeats the earcon unless the wearer slows
PHRASE_END_S = 0.9  # before contact, the phrase has ended
STAIRS_GATE_M = 3.0  # at 1.3 m/s, scaled with speed
OUT_M = 20.0  # outdoors: farther away than this, a thing may be told again; scaled with speed
FORGET_S = 20.0  # so long out of the way, it may be told again
REPEAT_S = 0.7  # between repeats of the earcon
SPACING_S = 0.6  # between the earcons of two things, where one of them only repeats
NEWS_SPACING_S = 0.3  # between the first earcons of two things: as long as one lasts; a repeat holds up no news
SLOWED = 0.8  # of the speed when told: the wearer has understood
SAME_PLACE_M = 0.7  # a new track this near to a told one is the same thing (a desk comes in pieces)
FRONT_DEPTH_M, FRONT_GAP_M = 0.4, 0.3  # pieces this flush with each other and this near side by side are one front
HELD_GAP_S = 0.35  # the rule "has held since" survives a gap of so long: three frames
USUAL_MSEC = 1.3
ASSUMED_MSEC = 1.0  # where the wearer's motion isn't known (orientation only), a slow walk is assumed
MEASURED_MOTION = ("vio", "stereo")
UNKNOWN_FOR_S = 1.0  # after so long without: odometry takes a few frames to begin
MOST_TOLD = 64
NS = 1e9


class Rules(msgspec.Struct, frozen=True):
    horizon_s: float  # warn when contact is nearer than this: reaction, earcon and phrase must fit
    approach_s: float  # the same for what comes nearer by itself: its phrase is longer
    unseen_s: float = 0.9  # an obstacle unseen for longer than this before the scene is not warned of


def horizon_s(phrase_s: float, latency_s: float = 0.2, earcon_s: float = 0.25) -> float:
    """Seconds before contact at which to warn, so that a phrase of ``phrase_s`` ends ``PHRASE_END_S`` before it.

    The margin of 0.3 s is for a gait that quickens. Worked out from the rule "1.3 m/s x (latency + message + 0.4 s) +
    0.6 m" (0.86 s of reaction in all), which this meets from 1.3 m/s down.
    """
    return latency_s + earcon_s + phrase_s + PHRASE_END_S + 0.3


class Hazard(msgspec.Struct, frozen=True):
    """What the warning rule makes of an obstacle in one scene."""

    rule: str  # "drop_off", "contact", "head", "approaching"
    priority: Priority
    severity: int
    contact_s: float  # cautious: one standard deviation early


class Alert(msgspec.Struct, frozen=True):
    obstacle: Obstacle
    hazard: Hazard
    first_rule_device_ns: int  # first frame since when the rule has held, confirmed or not
    words: bool  # False: it was told already, the earcon alone repeats


class Told(msgspec.Struct, frozen=True):
    id: int
    thing: Thing
    head: bool
    x_m: float
    y_m: float
    width_m: float
    position_sd_m: float  # of the wearer, when told
    speed_msec: float  # of the wearer, when told
    told_device_ns: int
    held_device_ns: int  # when it was last in the way
    said: bool  # its words were said, or wait to be


class Held(msgspec.Struct, frozen=True):
    id: int
    first_device_ns: int
    last_device_ns: int


class Memory(msgspec.Struct, frozen=True):
    told: tuple[Told, ...] = ()
    held: tuple[Held, ...] = ()  # every obstacle for which the rule holds, also unconfirmed ones
    earcon_device_ns: int | None = None  # the last
    news_device_ns: int | None = None  # the last first one of a thing
    unknown_device_ns: int | None = None  # since when the wearer's motion isn't known

    def unsaid(self, obstacle_id: int) -> Memory:
        """Its words went unsaid: it may be told again."""
        return msgspec.structs.replace(
            self, told=tuple(msgspec.structs.replace(t, said=False) if t.id == obstacle_id else t for t in self.told)
        )


def in_way(o: Obstacle, w: Wearer, slack_m: float = 0.0) -> Closing | None:
    """How it comes nearer, when going on as now brings it within the corridor, ``slack_m`` beside included."""
    c = closing(o, w)
    return c if c is not None and c.along_m > 0 and c.across_m <= CORRIDOR_HALF_WIDTH_M + slack_m else None


def cautious_s(o: Obstacle, w: Wearer, c: Closing) -> float:
    """Time to contact, early by a standard deviation of the distance and of the wearer's speed (a quarter at most)."""
    along_m = c.along_m - min(o.distance_sd_m, 0.25 * c.along_m)
    return along_m / (c.speed_msec + min(w.speed_sd_msec, 0.25 * c.speed_msec))


def assess(o: Obstacle, w: Wearer, rules: Rules) -> Hazard | None:
    """The warning rule for one obstacle; None when it needn't be told (yet)."""
    c = in_way(o, w)
    if c is None:
        return None
    contact_s = cautious_s(o, w, c)
    comes = o.moving and _own_closing_msec(o, w) > 0.3
    near = contact_s <= (rules.approach_s if comes else rules.horizon_s)
    soon = Priority.NOW if contact_s <= NOW_S else Priority.NEXT
    if o.thing is Thing.DROP_OFF:
        if near or c.along_m - o.distance_sd_m <= STAIRS_GATE_M * _pace(w.speed_msec):
            return Hazard("drop_off", Priority.NOW, 3, contact_s)
    elif not near:
        return None
    elif comes:
        return Hazard("approaching", soon, 0, contact_s)
    elif o.band is Band.HEAD:
        return Hazard("head", Priority.NOW, 1, contact_s)
    else:
        return Hazard("contact", soon, 0, contact_s)
    return None


def decide(scene: Scene, memory: Memory, rules: Rules) -> tuple[Alert | None, Memory]:
    """The alert that is due with this scene, and what to remember."""
    now = scene.device_ns
    memory = _motion_noted(memory, scene)
    unknown = memory.unknown_device_ns is not None and now - memory.unknown_device_ns >= UNKNOWN_FOR_S * NS
    w = walking(scene.wearer) if unknown else scene.wearer
    hazards = [(o, h) for o in scene.obstacles if (h := assess(o, w, rules)) is not None]
    memory = _refreshed(memory, scene, hazards)
    seen = [(o, h) for o, h in hazards if o.confirmed and now - o.last_device_ns <= rules.unseen_s * NS]
    seen.sort(key=lambda oh: (oh[1].priority, -oh[1].severity, oh[1].contact_s, oh[0].id))
    for o, h in seen:
        told = _find(memory.told, o, w)
        words = told is None or (not told.said and now - told.told_device_ns >= REPEAT_S * NS)
        if not words and not (told is not None and _repeats(told, h, w, now)):
            continue
        if not _spaced(memory, told is None, now):
            continue
        first = next((held.first_device_ns for held in memory.held if held.id == o.id), now)
        return Alert(o, h, first, words), _remembered(memory, told, words, o, scene)
    return None, memory


def walking(w: Wearer) -> Wearer:
    """Taken to walk slowly where it looks, if its motion isn't known."""
    if w.motion_from in MEASURED_MOTION:
        return w
    return msgspec.structs.replace(w, travel_rad=w.reference_rad, speed_msec=max(w.speed_msec, ASSUMED_MSEC))


def _pace(speed_msec: float) -> float:
    """Gates grow and shrink with walking speed."""
    return min(1.5, max(0.5, speed_msec / USUAL_MSEC))


def _own_closing_msec(o: Obstacle, w: Wearer) -> float:
    """How fast it comes nearer by its own motion."""
    dx, dy = w.x_m - o.x_m, w.y_m - o.y_m
    return (o.vx_msec * dx + o.vy_msec * dy) / max(1e-6, math.hypot(dx, dy))


def _repeats(told: Told, h: Hazard, w: Wearer, now: int) -> bool:
    """Unless the wearer has slowed, or may have: where motion isn't known, the same earcon would never end."""
    slowed = w.speed_msec < SLOWED * told.speed_msec and h.rule != "approaching"
    slowed = slowed or w.motion_from not in MEASURED_MOTION
    return h.contact_s <= NOW_S and not slowed and now - told.told_device_ns >= REPEAT_S * NS


def _spaced(memory: Memory, news: bool, now: int) -> bool:
    last_ns, spacing_s = (memory.news_device_ns, NEWS_SPACING_S) if news else (memory.earcon_device_ns, SPACING_S)
    return last_ns is None or now - last_ns >= spacing_s * NS


def _find(told: tuple[Told, ...], o: Obstacle, w: Wearer) -> Told | None:
    """The memory of having told this: by its track, else by thing and place.

    What was told as head-height stays told when more of it is seen below; the other way round it is news.
    """
    alike = [t for t in told if t.thing is o.thing and (t.head or o.band is not Band.HEAD)]
    for t in alike:
        if t.id == o.id:
            return t
    for t in alike:
        drift_m = math.sqrt(max(0.0, w.position_sd_m**2 - t.position_sd_m**2))
        if math.hypot(t.x_m - o.x_m, t.y_m - o.y_m) <= SAME_PLACE_M + min(drift_m, 0.5) or _one_front(t, o, w):
            return t
    return None


def _one_front(t: Told, o: Obstacle, w: Wearer) -> bool:
    """Whether both are pieces of one front across the way: of a plain wall, stereo sees a piece here and one there."""
    c, s = math.cos(w.reference_rad), math.sin(w.reference_rad)
    dx, dy = o.x_m - t.x_m, o.y_m - t.y_m
    beside_m = abs(dy * c - dx * s)
    return abs(dx * c + dy * s) <= FRONT_DEPTH_M and beside_m <= 0.5 * (t.width_m + o.width_m) + FRONT_GAP_M


def _motion_noted(memory: Memory, scene: Scene) -> Memory:
    if scene.wearer.motion_from in MEASURED_MOTION:
        return msgspec.structs.replace(memory, unknown_device_ns=None)
    if memory.unknown_device_ns is not None:
        return memory
    return msgspec.structs.replace(memory, unknown_device_ns=scene.device_ns)


def _refreshed(memory: Memory, scene: Scene, hazards: list[tuple[Obstacle, Hazard]]) -> Memory:
    """Since when the rule holds for what; told things follow their tracks, and are forgotten long after."""
    now, w = scene.device_ns, scene.wearer
    firsts = {h.id: h.first_device_ns for h in memory.held if now - h.last_device_ns <= HELD_GAP_S * NS}
    holding = {o.id for o, _ in hazards}
    held = [Held(o.id, firsts.get(o.id, now), now) for o, _ in hazards]
    held += [h for h in memory.held if h.id in firsts and h.id not in holding]
    tracks = {o.id: o for o in scene.obstacles}
    in_way = {t.id for o, _ in hazards if (t := _find(memory.told, o, w)) is not None}
    told = []
    for t in memory.told:
        o = tracks.get(t.id)
        x_m, y_m = (t.x_m, t.y_m) if o is None else (o.x_m, o.y_m)
        held_ns = now if t.id in in_way else t.held_device_ns
        away_m = math.hypot(x_m - w.x_m, y_m - w.y_m)
        if now - held_ns <= FORGET_S * NS and away_m <= OUT_M * _pace(w.speed_msec):
            told.append(msgspec.structs.replace(t, x_m=x_m, y_m=y_m, held_device_ns=held_ns))
    return msgspec.structs.replace(memory, told=tuple(told), held=tuple(held))


def _remembered(memory: Memory, old: Told | None, words: bool, o: Obstacle, scene: Scene) -> Memory:
    w = scene.wearer
    new = Told(
        o.id, o.thing, o.band is Band.HEAD or (old is not None and old.head), o.x_m, o.y_m, o.width_m,
        w.position_sd_m,
        w.speed_msec, scene.device_ns, scene.device_ns, words or (old is not None and old.said),
    )  # fmt: skip
    # What it was found by stays told too while it has a track of its own: else that one would be news again.
    alive = {x.id for x in scene.obstacles if x.id != o.id}
    told = (*(t for t in memory.told if t is not old or t.id in alive), new)[-MOST_TOLD:]
    news_ns = scene.device_ns if old is None else memory.news_device_ns
    return msgspec.structs.replace(memory, told=told, earcon_device_ns=scene.device_ns, news_device_ns=news_ns)
