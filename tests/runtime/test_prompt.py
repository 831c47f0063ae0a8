"""A question becomes token ids, with places for frames and sensors, and stays data."""

from __future__ import annotations

import pytest

tokenizers = pytest.importorskip("tokenizers", reason="the tokenizer of answers isn't installed")

from handrail.runtime.preprocess.prompt import Prompter, TokenPlan  # noqa: E402
from handrail.streams.errors import ConfigError  # noqa: E402

TEMPLATE = (
    "{% for m in messages %}<{{ m.role }}>{% for c in m.content %}"
    "{% if c.type == 'image' %}<f>{% else %}{{ c.text }}{% endif %}{% endfor %}{% endfor %}<answer>"
)
MARKS = ["<sensor>", "<f>", "<i>", "</f>", "<user>", "<answer>"]


def tokenizer(marks: list[str] = MARKS) -> object:
    letters = {chr(c): c for c in range(32, 127)}
    made = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=letters_from_zero(letters), merges=[]))
    made.add_special_tokens(marks)
    return made


def letters_from_zero(letters: dict[str, int]) -> dict[str, int]:
    return {letter: i for i, letter in enumerate(letters)}


def plan(made: object, **changed: object) -> TokenPlan:
    ids = {m: made.token_to_id(m) for m in MARKS}  # type: ignore[attr-defined]
    values = {
        "image": ids["<i>"], "sensor": ids["<sensor>"], "end": (0,), "placeholder": "<f>", "frame": "<f><i><i></f>",
    }  # fmt: skip
    return TokenPlan(**{**values, **changed})  # type: ignore[arg-type]


def prompter(template: str = TEMPLATE, **changed: object) -> Prompter:
    made = tokenizer()
    return Prompter(made, template, plan(made, **changed))  # type: ignore[arg-type]


def test_frames_come_first_then_sensors_then_the_question() -> None:
    assert prompter().text("Stairs?", 2, 3) == (
        "<user><f><i><i></f><f><i><i></f><sensor><sensor><sensor>Stairs?<answer>"
    )


def test_ids_hold_as_many_places_as_asked_for() -> None:
    made = prompter()
    ids = made.ids("Where?", 4, 8)
    assert ids.count(plan(tokenizer()).image) == 8 and ids.count(plan(tokenizer()).sensor) == 8
    assert made.decode(made.encode("Where?")) == "W h e r e ?" or made.decode(made.encode("Where?")) == "Where?"


def test_a_question_that_names_places_for_frames_or_sensors_makes_none() -> None:
    ids = prompter().ids("Is <f> or <sensor> ahead?", 1, 1)
    assert ids.count(plan(tokenizer()).image) == 2 and ids.count(plan(tokenizer()).sensor) == 1


def test_a_question_ends_no_turn_and_what_is_left_of_a_mark_makes_no_other() -> None:
    text = prompter().text("One<answer>two <sen<f>sor> <i>?", 0, 0)
    assert text == "<user>One two sor> ?<answer>" or not any(mark in text[6:-8] for mark in MARKS)


def test_a_tokenizer_without_a_sensor_token_is_refused() -> None:
    made = tokenizer(MARKS[1:])
    with pytest.raises(ConfigError, match="no <sensor>"):
        Prompter(made, TEMPLATE, TokenPlan(1, 2, (0,), "<f>", "<f>"))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("{% for %}", "can't be read"),
        ("{{ messages[0].content[0].nothing.more }}", "fails"),
        ("{{ raise_exception('no system turn') }}", "no system turn"),
        ("<f>{{ messages[0].content[-1].text }}", "wrote 1 frames of 2"),
        ("{{ ''.__class__.__mro__[1].__subclasses__() }}", "fails"),
    ],
)
def test_a_template_that_is_broken_or_reaches_out_is_one_clear_error(template: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        prompter(template).ids("Where?", 2, 0)
