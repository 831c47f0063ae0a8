"""Text that streams in leaves as clauses: at once where certain, never cut inside a number, nothing lost or doubled."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handrail.runtime.wording.clauses import LONGEST, ClauseSplitter


def split(text: str, size: int = 1) -> list[str]:
    splitter = ClauseSplitter()
    clauses = [c for i in range(0, len(text), size) for c in splitter.add(text[i : i + size])]
    return clauses + splitter.end()


def at_once(text: str) -> list[str]:
    return ClauseSplitter().add(text)


@pytest.mark.parametrize(
    "text", ["Stop.", "Step down.", "Wait!", "Go left?", "Turn right now.", "停。", "रुकिए।", "قف؟", "Reached.\n"]
)
def test_what_must_be_heard_now_waits_for_nothing(text: str) -> None:
    assert at_once(text) == [text.strip()]


@pytest.mark.parametrize(
    "text", ["98.", "No.", "Dr.", "It is about 10 a.m.", "A desk stands at the wall.", "e.g.", "3."]
)
def test_what_may_go_on_waits(text: str) -> None:
    assert at_once(text) == [] and split(text) == [text]


@pytest.mark.parametrize(("text", "clauses"), [
    ("Fever of 98.6 degrees. Sit.", ["Fever of 98.6 degrees.", "Sit."]),
    ("A chair at 2 m. Turn left.", ["A chair at 2 m.", "Turn left."]),
    ("It is 3.5 metres away.", ["It is 3.5 metres away."]),
    ("Dr. Smith waits. J. Doe too.", ["Dr. Smith waits.", "J. Doe too."]),
    ("Use a rail, e.g. the left one. Go.", ["Use a rail, e.g. the left one.", "Go."]),
    ("Take bus No. 5 now. No. Not 6.", ["Take bus No. 5 now.", "No.", "Not 6."]),
    ("Open from 10 a.m. to 5 p.m. Then shut.", ["Open from 10 a.m. to 5 p.m.", "Then shut."]),
    ("The clock shows 10:30. Good.", ["The clock shows 10:30.", "Good."]),
    ("I am not sure... it may be a desk.", ["I am not sure...", "it may be a desk."]),
    ("Well... yes.", ["Well.", "yes."]),
    ('The sign says: "Push. Pull." Turn left.', ['The sign says: "Push. Pull."', "Turn left."]),
    ('It reads "Stop!" in red. Wait.', ['It reads "Stop!" in red.', "Wait."]),
    ("A sign: “Exit. Mind the gap.” Door ahead.", ["A sign: “Exit. Mind the gap.”", "Door ahead."]),
    ("1. Chair\n2. Table, left.\n", ["1. Chair", "2. Table, left."]),
    ("# Overview\n\n- **Chair** on the left\n- `Door` ahead", ["Overview", "Chair on the left", "Door ahead"]),
    ("**Stop.** Step down.", ["Stop.", "Step down."]),
    ("It is -5 degrees.\n-5 or so", ["It is -5 degrees.", "-5 or so"]),
    ("前面有门。左转！好", ["前面有门。", "左转！", "好"]),
    ("What?! (Really.) Yes.", ["What?", "(Really.)", "Yes."]),
    ("See www.example.com today. Go.", ["See www.example.com today.", "Go."]),
    ("A box; then a wall.", ["A box;", "then a wall."]),
    ("Two\t\t spaces   here .  ", ["Two spaces here ."]),
    ("A room of 3*4 metres.", ["A room of 3×4 metres."]),
    ("...", []), ("\n\n - \n** **\n", []), ("👍. Yes.", ["Yes."]),
])  # fmt: skip
def test_clauses_end_where_sentences_do(text: str, clauses: list[str]) -> None:
    assert split(text) == split(text, len(text)) == clauses


def test_a_long_clause_is_cut_at_a_comma_or_between_words_but_not_before_its_unit() -> None:
    with_comma = "word " * 20 + "and a chair, " + "more " * 40
    assert split(with_comma)[0].endswith("chair,")
    with_number = "x" * 150 + " about 12 metres and more"
    assert split(with_number)[0].endswith("about")
    assert [len(c) for c in split("x" * 400)] == [LONGEST, LONGEST, 400 - 2 * LONGEST]


def test_nothing_waits_for_ever_behind_a_quotation_that_never_ends() -> None:
    splitter = ClauseSplitter()
    out = [c for _ in range(200) for c in splitter.add('He said "well. ')]
    assert len(out) >= 200 * 14 // LONGEST - 1


BITS = st.sampled_from([
    "Stop", "a chair", "2 m", "98.6", "e.g.", "No.", "Dr.", "a.m.", ". ", ".", "! ", "?", "\n", "...", '"', "“", "”",
    "**", "*", "3*4", "`", "# ", "- ", "1. ", " ", "  ", ", ", "; ", ":", "。", "।", "؟", "(", ")", "'", "é", "猫", "5",
    "X", "x" * 70, "\r\n", "\t", "-", "—", "word " * 12,
])  # fmt: skip
TEXTS = st.one_of(st.lists(BITS, max_size=40).map("".join), st.text(max_size=300))


def bare(text: str) -> str:
    return "".join(re.findall(r"[^\W_]", text))


@given(TEXTS, st.data())
def test_the_clauses_are_the_same_whatever_the_pieces_were(text: str, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=12)))
    splitter, out = ClauseSplitter(), []
    for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True):
        out += splitter.add(text[a:b])
    assert out + splitter.end() == split(text) == split(text, 400)


@given(TEXTS)
def test_nothing_is_lost_or_doubled_and_no_clause_is_empty_or_long(text: str) -> None:
    clauses = split(text, 3)
    assert bare("".join(clauses)) == bare(text)
    for clause in clauses:
        assert re.search(r"\w", clause) and clause == " ".join(clause.split())
        assert len(clause) <= LONGEST + 16  # with its brackets
