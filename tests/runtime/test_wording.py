"""Words are made fit for a voice, promises are withheld, and a model that goes round in circles is noticed."""

from __future__ import annotations

import re

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from handrail.runtime.config import Wearer
from handrail.runtime.wording import ClauseSplitter, Repetition, promise, speakable
from handrail.runtime.wording.repetition import LEAST, LONGEST, TIMES

METRES, STEPS = Wearer(), Wearer(units="steps", step_length_m=0.5)


@pytest.mark.parametrize(("written", "said"), [
    ("Chair at 2 m.", "Chair at 2 metres."), ("1 m left", "1 metre left"), ("1.5m ahead", "1.5 metres ahead"),
    ("3-4 m", "3 to 4 metres"), ("3 – 4 m away", "3 to 4 metres away"), ("at 2 m/s", "at 2 metres per second"),
    ("a 5 cm step", "a 5 centimetres step"), ("3 ft, 1 ft", "3 feet, 1 foot"), ("10 km", "10 kilometres"),
    ("20 % or 20%", "20 per cent or 20 per cent"), ("turn 45°", "turn 45 degrees"), ("1° more", "1 degree more"),
    ("-5 °C now", "minus 5 degrees Celsius now"), ("10 min", "10 minutes"), ("two meters", "two metres"),
    ("12:30, ten o'clock", "12:30, ten o'clock"), ("£5 m", "£5 m"), ("3 m²", "3 square metres"),
    ("2 × 3 m", "2 by 3 metres"), ("room #5", "room number 5"), ("~2 m", "about 2 metres"), ("1,000 m", "1,000 metres"),
    ("left/right", "left or right"), ("cup & plate", "cup and plate"), ("⚠️ Stop 🛑 now", "Stop now"),
    ("see https://a.example/b?c=1#d.", "see a web address."), ("mail a.b@c.example", "mail an e-mail address"),
    ("a_b | c", "a b c"), ("👩‍🦯 walks", "walks"), ("नमस्ते क्‍ष", "नमस्ते क्‍ष"), ("M25 at A3 m", "M25 at A3 m"),
])  # fmt: skip
def test_units_and_symbols_are_spelt_out(written: str, said: str) -> None:
    assert speakable(written, METRES) == said


@pytest.mark.parametrize(("written", "said"), [
    ("Chair at 2 m.", "Chair at four steps."), ("3-4 metres", "six to eight steps"), ("two metres", "four steps"),
    ("half a metre", "one step"), ("a meter away", "two steps away"), ("2 m wide", "2 metres wide"),
    ("2 m/s", "2 metres per second"), ('It says: "2 m"', 'It says: "2 metres"'), ("5 cm", "5 centimetres"),
    ("1.5 m", "three steps"), ("two and a half metres", "five steps"), ("1,000 m", "2000 steps"),
    ("20 square metres", "20 square metres"), ("10 km", "10 kilometres"),
])  # fmt: skip
def test_plain_distances_are_told_in_the_wearers_steps(written: str, said: str) -> None:
    assert speakable(written, STEPS) == said


WRITTEN = st.lists(st.sampled_from([
    "2 m", "3-4 m", "about ", "a metre", " wide", ", ", ". ", "🛑", "&", "/", "left", "×", "5", "%", "°C", "~", "m/s",
    '"', "“", "”", " ", "-", "meters", "#", "http://a.b", "_", "é", "猫", "→",
]), max_size=12).map("".join)  # fmt: skip


@given(st.one_of(WRITTEN, st.text(max_size=80)), st.sampled_from([METRES, STEPS]))
def test_what_is_speakable_is_one_line_of_words_and_no_pictures(text: str, wearer: Wearer) -> None:
    said = speakable(text, wearer)
    assert said == " ".join(said.split()) and not re.search(r"[🛑_→~|*\n]|https?://", said)


@given(WRITTEN)
def test_no_number_is_lost_or_changed_for_a_wearer_of_metres(text: str) -> None:
    bare = text.replace("http://a.b", "")
    assert re.findall(r"\d", speakable(bare, METRES)) == re.findall(r"\d", bare)


@given(st.lists(st.integers(0, 2), min_size=1, max_size=LONGEST), st.lists(st.integers(3, 5), max_size=50, unique=True))
def test_a_loop_of_tokens_is_noticed_after_three_rounds(group: list[int], before: list[int]) -> None:
    repetition = Repetition()
    assert not any(repetition.add(t) for t in before)
    rounds = max(TIMES, -(-LEAST // len(group)))
    assert [repetition.add(t) for t in group * rounds][-1]


@given(st.lists(st.integers(0, 10_000), unique=True, max_size=300))
def test_text_that_goes_on_is_no_loop_even_if_said_twice(tokens: list[int]) -> None:
    repetition = Repetition()
    assert not any(repetition.add(t) for t in tokens * 2)


def test_a_clause_of_the_same_words_has_been_seen() -> None:
    repetition = Repetition()
    assert not repetition.seen("Chair, ten o'clock.") and not repetition.seen("Chair, eleven o'clock.")
    assert repetition.seen("chair  ten o'clock!") and not Repetition().seen("Chair, ten o'clock.")
    assert not any(repetition.seen(f"Chair {i}") for i in range(500))


PROMISED = [
    "Nobody is in front of you.", "No one is coming.", "You won't hit anything.", "There isn't anything in your way.",
    "It is free.", "It looks quite empty.", "I can't see any obstacles.", "The way is open to you.",
    "It is safe to cross.", "You can walk safely.", "The path is clear.", "All clear ahead.", "That's SAFE",
    "s\u200bafe", "**Safe**", "There are no obstacles.", "No obstacle ahead.", "I see no hazards.",
    "Nothing in the way.", "There is nothing in your way.", "Nothing is in front of you.", "No cars coming.",
    "There is no traffic.", "The way ahead looks free.", "The corridor is open.", "The road is empty.", "You can go.",
    "You can cross now.", "You may proceed.", "You should be able to walk on.", "You're good to go.", "Go ahead.",
    "It's okay to cross.", "Feel free to move.", "Cross the road.", "An obstacle-free corridor.",
    "The floor is free of obstacles.", "Don't worry.", "It's fine to walk.", "The way’s free.",
    "I don't see any obstacles.", "Without any danger.", '"It is safe to cross."',
    'The sign says: "Exit." It is safe.', "You can safely go.", "There aren't any steps.",
    "The path in front of you is unobstructed.", "You are free to go.", "You have the right of way.",
    "No immediate danger.", "You can keep walking.", "Safety first.", "The way ahead appears to be open.",
]  # fmt: skip
FINE = [
    "Yes, it is open.", "The space is open plan.", "The shop is open until five.", "It is not free.", "Nobody said so.",
    "I see no door yet.", "The way is not free.", "A person is coming closer.",
    "Stop.", "Step down.", "Chair, ten o'clock, two metres.", "It looks unsafe.", "You can't cross.",
    "Do not cross now.", "You cannot go left.", "The path is blocked.", "The door is open.",
    "Open the door on your left.", "Turn left.", "I don't see forks yet.", "Nothing measured.",
    "I can't read that; hold still.", "Floor seen to four metres.", 'The sign says: "Keep clear."',
    "A sign reads “Safety exit. Keep doors clear.”", "Safety barrier ahead.",
    'The label says: "Safe for children", in red.', "A red car at two o'clock.", "Steps ahead, going down.",
    "No. That is a table.", "You can hear a fan.", "The text is unclear.", "A free seat on your right.", "Reached.",
    "No text seen.", "Never cross the road on red.", "Traffic ahead, from left to right.", "An empty cup.",
]  # fmt: skip


@pytest.mark.parametrize("clause", PROMISED)
def test_a_promise_is_withheld_with_its_reason(clause: str) -> None:
    reason = promise(clause)
    assert reason is not None and reason.startswith("says")


@pytest.mark.parametrize("clause", FINE)
def test_warnings_descriptions_and_quotations_pass(clause: str) -> None:
    assert promise(clause) is None


@given(st.text(max_size=40), st.sampled_from(["safe", "clear"]), st.text(max_size=40))
def test_the_two_words_never_pass_outside_a_quotation(before: str, word: str, after: str) -> None:
    clause = " ".join(re.sub("[\"“”«»「」„]", "", part) for part in (before, word, after))
    assert promise(clause) is not None


@given(st.sampled_from(PROMISED + FINE), st.booleans())
def test_a_clause_is_judged_alike_before_and_after_it_is_made_speakable(clause: str, steps: bool) -> None:
    wearer = msgspec.structs.replace(METRES, units="steps" if steps else "metres")
    assert (promise(clause) is None) == (promise(speakable(clause, wearer)) is None)


@given(st.lists(st.sampled_from(PROMISED), min_size=1, max_size=5).map(" ".join))
def test_no_promise_comes_out_of_a_whole_answer(answer: str) -> None:
    splitter = ClauseSplitter()
    said = [c for c in [*splitter.add(answer), *splitter.end()] if promise(c) is None]
    assert not re.search(r"\b(safe|clear)\b", " ".join(said), re.IGNORECASE)
