"""Pacing: capture order in, arrival order out, each at its capture plus the delay of its kind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from handrail.streams.clock import now_ns, run_virtual
from handrail.streams.pacing import paced
from handrail.streams.samples import Kind, Notice, Other, Sample, Stream
from handrail.streams.source import DECLARED_DELAY_MS

MS = 1_000_000
FIRST_NS = 7_000_000_000
Captured = list[tuple[str, Kind, int]]  # label, kind, capture in ms since the first


async def captured(items: Captured) -> AsyncIterator[Sample]:
    for label, kind, ms in items:
        payload = Notice("seam", "") if kind is Kind.NOTICE else Other(1)
        yield Sample(Stream(label, kind), FIRST_NS + ms * MS, 0, payload)


def arrivals(items: Captured, start_s: float = 0.0) -> list[tuple[str, int, int]]:
    """(label, device_ns, host_ns) as they arrive; host_ns is checked against the clock."""

    async def main() -> list[tuple[str, int, int]]:
        await asyncio.sleep(start_s)
        out = []
        async for sample in paced(captured(items), FIRST_NS):
            assert sample.host_ns == now_ns()
            out.append((sample.stream.label, sample.device_ns, sample.host_ns))
        return out

    return run_virtual(main())


def test_every_kind_has_a_declared_delay() -> None:
    assert set(DECLARED_DELAY_MS) == set(Kind)


@pytest.mark.parametrize("kind", Kind)
def test_a_sample_arrives_at_its_capture_plus_the_delay_of_its_kind(kind: Kind) -> None:
    ((_, _, host_ns),) = arrivals([("x", kind, 40)], start_s=3.0)
    assert host_ns == 3_000 * MS + 40 * MS + round(DECLARED_DELAY_MS[kind] * MS)


def test_a_slow_stream_arrives_after_quicker_ones_captured_later() -> None:
    order = arrivals([("rgb", Kind.RGB, 0), ("slam", Kind.SLAM, 10), ("imu", Kind.IMU, 20), ("imu", Kind.IMU, 200)])
    assert [label for label, _, _ in order] == ["imu", "slam", "rgb", "imu"]


def test_ties_arrive_by_label_then_in_the_order_of_capture() -> None:
    items: Captured = [("b", Kind.IMU, 5), ("a", Kind.IMU, 5), ("b", Kind.IMU, 5), ("a", Kind.IMU, 5)]
    assert [label for label, _, _ in arrivals(items)] == ["a", "a", "b", "b"]


def test_a_notice_due_at_the_same_time_takes_its_turn_though_it_is_captured_last() -> None:
    at_ms = round(DECLARED_DELAY_MS[Kind.IMU])
    items: Captured = [("imu", Kind.IMU, 0), ("slam", Kind.SLAM, at_ms), ("a-source", Kind.NOTICE, at_ms)]
    assert [label for label, _, _ in arrivals(items)] == ["a-source", "imu", "slam"]


def test_a_seam_is_not_overtaken_by_what_was_captured_after_it() -> None:
    order = arrivals([("imu", Kind.IMU, 0), ("source", Kind.NOTICE, 30), ("imu", Kind.IMU, 30), ("imu", Kind.IMU, 40)])
    assert [label for label, _, _ in order] == ["imu", "source", "imu", "imu"]


drawn = st.lists(
    st.tuples(
        st.sampled_from([
            ("slam", Kind.SLAM), ("imu", Kind.IMU), ("rgb", Kind.RGB), ("gaze", Kind.GAZE), ("a-source", Kind.NOTICE),
        ]),
        st.integers(0, 100),
    ),
    max_size=60,
)  # fmt: skip


@given(drawn)
@settings(max_examples=60, deadline=None)
def test_all_arrive_once_in_order_each_at_its_time(samples: list[tuple[tuple[str, Kind], int]]) -> None:
    items = sorted([(label, kind, ms) for (label, kind), ms in samples], key=lambda item: item[2])
    order = arrivals(items)
    due = [(ms * MS + round(DECLARED_DELAY_MS[kind] * MS), label) for label, kind, ms in items]
    assert [(host_ns, label) for label, _, host_ns in order] == sorted(due)
    assert order == arrivals(items)


def test_a_consumer_that_takes_too_long_gets_the_rest_at_once_and_in_order() -> None:
    async def main() -> None:
        hosts = []
        async for sample in paced(captured([("imu", Kind.IMU, ms) for ms in range(0, 100, 10)]), FIRST_NS):
            hosts.append(sample.host_ns)
            if len(hosts) == 2:
                await asyncio.sleep(0.5)
        assert hosts == sorted(hosts)
        assert hosts[2:] == [22 * MS + 500 * MS] * 8

    run_virtual(main())


def test_samples_after_a_time_do_not_change_when_those_before_it_arrive() -> None:
    early: Captured = [("imu", Kind.IMU, 0), ("rgb", Kind.RGB, 5), ("slam", Kind.SLAM, 50), ("imu", Kind.IMU, 60)]
    until_ns = 60 * MS
    one = arrivals([*early, ("slam", Kind.SLAM, 61), ("imu", Kind.IMU, 300)])
    other = arrivals([*early, ("imu", Kind.IMU, 90), ("source", Kind.NOTICE, 91)])
    assert [a for a in one if a[2] <= until_ns] == [a for a in other if a[2] <= until_ns] != []
