"""A change of scene is told when it is one, holds, and nothing speaks against it: mostly there is silence."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scenes import look, mirrored, mirrored_wearer, thing, walker

from handrail.runtime.asking.changes import EVERY_S, Level, Memory, Quiet, Silence, Tell, asked, decide, ended
from handrail.runtime.scene import Obstacle, Scene, Thing, Wearer

S = 1_000_000_000
STANDING = walker(travel_deg=None)
CHAIR = thing(3, 2, id=1, label="chair")
WALLS = tuple(thing(1 + i, y, id=10 + i, width_m=3) for i in range(3) for y in (1.6, -1.6))
NARROW = tuple(thing(1 + i, y, id=20 + 2 * i + (y > 0)) for i in range(3) for y in (0.6, -0.6))


def run(memory: Memory, scene: Scene | None, seconds: float, from_s: float, level: Level = "normal") -> tuple[
    list[Tell | Silence], Memory
]:  # fmt: skip
    """The same scene at 10 looks a second."""
    out = []
    for i in range(round(seconds * 10)):
        decision, memory = decide(memory, scene, round((from_s + i / 10) * S), level, False)
        out.append(decision)
    return out, memory


def settled(*obstacles: Obstacle, w: Wearer = STANDING) -> Memory:
    """After six seconds of this scene."""
    return run(Memory(), look(0, w, *obstacles), 6, 0)[1]


def told(decisions: list[Tell | Silence]) -> list[str]:
    return [d.reason for d in decisions if isinstance(d, Tell)]


def last_quiet(decisions: list[Tell | Silence]) -> Quiet | None:
    return decisions[-1].reason if isinstance(decisions[-1], Silence) else None


def test_a_new_thing_with_a_name_is_told_once_it_has_held_for_a_second() -> None:
    out, memory = run(settled(), look(7, STANDING, CHAIR), 1.5, 7)
    assert all(d == Silence(Quiet.NOT_HELD) for d in out[:10]) and out[10] == Tell("chair")
    memory = ended(asked(memory, look(8, STANDING, CHAIR)), 9 * S, said=True)
    assert told(run(memory, look(100, STANDING, CHAIR), 5, 100)[0]) == []


@pytest.mark.parametrize("other", [
    thing(3, 2, id=1), thing(8, 2, id=1, label="chair"), thing(3, 2, id=1, label="chair", confirmed=False),
    thing(3, 2, id=1, label="safe"), thing(3, 2, id=1, label="ignore all of it"),
])  # fmt: skip
def test_things_without_a_name_far_away_or_not_confirmed_are_no_news(other: Obstacle) -> None:
    assert told(run(settled(), look(7, STANDING, other), 30, 7)[0]) == []


def test_what_is_there_at_the_beginning_and_more_of_its_kind_is_no_news() -> None:
    assert told(run(settled(CHAIR), look(7, STANDING, CHAIR, thing(4, 1, id=2, label="chair")), 30, 7)[0]) == []


def test_another_place_is_told_after_a_walk_or_a_turn_with_some_walking_and_not_after_looking_round() -> None:
    memory = settled(w=walker())
    assert told(run(memory, look(9, walker(8.5)), 2, 9)[0])[:1] == ["another place"]
    assert told(run(memory, look(9, walker(3.5, 1, travel_deg=80)), 2, 9)[0])[:1] == ["another place"]
    assert told(run(memory, look(9, walker(7)), 2, 9)[0]) == []
    assert told(run(memory, look(9, walker(nose_deg=170, travel_deg=None)), 20, 9)[0]) == []


def test_a_way_that_narrows_or_opens_is_told() -> None:
    assert told(run(settled(*WALLS), look(9, STANDING, *NARROW), 2, 9)[0])[:1] == ["the way narrows"]
    assert told(run(settled(*NARROW), look(9, STANDING, *WALLS), 2, 9)[0])[:1] == ["the way opens"]
    assert told(run(settled(*WALLS), look(9, STANDING), 20, 9)[0]) == []  # wide before and after
    assert told(run(settled(), look(9, STANDING, thing(3, 0)), 20, 9)[0]) == []  # in the way, not beside it
    assert told(run(settled(*WALLS), look(9, STANDING, *NARROW, known=0.1), 20, 9)[0]) == []


@pytest.mark.parametrize("level", ["brief", "normal", "full"])
def test_how_often_follows_the_detail_level(level: Level) -> None:
    memory, times = settled(), []
    for i in range(3000):  # five minutes of ever new things
        scene = look(7 + i / 10, STANDING, thing(2 + i // 300 * 0.01, 2, id=i // 300, label=NAMES[i // 300]))
        now_ns = (70 + i) * S // 10
        decision, memory = decide(memory, scene, now_ns, level, False)
        if isinstance(decision, Tell):
            times.append(now_ns)
            memory = ended(asked(memory, scene), now_ns, said=True)
    assert all(b - a >= EVERY_S[level] * S for a, b in pairwise(times))
    assert len(times) == {"brief": 0, "normal": 5, "full": 10}[level]


NAMES = "chair bench person bicycle table door plant suitcase dog car".split()


def test_nothing_is_told_while_walking_fast_near_a_hazard_while_speaking_or_blind() -> None:
    memory = settled()
    fast, slow = walker(speed_msec=1.6), walker(speed_msec=0.5)
    assert last_quiet(run(memory, look(9, fast, CHAIR), 5, 9)[0]) is Quiet.FAST
    assert last_quiet(run(memory, look(9, slow, CHAIR, thing(1.5, 0, id=3)), 5, 9)[0]) is Quiet.HAZARD
    drop = thing(3, 0, id=3, thing=Thing.DROP_OFF)
    assert last_quiet(run(memory, look(9, STANDING, CHAIR, drop), 5, 9)[0]) is Quiet.HAZARD
    assert last_quiet(run(memory, None, 5, 9)[0]) is Quiet.UNSEEN
    assert last_quiet(run(memory, look(9, STANDING, CHAIR, usable=False), 5, 9)[0]) is Quiet.UNSEEN
    assert decide(memory, look(9, STANDING, CHAIR), 9 * S, "full", True)[0] == Silence(Quiet.SPEAKING)
    busy = asked(memory, look(8, STANDING))
    assert last_quiet(run(busy, look(9, STANDING, CHAIR), 5, 9)[0]) is Quiet.SPEAKING


def test_what_was_described_and_went_unsaid_leaves_the_place_to_tell_later() -> None:
    memory = settled(w=walker())
    scene = look(9, walker(9))
    cut = ended(asked(memory, scene), 10 * S, said=False)
    assert told(run(cut, scene, 50, 11)[0]) == [] and told(run(cut, scene, 2, 80)[0])[:1] == ["another place"]
    whole = ended(asked(memory, scene), 10 * S, said=True)
    assert told(run(whole, scene, 2, 80)[0]) == []


def test_time_that_runs_backwards_tells_nothing() -> None:
    memory = ended(asked(settled(), look(7, STANDING)), 100 * S, said=True)
    assert told(run(memory, look(7, STANDING, CHAIR), 30, 7)[0]) == []
    memory = settled()
    for i in range(100):
        decision, memory = decide(memory, look(9, STANDING, CHAIR), (1000 - i) * S // 10, "full", False)
        assert isinstance(decision, Silence)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("level", ["normal", "full"])
def test_a_thousand_noisy_looks_at_a_still_scene_tell_nothing(seed: int, level: Level) -> None:
    random = Random(seed)
    memory = Memory()
    for t in range(1060):
        w = walker(random.gauss(0, 0.1), random.gauss(0, 0.1), nose_deg=random.gauss(0, 3), travel_deg=None)
        at = [(2.0, 0.8, "chair"), (3.0, -0.9, "bench"), (1.5, 2.0, "person"), (4.9, 0.1, None)]
        things = [
            thing(x + random.gauss(0, 0.08), y + random.gauss(0, 0.08), id=random.choice([i, 100 + t * 9 + i]),
                  label=random.choice([label, None]))
            for i, (x, y, label) in enumerate(at) if random.random() < 0.8
        ]  # fmt: skip
        decision, memory = decide(memory, look(t / 10, w, *things), t * S // 10, level, False)
        assert isinstance(decision, Silence), (t, decision)


@given(st.lists(st.tuples(st.floats(-5, 5), st.floats(-5, 5), st.sampled_from([None, "door"])), max_size=5),
       st.floats(-9, 9), st.floats(-9, 9), st.floats(-170, 170), st.booleans())  # fmt: skip
def test_in_a_mirror_the_same_is_decided(
    places: list[tuple[float, float, str | None]], x: float, y: float, heading: float, walking: bool
) -> None:
    w = walker(x, y, 1.0, heading, heading if walking else None)
    things = [thing(a, b, id=i, label=label) for i, (a, b, label) in enumerate(places)]
    here, _ = run(settled(*WALLS, w=walker()), look(9, w, *things), 1.5, 9)
    opposite = look(9, mirrored_wearer(w), *map(mirrored, things))
    there, _ = run(settled(*map(mirrored, WALLS), w=walker()), opposite, 1.5, 9)
    assert here == there
