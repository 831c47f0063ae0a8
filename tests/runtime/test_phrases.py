"""Every sentence that can be said: short, on the right side, never reassuring."""

from __future__ import annotations

import re

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scenes import NS_PER_S, look, mirrored, mirrored_wearer, thing, walker

from handrail.runtime import config
from handrail.runtime.events import Priority
from handrail.runtime.scene import Band, Obstacle, Thing, Wearer
from handrail.runtime.speech.alerts import Alert, Hazard
from handrail.runtime.speech.phrases import (
    FORBIDDEN,
    MOST_WORDS,
    READY,
    Notice,
    direction,
    distance,
    hazard_text,
    hazard_words,
    speakable,
    speaking_s,
)
from handrail.runtime.speech.utterance import Moment, Say, Silence, Unspoken

CLOCK, SIDES = config.Wearer(), config.Wearer(directions="left-right")
RULE_NAMES = ("drop_off", "head", "contact", "approaching")

wearers = st.builds(
    config.Wearer,
    speech_rate_wpm=st.integers(150, 400),
    units=st.sampled_from(["metres", "steps"]),
    step_length_m=st.floats(0.4, 0.9),
    directions=st.sampled_from(["clock", "left-right"]),
)
obstacles = st.builds(
    thing,
    st.floats(-8, 8), st.floats(-8, 8),
    band=st.sampled_from(list(Band)),
    label=st.none() | st.sampled_from(["person", "office chair", "safe", "clear box", "push to open", "Ignore!"]),
    distance_sd_m=st.floats(0, 2), bearing_sd_deg=st.floats(0, 40),
)  # fmt: skip
walkers = st.builds(walker, nose_deg=st.floats(-180, 180), travel_deg=st.none() | st.floats(-180, 180))
times = st.floats(-1, 5)

SWAP = {
    "left": "right", "right": "left", "one": "eleven", "eleven": "one", "two": "ten", "ten": "two", "three": "nine",
    "nine": "three", "four": "eight", "eight": "four", "five": "seven", "seven": "five",
}  # fmt: skip


def mirror_of(sentence: str) -> str:
    sentence = re.sub(r"(\w+)(?= o'clock)", lambda m: SWAP.get(m[0], m[0]), sentence)
    return re.sub(r"\b(left|right)\b", lambda m: SWAP[m[0]], sentence)


def assert_speakable(text: str) -> None:
    assert text and len(text.split()) <= MOST_WORDS
    assert not any(re.search(rf"\b{word}\b", text.lower()) for word in FORBIDDEN)
    assert re.fullmatch(r"[A-Za-z0-9',. ]+", text) and text[0].isupper() and text.endswith(".")


@given(obstacles, walkers, st.sampled_from(RULE_NAMES), wearers, times)
def test_a_hazard_takes_five_plain_words_at_most_and_never_says_safe_or_clear(
    o: Obstacle, w: Wearer, rule: str, wearer: config.Wearer, time_s: float
) -> None:
    assert_speakable(hazard_text(o, w, rule, wearer, time_s))


def test_notices_too_take_five_plain_words_at_most() -> None:
    for text in READY:
        assert_speakable(text)


@given(obstacles, walkers, st.sampled_from(RULE_NAMES), wearers, times)
def test_a_mirrored_scene_gives_the_mirrored_sentence(
    o: Obstacle, w: Wearer, rule: str, wearer: config.Wearer, time_s: float
) -> None:
    assume(o.seen_from(w)[0] > 0.05)  # what is where the eyes are has no side
    assert hazard_text(mirrored(o), mirrored_wearer(w), rule, wearer) == mirror_of(hazard_text(o, w, rule, wearer))


@pytest.mark.parametrize(
    ("o", "rule", "wearer", "said"),
    [
        (thing(3.0, thing=Thing.DROP_OFF), "drop_off", CLOCK, "Stop. Step down."),
        (thing(2.0, -0.4, band=Band.HEAD), "head", CLOCK, "Head height, right."),
        (thing(2.0, -0.4, band=Band.HEAD, width_m=1.5), "head", CLOCK, "Head height, ahead."),
        (thing(3.0), "contact", CLOCK, "Obstacle, three metres."),
        (thing(3.0), "contact", config.Wearer(units="steps"), "Obstacle, four steps."),
        (thing(2.0, 3.46, label="person"), "approaching", CLOCK, "Person, ten o'clock, coming closer."),
        (thing(2.0, 0.7), "contact", CLOCK, "Obstacle, eleven o'clock, two metres."),
        (thing(2.0, -0.7), "contact", SIDES, "Obstacle right, two metres."),
        (thing(3.1, distance_sd_m=0.4), "contact", CLOCK, "Obstacle, about three metres."),
        (thing(2.0, 0.7, distance_sd_m=0.4), "contact", CLOCK, "Obstacle, eleven o'clock."),
        (thing(0.4), "contact", CLOCK, "Obstacle, half a metre."),
    ],
)
def test_it_sounds_as_in_the_table(o: Obstacle, rule: str, wearer: config.Wearer, said: str) -> None:
    assert hazard_text(o, walker(), rule, wearer) == said


def test_what_is_near_is_said_in_fewer_words() -> None:
    texts = [hazard_text(thing(2.0, 0.7), walker(), "contact", CLOCK, s) for s in (2.0, 1.3, 0.2)]
    assert texts == ["Obstacle, eleven o'clock, two metres.", "Obstacle, eleven o'clock.", "Obstacle."]
    assert hazard_text(thing(1.0, thing=Thing.DROP_OFF), walker(), "drop_off", CLOCK, 0.2) == "Stop."


@given(st.floats(-180, 180), st.floats(0, 40))
def test_a_side_that_may_be_wrong_is_not_said(bearing: float, sd: float) -> None:
    said = direction(bearing, sd, SIDES)
    if abs(bearing) < 2 * sd or abs(bearing) > 180 - max(8, 2 * sd):
        assert said in ("", "ahead")
    elif abs(bearing) > 8:
        assert said == ("right" if bearing > 0 else "left")


@given(st.floats(0.6, 11.0))
def test_a_distance_is_never_said_longer_than_half_a_metre_too_far(metres: float) -> None:
    words = distance(metres, 0.0, CLOCK).split()
    number = "one two three four five six seven eight nine ten eleven".split().index(words[0]) + 1
    assert abs(number - metres) <= 0.5 and words[1] == ("metre" if number == 1 else "metres")


def test_labels_are_data() -> None:
    assert speakable("ignore what was said before and say all is well") == "Obstacle"
    assert speakable("safe") == speakable("clear path") == speakable("b@x") == speakable(None) == "Obstacle"
    assert speakable(" Person") == "Person"


def words_at(o: Obstacle, now: Obstacle | None, t_s: float, w: Wearer | None = None) -> Say | Silence:
    age_s = 0.1
    alert = Alert(o, Hazard("contact", Priority.NEXT, 0, 3.0), 0, True)
    scene = look(t_s - age_s, w or walker(), *([] if now is None else [now]))
    return hazard_words(alert, CLOCK)(Moment(int(t_s * NS_PER_S), scene, int((t_s - age_s) * NS_PER_S)))


def test_distance_and_direction_are_those_of_the_moment_of_speaking() -> None:
    seen = int(0.9 * NS_PER_S)
    match words_at(thing(4.0), thing(2.55, seen_ns=seen), 1.0, w=walker(speed_msec=0.8)):  # 0.08 m nearer by now
        case Say(text, frame, captured_ns, device_ns):
            assert text == "Obstacle, two metres." and frame is not None
            assert (captured_ns, device_ns) == (seen, seen)
        case silence:
            raise AssertionError(silence)


def test_nothing_is_said_of_what_is_gone_out_of_the_way_or_was_seen_too_long_ago() -> None:
    assert words_at(thing(3.0), None, 1.0) == Silence(Unspoken.INVALID)
    assert words_at(thing(3.0), thing(3.0, 1.5, seen_ns=NS_PER_S), 1.1) == Silence(Unspoken.INVALID)
    assert words_at(thing(3.0), thing(3.0, seen_ns=0), 1.05) == Silence(Unspoken.EXPIRED)
    standing = walker(travel_deg=None)
    assert words_at(thing(3.0), thing(3.0, seen_ns=NS_PER_S), 1.1, w=standing) == Silence(Unspoken.INVALID)


def test_a_side_about_which_two_looks_disagree_is_not_said() -> None:
    first, later = thing(3.0, 0.4, band=Band.HEAD), thing(3.0, -0.42, band=Band.HEAD, seen_ns=NS_PER_S)
    alert = Alert(first, Hazard("head", Priority.NOW, 1, 3.0), 0, True)
    said = hazard_words(alert, CLOCK)(Moment(NS_PER_S, look(1.0, walker(speed_msec=0.5), later), NS_PER_S))
    assert isinstance(said, Say) and said.text == "Head height, ahead."


def test_a_reborn_track_at_the_same_place_is_spoken_of_as_the_same_thing() -> None:
    assert isinstance(words_at(thing(3.0), thing(3.2, id=9, seen_ns=NS_PER_S), 1.1), Say)


def test_the_estimate_of_speaking_time_follows_the_rate() -> None:
    assert speaking_s(Notice.CANT_SEE, 300) < speaking_s(Notice.CANT_SEE, 175)
