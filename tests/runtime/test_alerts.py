"""The warning rule: what is told, when, and what isn't."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scenes import NS_PER_S, look, mirrored, mirrored_wearer, thing, walker

from handrail.runtime.events import Priority
from handrail.runtime.scene import Band, Obstacle, Thing, Wearer
from handrail.runtime.speech.alerts import Alert, Memory, Rules, assess, decide
from handrail.runtime.speech.phrases import rules_for

RULES = rules_for(240, unseen_s=0.9)


def walk(
    obstacles: Callable[[float], list[Obstacle]], seconds: float = 6.0, wearer: Callable[[float], Wearer] | None = None
) -> list[tuple[float, Alert]]:
    """Ten looks a second; the walker goes along x at 1.3 m/s unless told otherwise."""
    memory, alerts = Memory(), []
    for k in range(round(seconds * 10)):
        t = k / 10
        w = wearer(t) if wearer else walker(x_m=1.3 * t)
        seen = [o for o in obstacles(t)]
        alert, memory = decide(look(t, w, *seen), memory, RULES)
        if alert is not None:
            alerts.append((t, alert))
    return alerts


def at(t_s: float) -> int:
    return round(t_s * NS_PER_S)


def test_a_thing_in_the_way_is_told_once_and_its_earcon_repeats_when_contact_is_near() -> None:
    alerts = walk(lambda t: [thing(6.0, 0.1, seen_ns=at(t))], 4.4)
    first = alerts[0][1]
    assert first.words and first.hazard.priority is Priority.NEXT and first.hazard.rule == "contact"
    assert alerts[1:] and all(not a.words and a.hazard.contact_s <= 2.0 for _, a in alerts[1:])


@given(st.floats(0.5, 2.0), st.floats(0.1, 5.0))
def test_a_wall_alongside_and_a_thing_passed_by_are_never_told(beside_m: float, ahead_m: float) -> None:
    assert assess(thing(ahead_m, beside_m), walker(), RULES) is None
    assert assess(thing(-ahead_m, 0.1), walker(), RULES) is None


def test_standing_still_nothing_is_told_but_what_approaches() -> None:
    assert walk(lambda t: [thing(1.0, seen_ns=at(t))], wearer=lambda t: walker(travel_deg=None)) == []
    coming = walk(
        lambda t: [thing(5.0 - 1.2 * t, velocity=(-1.2, 0.0), seen_ns=at(t))], 3.5,
        wearer=lambda t: walker(travel_deg=None),
    )  # fmt: skip
    assert coming[0][1].hazard.rule == "approaching" and coming[0][1].words


def test_a_person_walking_on_ahead_at_the_same_pace_is_not_told() -> None:
    assert walk(lambda t: [thing(2.0 + 1.3 * t, velocity=(1.3, 0.0), seen_ns=at(t))]) == []


def test_an_unconfirmed_obstacle_never_speaks_but_its_first_frame_is_remembered() -> None:
    alerts = walk(lambda t: [thing(3.0, confirmed=t > 0.25, seen_ns=at(t))], 1.0)
    assert alerts[0][0] == 0.3 and alerts[0][1].first_rule_device_ns == 0
    assert walk(lambda t: [thing(3.0, confirmed=False, seen_ns=at(t))]) == []


def test_what_was_not_seen_for_long_is_not_told() -> None:
    assert walk(lambda t: [thing(7.0, seen_ns=at(min(t, 0.5)))]) == []


def test_a_drop_off_cuts_in_within_its_gate_and_a_bar_at_head_height_too() -> None:
    drop = walk(lambda t: [thing(5.0, thing=Thing.DROP_OFF, band=Band.GROUND, seen_ns=at(t))])[0][1]
    assert drop.hazard.priority is Priority.NOW and drop.hazard.rule == "drop_off" and drop.words
    bar = walk(lambda t: [thing(5.0, band=Band.HEAD, seen_ns=at(t))])[0][1]
    assert bar.hazard.priority is Priority.NOW and bar.hazard.rule == "head"


def test_the_stairs_gate_holds_for_a_slow_walker_who_is_seconds_away() -> None:
    slow, hasty = walker(speed_msec=0.6), Rules(1.0, 1.0)
    steps = thing(1.45, thing=Thing.DROP_OFF, distance_sd_m=0.0)
    assert assess(steps, slow, hasty) is not None
    assert assess(thing(2.5, thing=Thing.DROP_OFF, distance_sd_m=0.0), slow, hasty) is None


@pytest.mark.parametrize("speed_msec", [0.4, 0.8, 1.3, 2.0])
def test_a_drop_off_is_told_once_at_any_pace(speed_msec: float) -> None:
    alerts = walk(
        lambda t: [thing(6.0, thing=Thing.DROP_OFF, seen_ns=at(t))], 5.9 / speed_msec,
        lambda t: walker(speed_msec * t, speed_msec=speed_msec),
    )  # fmt: skip
    assert [a.words for _, a in alerts].count(True) == 1
    assert all(a.hazard.contact_s <= 2.0 for _, a in alerts[1:])


def test_a_new_track_at_the_same_place_is_the_same_thing() -> None:
    alerts = walk(lambda t: [thing(6.0, 0.1 + 0.2 * (k := int(t / 0.4)) % 2, id=k + 1, seen_ns=at(t))], 4.4)
    assert sum(a.words for _, a in alerts) == 1


def test_a_wall_that_comes_in_pieces_side_by_side_is_told_once() -> None:
    """Its pieces' nearest points lie 0.8 m apart, and each is now the one that is told, now the other."""

    def pieces(t: float) -> list[Obstacle]:
        nearer_m = 0.3 * (t > 2)
        left = thing(6.0, 0.4, seen_ns=at(t), width_m=0.9)
        return [left, thing(6.2 - nearer_m, -0.4, id=2, seen_ns=at(t), width_m=0.5)]

    alerts = walk(pieces, 4.4)
    assert {a.obstacle.id for _, a in alerts} == {1, 2}
    assert sum(a.words for _, a in alerts) == 1


def test_two_posts_side_by_side_are_both_told() -> None:
    alerts = walk(lambda t: [thing(5.0, y, id=i, seen_ns=at(t), width_m=0.1) for i, y in ((1, 0.4), (2, -0.4))], 3.7)
    assert [a.obstacle.id for _, a in alerts if a.words] == [1, 2]


def test_what_was_told_stays_told_when_a_new_track_beside_it_takes_over() -> None:
    def pieces(t: float) -> list[Obstacle]:
        first = thing(6.0 + 0.02 * t, 0.1 + 0.2 * (t > 2.5), seen_ns=at(t), width_m=0.1)
        second = thing(5.8, 0.0 - 0.4 * (t > 2.5), id=2, seen_ns=at(t), width_m=0.1)
        return [first, second] if t > 2 else [first]

    assert sum(a.words for _, a in walk(pieces, 4.4)) == 1


def test_two_things_apart_are_both_told() -> None:
    alerts = walk(lambda t: [thing(5.0, seen_ns=at(t)), thing(6.5, id=2, seen_ns=at(t))], 4.9)
    assert [a.obstacle.id for _, a in alerts if a.words] == [1, 2]


def test_a_wearer_who_slows_hears_no_repeat() -> None:
    def wearer(t: float) -> Wearer:
        return walker(x_m=1.3 * min(t, 2.2) + 0.5 * max(0.0, t - 2.2), speed_msec=1.3 if t < 2.2 else 0.5)

    alerts = walk(lambda t: [thing(6.0, seen_ns=at(t))], 8.0, wearer)
    assert len(alerts) == 1


def test_a_thing_long_out_of_the_way_is_told_again() -> None:
    def wearer(t: float) -> Wearer:
        return walker(x_m=2.0) if t < 1 or t > 22 else walker(x_m=2.0, travel_deg=None)

    times = [t for t, a in walk(lambda t: [thing(5.5, seen_ns=at(t))], 24.0, wearer) if a.words]
    assert len(times) == 2 and times[1] > 22


def test_words_that_went_unsaid_may_be_told_again_after_a_while() -> None:
    memory = Memory()
    alert, memory = decide(look(0, walker(), thing(3.5)), memory, RULES)
    assert alert is not None
    memory = memory.unsaid(1)
    soon, memory = decide(look(0.5, walker(), thing(3.5, seen_ns=at(0.5))), memory, RULES)
    later, memory = decide(look(0.8, walker(), thing(3.5, seen_ns=at(0.8))), memory, RULES)
    assert soon is None and later is not None and later.words
    repeat, memory = decide(look(1.6, walker(1.2), thing(3.5, seen_ns=at(1.6))), memory, RULES)
    assert repeat is not None and not repeat.words


def test_one_alert_a_look_and_the_drop_off_goes_first() -> None:
    alert, memory = decide(look(0, walker(), thing(2.0), thing(2.4, id=2, thing=Thing.DROP_OFF)), Memory(), RULES)
    assert alert is not None and alert.obstacle.id == 2
    alert, _ = decide(look(0.3, walker(), thing(2.0, seen_ns=at(0.3))), memory, RULES)
    assert alert is not None and alert.obstacle.id == 1


def test_where_motion_stays_unknown_a_slow_walk_is_assumed_and_nothing_repeats() -> None:
    alerts = walk(lambda t: [thing(1.5, seen_ns=at(t))], wearer=lambda t: walker(travel_deg=None, motion_from="imu"))
    assert [(t, a.words) for t, a in alerts] == [(1.0, True)]


scene_walks = st.lists(
    st.tuples(st.floats(0.3, 6.0), st.floats(-2.0, 2.0), st.sampled_from(list(Band)), st.sampled_from(list(Thing)),
              st.booleans(), st.floats(-1.5, 1.5)),
    max_size=6,
)  # fmt: skip


@settings(max_examples=60)
@given(scene_walks, st.floats(-40, 40))
def test_a_mirrored_world_gives_the_same_alerts_mirrored(
    things: list[tuple[float, float, Band, Thing, bool, float]], heading: float
) -> None:
    memory, memory_m = Memory(), Memory()
    for k in range(25):
        t = k / 10
        w = walker(1.3 * t * math.cos(math.radians(heading)), 1.3 * t * math.sin(math.radians(heading)),
                   travel_deg=heading)  # fmt: skip
        seen = [
            thing(x + (v * t if moving else 0), y, id=i, band=b, thing=kind,
                  velocity=(v, 0.2) if moving else None, seen_ns=at(t))
            for i, (x, y, b, kind, moving, v) in enumerate(things)
        ]  # fmt: skip
        a, memory = decide(look(t, w, *seen), memory, RULES)
        b, memory_m = decide(look(t, mirrored_wearer(w), *map(mirrored, seen)), memory_m, RULES)
        assert (a is None) == (b is None)
        if a is not None and b is not None:
            assert b.obstacle == mirrored(a.obstacle) and b.words == a.words and b.hazard.rule == a.hazard.rule


@settings(max_examples=100)
@given(scene_walks)
def test_words_about_one_thing_are_not_repeated_on_one_approach(
    things: list[tuple[float, float, Band, Thing, bool, float]],
) -> None:
    def obstacles(t: float) -> list[Obstacle]:
        return [thing(x + 2, y, id=i, band=b, thing=kind, seen_ns=at(t)) for i, (x, y, b, kind, _, _) in
                enumerate(things)]  # fmt: skip

    told = [a.obstacle.id for _, a in walk(obstacles) if a.words]
    assert len(told) == len(set(told))
