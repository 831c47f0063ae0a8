"""What is said, word by word: hazard first, imperative, five words or fewer, worked out at the moment it is spoken.

Distances in metres or the wearer's steps, rounded, "about" where the measured uncertainty asks for it; directions on
the clock face or left and right, clockwise from the reference heading. A direction that isn't known well enough is left
out. Never "safe", never "clear": nothing said means that nothing is known. Knows nothing of queues and sounds.
"""

from __future__ import annotations

import math
import re
from enum import StrEnum

import msgspec

from handrail.runtime import config
from handrail.runtime.events import Priority
from handrail.runtime.scene import Obstacle, Wearer, wrap_deg
from handrail.runtime.speech.alerts import (
    PHRASE_END_S,
    SAME_PLACE_M,
    Alert,
    Rules,
    cautious_s,
    horizon_s,
    in_way,
    walking,
)
from handrail.runtime.speech.utterance import MAX_AGE_NS, Frame, Moment, Say, Silence, Unspoken, Words

MOST_WORDS = 5
SLACK_M = 0.3  # once told, a thing so far beside the corridor is still worth its words: it may be one frame's noise
AHEAD_DEG = 15.0  # half an hour on the clock face
SIDE_DEG = 8.0  # beyond this "left" or "right"; within it "ahead"
FORBIDDEN = ("safe", "clear", "here", "there", "as you can see")  # never in anything said


class Notice(StrEnum):
    """Fixed lines, rendered before they are needed."""

    CANT_SEE = "I can't see."
    SEE_AGAIN = "I see again."
    CANT_JUDGE = "Can't judge ahead."
    NO_MOTION = "Motion sensor lost."
    SENSOR_FAULT = "Sensor fault."
    DETECTOR_FAULT = "Detector restarted."
    VOICE_LOST = "Voice failed. Tones only."
    NOTHING_TO_REPEAT = "Nothing to repeat."
    STOPPED = "Guidance stopped."


NOTICE_PRIORITY = {
    Notice.CANT_SEE: Priority.NOW,
    Notice.VOICE_LOST: Priority.NOW,
    Notice.STOPPED: Priority.NOW,
    Notice.SEE_AGAIN: Priority.NEXT,
    Notice.CANT_JUDGE: Priority.NEXT,
    Notice.NO_MOTION: Priority.NEXT,
    Notice.SENSOR_FAULT: Priority.NEXT,
    Notice.DETECTOR_FAULT: Priority.NEXT,
    Notice.NOTHING_TO_REPEAT: Priority.NEXT,
}

# The least that can be said of each hazard: when there is no time for more, and when the voice has failed.
SHORTEST = {"drop_off": "Stop.", "head": "Head height.", "contact": "Obstacle.", "approaching": "Obstacle."}
READY = (*Notice, "Stop. Step down.", *dict.fromkeys(SHORTEST.values()))

_NUMBERS = "no one two three four five six seven eight nine ten eleven twelve".split()


def speaking_s(text: str, rate_wpm: int) -> float:
    """About how long espeak-ng takes for a text of ours (measured at 175, 240 and 300 words a minute: within 20 %)."""
    pauses = text.count(". ")
    return (0.1 + 0.047 * len(text) + 0.12 * pauses) * 240 / rate_wpm


def rules_for(rate_wpm: int, unseen_s: float) -> Rules:
    """Warn early enough for the usual phrases; a longer one is said where there is time for it."""
    usual_s = speaking_s("Obstacle, three metres.", rate_wpm)
    approach_s = speaking_s("Person, eleven o'clock, coming closer.", rate_wpm)
    return Rules(horizon_s(usual_s), horizon_s(approach_s), unseen_s)


def hazard_words(alert: Alert, wearer: config.Wearer) -> Words:
    """The words for an alert, as of the moment: gone when it is no longer in the way, too old when unseen for 1 s."""

    def words(moment: Moment) -> Say | Silence:
        o = None if moment.scene is None else _same(alert.obstacle, moment.scene.obstacles)
        if moment.scene is None or o is None:
            return Silence(Unspoken.INVALID)
        seen_ns = moment.seen_ns(o.last_device_ns)
        if moment.now_ns - seen_ns > MAX_AGE_NS:
            return Silence(Unspoken.EXPIRED)
        w = advanced(walking(moment.scene.wearer), (moment.now_ns - moment.captured_ns) / 1e9)
        c = in_way(o, w, SLACK_M)
        if c is None:
            return Silence(Unspoken.INVALID)
        o = _doubted(o, alert.obstacle, w)
        text = hazard_text(o, w, alert.hazard.rule, wearer, cautious_s(o, w, c) - PHRASE_END_S)
        frame = None if alert.hazard.rule == "drop_off" else Frame.of(w)
        return Say(text, frame, seen_ns, o.last_device_ns)

    return words


def hazard_text(o: Obstacle, w: Wearer, rule: str, wearer: config.Wearer, time_s: float = math.inf) -> str:
    """The fullest of its phrases that has at most five words and can be said in ``time_s``; else the shortest."""
    possible = [t for t in _candidates(o, w, rule, wearer) if len(t.split()) <= MOST_WORDS]
    for text in possible:
        if speaking_s(text, wearer.speech_rate_wpm) <= time_s:
            return text
    return min(possible, key=len)


def _candidates(o: Obstacle, w: Wearer, rule: str, wearer: config.Wearer) -> list[str]:
    distance_m, bearing = o.seen_from(w)
    bearing = round(bearing, 6)  # so that no rounding error of an angle decides between two words
    # The nearest point of a wide thing, a bar across the way, may be anywhere along it: no side to be relied on.
    sd_deg = max(o.bearing_sd_deg, math.degrees(math.atan2(0.25 * o.width_m, distance_m)))
    side = _side(bearing, sd_deg)
    where = direction(bearing, sd_deg, wearer)
    if rule == "drop_off":
        return ["Stop. Step down.", SHORTEST["drop_off"]]
    if rule == "head":
        return [*([f"Head height, {side}."] if side else []), SHORTEST["head"]]
    name = speakable(o.label)
    plain = f"{name}."
    if rule == "approaching":
        return [_sentence(name, where, "coming closer"), *([_sentence(name, where, "")] if where else []), plain]
    far = distance(distance_m, o.distance_sd_m, wearer)
    if where in ("", "ahead"):
        return [_sentence(name, "", far), *([f"{name} ahead."] if where else []), plain]
    return [_sentence(name, where, far), _sentence(name, where, ""), plain]


def direction(bearing_deg: float, sd_deg: float, wearer: config.Wearer) -> str:
    """"ten o'clock", "left", "ahead"; empty when it isn't known well enough to be acted on."""
    if wearer.directions == "left-right":
        return _side(bearing_deg, sd_deg)
    if sd_deg > AHEAD_DEG:
        return ""
    hours = int(abs(bearing_deg) / 30 + 0.5)  # the same to both sides
    if hours == 0:
        return "ahead"
    return f"{_NUMBERS[hours if bearing_deg > 0 or hours == 6 else 12 - hours]} o'clock"


def distance(metres: float, sd_m: float, wearer: config.Wearer) -> str:
    """Rounded, halves towards the wearer: "three metres", "about four steps"."""
    unit_m, one, many = (wearer.step_length_m, "step", "steps") if wearer.units == "steps" else (1.0, "metre", "metres")
    hedge = "about " if sd_m > 0.25 * unit_m else ""
    n = math.ceil(metres / unit_m - 0.5)
    if n < 1:
        return hedge + ("half a metre" if wearer.units == "metres" else "one step")
    number = _NUMBERS[n] if n < len(_NUMBERS) else str(n)
    return f"{hedge}{number} {one if n == 1 else many}"


def speakable(label: str | None) -> str:
    """A label as a name to say: one or two plain words, else "Obstacle". Labels come from models: they are data."""
    text = (label or "").strip().lower()
    if not re.fullmatch(r"[a-z]{2,14}( [a-z]{2,14})?", text) or any(f in text.split() for f in FORBIDDEN):
        return "Obstacle"
    return text.capitalize()


def advanced(w: Wearer, seconds: float) -> Wearer:
    """The wearer so much later, going on as in the scene."""
    if w.travel_rad is None:
        return w
    step_m = w.speed_msec * max(0.0, seconds)
    x_m, y_m = w.x_m + step_m * math.cos(w.travel_rad), w.y_m + step_m * math.sin(w.travel_rad)
    return msgspec.structs.replace(w, x_m=x_m, y_m=y_m)


def _side(bearing_deg: float, sd_deg: float) -> str:
    """A side is said only when it is two standard deviations from being the other."""
    if abs(bearing_deg) > 180 - max(SIDE_DEG, 2 * sd_deg):
        return ""  # behind
    if abs(bearing_deg) > max(SIDE_DEG, 2 * sd_deg):
        return "right" if bearing_deg > 0 else "left"
    return "ahead" if abs(bearing_deg) <= AHEAD_DEG else ""


def _sentence(name: str, where: str, rest: str) -> str:
    """"Chair left, two metres."  "Chair, ten o'clock, two metres." """
    plain = where in ("left", "right", "ahead")
    head = f"{name} {where}" if plain else name
    return ", ".join(p for p in (head, "" if plain else where, rest) if p) + "."


def _doubted(o: Obstacle, told: Obstacle, w: Wearer) -> Obstacle:
    """Two looks must agree about the side of a still thing: how far they are apart counts as uncertainty."""
    if o.moving or told.moving:
        return o
    apart_deg = abs(wrap_deg(o.seen_from(w)[1] - told.seen_from(w)[1]))
    return msgspec.structs.replace(o, bearing_sd_deg=max(o.bearing_sd_deg, apart_deg / 2))


def _same(old: Obstacle, now: tuple[Obstacle, ...]) -> Obstacle | None:
    """The obstacle in the newest scene: by its track, else by thing and place."""
    for o in now:
        if o.id == old.id:
            return o
    for o in now:
        near = math.hypot(o.x_m - old.x_m, o.y_m - old.y_m) <= SAME_PLACE_M
        if o.thing is old.thing and near:
            return o
    return None


