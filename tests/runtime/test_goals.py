"""A goal's next step comes when something has happened, not because time passes."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scenes import look, mirrored, mirrored_wearer, thing, walker

from handrail.runtime.asking.goals import (
    SPACING_S,
    STILL_S,
    Due,
    Goal,
    after_seam,
    asked,
    begun,
    due,
    ended,
    is_wanted,
    reached,
    wanted_words,
)
from handrail.runtime.scene import Scene, Wearer

S = 1_000_000_000
STANDING = walker(travel_deg=None)
LATER = 10 * S


def told(scene: Scene, text: str = "find the door", why: Due = Due.FIRST, at_ns: int = 0) -> Goal:
    return ended(asked(begun(1, text), why, scene), at_ns, said=True)


def test_the_first_step_is_due_at_once_but_not_without_a_scene() -> None:
    goal = begun(1, "find the door")
    assert due(goal, look(0, STANDING), 0, False) is Due.FIRST
    assert due(goal, None, 0, False) is None and due(goal, look(0, STANDING, usable=False), 0, False) is None


def test_no_step_while_one_is_worked_out_or_anything_is_said() -> None:
    scene = look(0, STANDING)
    assert due(asked(begun(1, "x"), Due.FIRST, scene), look(9, walker(9)), LATER, False) is None
    assert due(told(scene), look(9, walker(9)), LATER, True) is None


@pytest.mark.parametrize(("wearer", "why"), [
    (walker(3.1), Due.MOVED), (walker(2.9), None), (walker(nose_deg=46, travel_deg=None), Due.TURNED),
    (walker(nose_deg=44, travel_deg=None), None), (walker(nose_deg=-46, travel_deg=None), Due.TURNED),
    (walker(1, nose_deg=90, travel_deg=None), Due.TURNED), (walker(3.1, nose_deg=90), Due.MOVED),
])  # fmt: skip
def test_a_step_is_due_after_walking_or_turning(wearer: Wearer, why: Due | None) -> None:
    assert due(told(look(0, STANDING)), look(10, wearer), LATER, False) is why


def test_a_turn_counts_once_it_has_settled() -> None:
    w = Wearer(0, 0, 1.6, 1.5, None, 0, 0.1, 0, 1.0, 0, "vio")
    assert due(told(look(0, STANDING)), look(10, w), LATER, False) is None


def test_turning_the_head_while_walking_straight_is_no_turn() -> None:
    assert due(told(look(0, walker())), look(1, walker(1, nose_deg=70)), LATER, False) is None


@given(st.floats(-1e9, SPACING_S - 0.01))
def test_the_next_step_keeps_its_distance_even_when_time_runs_backwards(after_s: float) -> None:
    assert due(told(look(0, STANDING), at_ns=LATER), look(9, walker(9)), LATER + round(after_s * S), False) is None


def test_something_new_in_the_way_is_news_and_something_beside_it_isnt() -> None:
    goal = told(look(0, STANDING, thing(2, 0.8, id=1)))
    assert due(goal, look(9, STANDING, thing(2, 0.8, id=1), thing(3, 0.2, id=2)), LATER, False) is Due.IN_WAY
    for other in (thing(3, 1.0, id=2), thing(5, 0, id=2), thing(-2, 0, id=2), thing(3, 0, id=2, confirmed=False)):
        assert due(goal, look(9, STANDING, thing(2, 0.8, id=1), other), LATER, False) is None
    assert due(goal, look(9, STANDING, thing(2.1, 0.4, id=7)), LATER, False) is None  # a new track of the same


def test_what_is_wanted_is_news_when_it_appears_and_only_then() -> None:
    door = thing(6, 3, id=5, label="door")
    goal = told(look(0, STANDING, thing(6, 3, id=5)), "find the doors")
    scene = look(9, STANDING, door)
    assert due(goal, scene, LATER, False) is Due.WANTED
    assert due(told(scene), scene, LATER, False) is None
    assert due(told(look(0, STANDING), "find a seat"), scene, LATER, False) is None


def test_standing_still_is_told_once() -> None:
    scene = look(0, STANDING)
    after = round(STILL_S * S)
    assert due(told(scene), scene, after - 1, False) is None
    assert due(told(scene), scene, after, False) is Due.STILL
    assert due(told(scene, why=Due.STILL), scene, 10 * after, False) is None
    assert due(told(look(0, walker())), look(0, walker()), after, False) is None


def test_a_step_that_went_unsaid_leaves_the_one_before() -> None:
    goal = told(look(0, STANDING))
    cut = ended(asked(goal, Due.MOVED, look(9, walker(9))), LATER, said=False)
    assert cut.told == goal.told and due(cut, look(9, walker(9)), LATER + S, False) is None
    assert due(cut, look(9, walker(9)), LATER + 5 * S, False) is Due.MOVED


def test_after_a_seam_nothing_from_before_counts() -> None:
    goal = after_seam(told(look(0, STANDING, thing(2, 0))))
    assert goal.known == () and due(goal, look(0, walker(50)), LATER, False) is Due.FIRST
    during = ended(after_seam(asked(told(look(0, STANDING)), Due.MOVED, look(1, walker(9)))), LATER, said=True)
    assert due(during, look(0, STANDING), 2 * LATER, False) is Due.FIRST
    assert due(ended(asked(begun(1, "x"), Due.FIRST, None), 0, said=True), None, LATER, False) is None


@pytest.mark.parametrize("seed", range(5))
def test_a_thousand_noisy_looks_at_a_still_scene_make_no_step(seed: int) -> None:
    random = Random(seed)

    def noisy(t: int) -> Scene:
        w = walker(random.gauss(0, 0.1), random.gauss(0, 0.1), nose_deg=random.gauss(0, 3), travel_deg=None)
        at = [(2.0, 0.4, "chair"), (3.0, -0.5, "bench"), (1.5, 2.0, "person"), (3.9, 0.1, None)]
        things = [
            thing(x + random.gauss(0, 0.08), y + random.gauss(0, 0.08), id=random.choice([i, 100 + t * 9 + i]),
                  label=label)
            for i, (x, y, label) in enumerate(at) if t == 0 or random.random() < 0.8
        ]  # fmt: skip
        return look(t / 10, w, *things)

    goal = told(noisy(0), "find a bench", why=Due.STILL)
    assert [t for t in range(1, 1001) if due(goal, noisy(t), LATER + t * S // 10, False)] == []


@given(
    st.floats(-5, 5), st.floats(-5, 5), st.floats(-170, 170), st.booleans(),
    st.lists(st.tuples(st.floats(-5, 5), st.floats(-5, 5), st.sampled_from([None, "door"])), max_size=4),
)  # fmt: skip
def test_in_a_mirror_the_same_is_due(
    x: float, y: float, nose: float, walking: bool, places: list[tuple[float, float, str | None]]
) -> None:
    w = walker(x, y, nose_deg=nose, travel_deg=nose / 2 if walking else None)
    things = [thing(a, b, id=i, label=label) for i, (a, b, label) in enumerate(places)]
    here = due(told(look(0, STANDING)), look(9, w, *things), LATER, False)
    there = due(told(look(0, STANDING)), look(9, mirrored_wearer(w), *map(mirrored, things)), LATER, False)
    assert here is there


@given(st.integers(1, 300))
def test_what_a_goal_remembers_is_bounded(steps: int) -> None:
    goal = begun(1, "find it")
    for i in range(steps):
        goal = ended(asked(goal, Due.MOVED, look(i, walker(i), thing(i, 0, id=i))), i, said=True)
    assert len(goal.known) <= 64


@pytest.mark.parametrize(
    "answer", ["Reached.", "reached", "Reached.\nThe door is ahead.", "**Reached.** Well.", "Reached!"]
)
def test_a_goal_is_reached_when_the_answer_begins_so(answer: str) -> None:
    assert reached(answer)


@pytest.mark.parametrize("answer", ["", "Not reached.", "Reached the wall.", "You have reached it.", "Turn. Reached."])
def test_no_other_answer_reaches_a_goal(answer: str) -> None:
    assert not reached(answer)


def test_words_of_a_goal_and_a_label_meet_whole() -> None:
    wanted = wanted_words("Find the nearest dining tables or glass door")
    assert is_wanted("dining table", wanted) and is_wanted("Door", wanted) and is_wanted("glass", wanted)
    assert not is_wanted("table tennis", wanted) and not is_wanted("the", wanted)
    assert not is_wanted(None, wanted) and not is_wanted("", wanted)
