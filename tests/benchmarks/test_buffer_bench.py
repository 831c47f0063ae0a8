"""The buffer bench at a length that tests can afford; ``handrail bench buffer`` runs the whole."""

from __future__ import annotations

from typing import Any

import pytest

from handrail.benchmarks.buffer import GEN2, run_buffer
from handrail.streams.buffer import BOUNDS


@pytest.fixture(scope="module")
def figures() -> dict[str, Any]:
    return run_buffer(minutes=0.1, rate_factor=4.0)


def test_every_reading_at_four_times_nominal_is_counted_and_none_is_refused(figures: dict[str, Any]) -> None:
    nominal = sum(n.samples_hz * n.readings for n in GEN2)
    assert figures["received"] == pytest.approx(nominal * 4.0 * 6.0, rel=0.001)
    assert (figures["dropped"], figures["late"]) == (0, 0)


def test_every_ring_stays_within_its_bound_and_some_reach_it(figures: dict[str, Any]) -> None:
    bounds = {n.stream.label: BOUNDS[n.stream.kind].count for n in GEN2}
    assert all(figures["held"][label] <= bounds[label] for label in bounds)
    assert figures["held"]["imu-left"] == bounds["imu-left"]


def test_memory_is_sampled_along_the_way(figures: dict[str, Any]) -> None:
    assert [point["t_s"] for point in figures["resident_mib"]] == [0.0, 5.0]
    assert all(point["mib"] > 0 for point in figures["resident_mib"])
