"""The outage bench: what isn't told is a miss, half a second is no outage, blindness is told once."""

from __future__ import annotations

from scenes import look, walker

from handrail.benchmarks.outages import judge
from handrail.runtime.events import AnyEvent, SceneChanged, SoundStarted

AGE_MS = 80.0


def frames(*spans: tuple[float, float]) -> list[AnyEvent]:
    """Usable frames at 10 Hz in each span of seconds, judged 80 ms after capture."""
    times = [round(a + 0.1 * i, 3) for a, b in spans for i in range(round((b - a) * 10) + 1)]
    return [SceneChanged(round(t * 1e9), look(t, walker()), AGE_MS) for t in times]


def tone(name: str, at_s: float) -> AnyEvent:
    return SoundStarted(round(at_s * 1e9), f"earcon.{name}", round(at_s * 1e9), 0.3, None, None, None)


def in_order(*events: AnyEvent) -> list[AnyEvent]:
    return sorted(events, key=lambda e: e.t_ns)


def test_an_outage_without_its_tone_is_a_miss() -> None:
    events = frames((0.0, 2.0), (2.8, 4.0))
    (miss,) = judge(events, "here").misses
    assert "blind earcon after None" in miss
    assert judge(in_order(*events, tone("blind", 2.53)), "here").misses == []
    (late,) = judge(in_order(*events, tone("blind", 2.7)), "here").misses
    assert "blind earcon after 0.7" in late


def test_a_frame_after_exactly_half_a_second_ends_a_gap_that_needs_no_tone() -> None:
    found = judge(frames((0.005, 1.805), (2.305, 3.005)), "here")
    assert (found.outages, found.silent_gaps, found.misses) == (0, 1, [])


def test_an_outage_that_begins_in_told_blindness_is_flapping_until_sight_was_told() -> None:
    events = in_order(*frames((0.0, 2.0), (2.8, 3.0), (3.8, 5.0)), tone("blind", 2.53))
    found = judge(events, "here")
    assert (found.outages, found.flapping, found.misses) == (2, 1, [])
    told = judge(in_order(*events, tone("again", 3.02)), "here")
    assert told.flapping == 0 and "blind earcon after None" in told.misses[0]
    lied = judge(in_order(*events, tone("again", 3.4)), "here")
    assert "sight was told in the middle of it" in lied.misses[0]
