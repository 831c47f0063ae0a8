"""The speech queue: bounded, most urgent first, nothing stale, every utterance accounted for."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scenes import NS_PER_S, look, walker

from handrail.runtime.events import Priority
from handrail.runtime.speech.queue import SpeechQueue
from handrail.runtime.speech.utterance import Frame, Moment, Say, Silence, Unspoken, Utterance, clauses, fixed
from handrail.streams.clock import run_virtual

NOTHING = Moment(0, None, 0)


def utterance(id: int, priority: Priority = Priority.NEXT, *, key: str = "", expires_ns: int = NS_PER_S,
              severity: int = 0, text: str = "Words.") -> Utterance:  # fmt: skip
    return Utterance(id, priority, severity, "test", key or f"key {id}", fixed(text), expires_ns)


def queue(bound: int = 4) -> tuple[SpeechQueue, list[tuple[int, Unspoken]]]:
    unsaid: list[tuple[int, Unspoken]] = []
    return SpeechQueue(lambda u, reason: unsaid.append((u.id, reason)), bound), unsaid


def test_the_most_urgent_leaves_first_and_the_oldest_among_equals() -> None:
    q, _ = queue(6)
    q.offer(utterance(1, Priority.NORMAL))
    q.offer(utterance(2, Priority.NEXT))
    q.offer(utterance(3, Priority.NOW))
    q.offer(utterance(4, Priority.NOW, severity=3))
    q.offer(utterance(5, Priority.NEXT))
    order = []
    while (taken := q.take(NOTHING)) is not None:
        order.append(taken[0].id)
    assert order == [4, 3, 2, 5, 1]


def test_a_full_queue_drops_the_oldest_of_the_least_urgent_and_counts_it() -> None:
    q, unsaid = queue(2)
    q.offer(utterance(1, Priority.NORMAL))
    q.offer(utterance(2, Priority.NORMAL))
    q.offer(utterance(3, Priority.NOW))
    q.offer(utterance(4, Priority.NOW))
    q.offer(utterance(5, Priority.NORMAL))
    assert unsaid == [(1, Unspoken.OVERFLOW), (2, Unspoken.OVERFLOW), (5, Unspoken.OVERFLOW)]
    assert q.statistics().dropped["overflow"] == 3 and q.statistics().most_waiting == 2


def test_a_newer_one_about_the_same_takes_the_place_of_the_older() -> None:
    q, unsaid = queue()
    q.offer(utterance(1, key="box"))
    q.offer(utterance(2, key="box"))
    assert unsaid == [(1, Unspoken.SUPERSEDED)] and q.waiting == 1


def test_what_has_expired_or_lost_its_frame_does_not_leave() -> None:
    q, unsaid = queue()
    made_for = Frame(travel=True, heading_rad=0.0)
    q.offer(utterance(1, expires_ns=5))
    q.offer(Utterance(2, Priority.NEXT, 0, "test", "turned", fixed("On your left.", made_for), NS_PER_S))
    assert q.take(Moment(6, look(0, walker(travel_deg=30.1)), 0)) is None
    assert unsaid == [(1, Unspoken.EXPIRED), (2, Unspoken.INVALID)]


@pytest.mark.parametrize(
    ("turn_deg", "turned"), [(29.9, False), (-29.9, False), (30.1, True), (-31, True), (359, False)],
)  # fmt: skip
def test_a_turn_of_30_degrees_makes_directions_wrong(turn_deg: float, turned: bool) -> None:
    made_for = Frame.of(walker(travel_deg=0, nose_deg=50))
    assert made_for.turned(walker(travel_deg=turn_deg, nose_deg=-50)) is turned
    standing = Frame.of(walker(travel_deg=None, nose_deg=0))
    assert standing.turned(walker(travel_deg=None, nose_deg=turn_deg)) is turned


def test_turning_the_head_while_walking_straight_turns_no_spoken_direction() -> None:
    assert not Frame.of(walker(nose_deg=0)).turned(walker(nose_deg=60))


def test_who_waits_is_woken_by_an_offer() -> None:
    async def main() -> int:
        q, _ = queue()
        waiting = asyncio.create_task(q.filled())
        await asyncio.sleep(1)
        assert not waiting.done()
        q.offer(utterance(7))
        await waiting
        taken = q.take(NOTHING)
        assert taken is not None
        return taken[0].id

    assert run_virtual(main()) == 7


def test_clauses_end_where_speech_may_pause_and_not_in_a_number() -> None:
    assert clauses("Stop. Step down.") == ["Stop.", "Step down."]
    assert clauses("The table is 2.5 metres away; the door is open. Go on?") == [
        "The table is 2.5 metres away;", "the door is open.", "Go on?",
    ]  # fmt: skip


steps = st.lists(
    st.one_of(
        st.tuples(
            st.just("offer"), st.sampled_from(list(Priority)), st.integers(0, 3), st.integers(0, 9), st.integers(0, 50)
        ),
        st.tuples(st.just("take"), st.integers(0, 60)),
    ),
    max_size=60,
)  # fmt: skip


@given(steps, st.integers(1, 6))
def test_whatever_is_offered_is_bounded_ordered_fresh_and_accounted_for(
    steps: list[tuple[object, ...]], bound: int
) -> None:
    q, unsaid = queue(bound)
    taken: list[int] = []
    now = 0
    waiting: dict[int, Utterance] = {}
    for id, step in enumerate(steps):
        match step:
            case ("offer", Priority() as priority, int(severity), int(key), int(ttl)):
                u = utterance(id, priority, key=f"{key}", severity=severity, expires_ns=now + ttl)
                waiting[id] = u
                q.offer(u)
            case ("take", int(passed)):
                now += passed
                found = q.take(Moment(now, None, 0))
                for gone, _ in unsaid:
                    waiting.pop(gone, None)
                if found is not None:
                    u, say = found
                    assert now <= u.expires_ns and say == Say("Words.")
                    assert all((u.rank, u.id) <= (o.rank, o.id) for o in waiting.values())
                    taken.append(waiting.pop(u.id).id)
        for gone, _ in unsaid:
            waiting.pop(gone, None)
        assert q.waiting == len(waiting) <= bound
    s = q.statistics()
    assert s.offered == s.taken + sum(s.dropped.values()) + s.waiting and s.taken == len(taken)
    assert len({*taken, *(gone for gone, _ in unsaid)}) == len(taken) + len(unsaid)


def test_silence_is_a_decision_with_a_reason_not_a_text() -> None:
    assert utterance(1, expires_ns=0).judged(Moment(1, None, 0)) == Silence(Unspoken.EXPIRED)
