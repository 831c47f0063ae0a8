"""What counts as one hazard, and from which alert on it was told."""

from __future__ import annotations

from handrail.benchmarks.latency import _first_alerts
from handrail.runtime.events import Alerted, Priority
from handrail.streams.world.truth import TrueObstacle, Truth, truth_of

TENTH_NS = 100_000_000


def in_the_way() -> tuple[Truth, TrueObstacle, int]:
    """A walk, the first thing that is run into, and a time a second before that."""
    truth = truth_of("3", {"kind": "textured", "seconds": "8", "gen": "2"})
    thing = next(o for o in truth.obstacles if o.contact_ns is not None and not o.drop_off)
    assert thing.contact_ns is not None
    return truth, thing, thing.contact_ns - 10 * TENTH_NS


def alert(truth: Truth, thing: TrueObstacle, at_ns: int, track: int, off_m: float = 0.0) -> Alerted:
    seen = truth.seen_from(thing, at_ns, truth.pose_at(at_ns).travel_rad)
    return Alerted(at_ns, track, Priority.NEXT, "contact", at_ns, at_ns, seen.distance_m + off_m, seen.bearing_deg, 1.0)


def test_a_hazard_was_told_by_the_first_alert_of_its_track_however_far_off_that_was() -> None:
    truth, thing, at_ns = in_the_way()
    too_far, right = (alert(truth, thing, at_ns + i * TENTH_NS, 7, off) for i, off in ((0, 2.5), (3, 0.0)))
    assert list(_first_alerts([too_far, right], truth)) == [(thing, too_far)]
    assert not list(_first_alerts([too_far], truth)), "nothing says yet that it was about this one"


def test_a_hazard_counts_once_and_so_does_a_track() -> None:
    truth, thing, at_ns = in_the_way()
    first, again, other = (alert(truth, thing, at_ns + i * TENTH_NS, track) for i, track in ((0, 7), (2, 7), (4, 8)))
    assert list(_first_alerts([first, again, other], truth)) == [(thing, first)]


def test_what_was_run_into_before_it_was_told_is_no_hazard_told() -> None:
    truth, thing, at_ns = in_the_way()
    assert not list(_first_alerts([alert(truth, thing, at_ns + 12 * TENTH_NS, 7)], truth))
