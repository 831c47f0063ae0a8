"""Fault injection: every supported pair does what its name says, in its span alone, the same every time."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from handrail.streams.buffer import RollingBuffer, StreamStatistics
from handrail.streams.cameras import Rig
from handrail.streams.clock import NS_PER_S, now_ns, run_virtual
from handrail.streams.damage import What
from handrail.streams.errors import ConfigError
from handrail.streams.faults import SUPPORTED, Fault, FaultySource, inject, outages
from handrail.streams.pacing import paced
from handrail.streams.samples import (
    AudioBlock,
    Gaze,
    ImageFrame,
    ImuBatch,
    Kind,
    MagBatch,
    Notice,
    Payload,
    PoseBatch,
    Sample,
    Stream,
)
from handrail.streams.source import SourceInfo

MS = 1_000_000
FIRST_NS = 50 * NS_PER_S
LABELS = {
    Kind.RGB: "camera-rgb", Kind.SLAM: "slam-front-left", Kind.IMU: "imu-left", Kind.AUDIO: "mic",
    Kind.GAZE: "eyegaze", Kind.POSE: "vio", Kind.MAG: "mag0",
}
PERIOD_MS = {Kind.RGB: 200, Kind.SLAM: 100, Kind.IMU: 50, Kind.AUDIO: 100, Kind.GAZE: 100, Kind.POSE: 100, Kind.MAG: 50}


def payload_at(kind: Kind, device_ns: int) -> Payload:
    """Every reading differs from the one before, so that a freeze or swap shows."""
    times = np.array([device_ns - 5 * MS, device_ns], np.int64)
    value = (device_ns - FIRST_NS) / NS_PER_S
    match kind:
        case Kind.RGB | Kind.SLAM:
            grey = np.full((6, 8), 1 + round(value * 10) % 200, np.uint8)
            pixels = np.stack([grey] * 3, axis=-1) if kind is Kind.RGB else grey
            return ImageFrame(pixels, 8, 6, 0.002, 1.0, round(value * 10))
        case Kind.IMU:
            return ImuBatch(times, np.full((2, 3), 1 + value), np.full((2, 3), -1 - value))
        case Kind.AUDIO:
            return AudioBlock(np.full((8, 2), round(value * 1000) - 50, np.int32), 16_000.0, device_ns - 10 * MS)
        case Kind.GAZE:
            return Gaze(value / 100, 0.0, None, 0.0, 0.0, 0.0, 0.0)
        case Kind.MAG:
            return MagBatch(times, np.full((2, 3), 4e-5))
        case _:
            column = np.full((2, 3), value)
            return PoseBatch(
                times, column, np.tile([0.0, 0.0, 0.0, 1.0], (2, 1)), column, column, np.array([0, 0, -9.81]),
                np.ones(2), True,
            )


async def captured(seconds: float) -> AsyncIterator[Sample]:
    for ms in range(0, round(seconds * 1000), 10):
        for kind, label in LABELS.items():
            if ms % PERIOD_MS[kind] == 0:
                device_ns = FIRST_NS + ms * MS
                yield Sample(Stream(label, kind), device_ns, 0, payload_at(kind, device_ns))
    end_ns = FIRST_NS + round(seconds * NS_PER_S)
    yield Sample(Stream("source", Kind.NOTICE), end_ns, 0, Notice("end", "end of test"))


def run(faults: Sequence[Fault], seed: int = 0, seconds: float = 6.0) -> list[Sample]:
    async def main() -> list[Sample]:
        return [sample async for sample in inject(paced(captured(seconds), FIRST_NS), faults, seed)]

    return run_virtual(main())


def of(samples: list[Sample], kind: Kind, from_s: float = 0.0, to_s: float = 1e3) -> list[Sample]:
    """By capture time since the first sample."""
    return [
        s for s in samples
        if s.stream.kind is kind and from_s <= (s.device_ns - FIRST_NS) / NS_PER_S < to_s
    ]  # fmt: skip


def image(sample: Sample) -> np.ndarray:
    assert isinstance(sample.payload, ImageFrame) and sample.payload.pixels is not None
    return sample.payload.pixels


def counts(samples: list[Sample]) -> dict[str, StreamStatistics]:
    buffer = RollingBuffer()
    for sample in samples:
        buffer.add(sample)
    return buffer.statistics()


PAIRS = [(kind, what) for kind, whats in SUPPORTED.items() for what in sorted(whats)]
PLAIN = run([])


def test_there_are_more_than_forty_pairs() -> None:
    assert len(PAIRS) >= 40
    assert set(SUPPORTED) == {Kind.RGB, Kind.SLAM, Kind.IMU, Kind.AUDIO, Kind.GAZE, Kind.POSE}
    assert set().union(*SUPPORTED.values()) == set(What)


def same(a: Sample, b: Sample) -> bool:
    return a is b or pickle.dumps(a) == pickle.dumps(b)


@pytest.mark.parametrize("kind, what", PAIRS)
def test_a_fault_hits_its_component_in_its_span_and_nothing_else(kind: Kind, what: What) -> None:
    damaged = run([Fault(kind, what, 2.0, 4.0, amount_s=0.25)])
    others = [s for s in damaged if s.stream.kind is not kind]
    assert len(others) == len([s for s in PLAIN if s.stream.kind is not kind])
    assert all(map(same, others, [s for s in PLAIN if s.stream.kind is not kind]))
    for span in ((0.0, 1.7), (4.4, 9.0)):
        assert all(map(same, of(damaged, kind, *span), of(PLAIN, kind, *span)))
    hit, whole = of(damaged, kind, 2.0, 4.0), of(PLAIN, kind, 2.0, 4.0)
    assert len(hit) != len(whole) or not all(map(same, hit, whole))


@pytest.mark.parametrize("kind, what", PAIRS)
def test_a_damaged_source_still_arrives_in_order_and_the_buffer_takes_it(kind: Kind, what: What) -> None:
    damaged = run([Fault(kind, what, 2.0, 4.0)], seconds=8.0)
    arrivals = [s.host_ns for s in damaged]
    assert arrivals == sorted(arrivals)
    assert isinstance(damaged[-1].payload, Notice)
    buffer = RollingBuffer()
    for sample in damaged:
        buffer.add(sample)
    now = damaged[-1].host_ns
    assert buffer.latest(LABELS[kind], 900.0, now - round(0.3 * NS_PER_S)) is not None  # it has recovered


def test_a_gap_is_silence() -> None:
    assert of(run([Fault(Kind.SLAM, What.GAP, 2.0, 4.0)]), Kind.SLAM, 2.0, 4.0) == []


def test_a_frozen_camera_sends_new_times_and_the_old_picture() -> None:
    frames = of(run([Fault(Kind.SLAM, What.FREEZE, 2.0, 4.0)]), Kind.SLAM, 2.0, 4.0)
    assert len({image(s).tobytes() for s in frames}) == 1
    assert len({s.device_ns for s in frames}) == len(frames) == 20
    numbers = [s.payload.frame_number for s in frames if isinstance(s.payload, ImageFrame)]
    assert len(set(numbers)) == len(numbers)


def test_a_frozen_imu_and_pose_repeat_one_reading() -> None:
    for kind, column in ((Kind.IMU, "accel_msec2"), (Kind.POSE, "position_m")):
        batches = of(run([Fault(kind, What.FREEZE, 2.0, 4.0)]), kind, 2.0, 4.0)
        values = np.concatenate([getattr(s.payload, column) for s in batches])
        assert len(values) == 2 * len(batches) > 0 and np.ptp(values) == 0.0


def test_a_frozen_camera_that_is_not_decoded_freezes_its_first_decoded_picture() -> None:
    async def main() -> list[Sample]:
        async def sparse() -> AsyncIterator[Sample]:
            async for s in captured(3.0):
                if isinstance(s.payload, ImageFrame) and s.payload.frame_number % 4 != 2:
                    s = replace(s, payload=replace(s.payload, pixels=None))
                yield s

        return [s async for s in inject(paced(sparse(), FIRST_NS), [Fault(Kind.SLAM, What.FREEZE, 1.1, 3.0)])]

    frames = [s for s in of(run_virtual(main()), Kind.SLAM, 1.1, 3.0) if isinstance(s.payload, ImageFrame)]
    decoded = [s for s in frames if isinstance(s.payload, ImageFrame) and s.payload.pixels is not None]
    assert 0 < len(decoded) < len(frames)
    assert {image(s).tobytes() for s in decoded} == {image(decoded[0]).tobytes()}


def test_duplicates_and_swapped_neighbours_come_out_late_in_the_buffer() -> None:
    doubled = counts(run([Fault(Kind.SLAM, What.DUPLICATE, 2.0, 4.0)]))["slam-front-left"]
    assert (doubled.received, doubled.late) == (60 + 20, 20)
    swapped = run([Fault(Kind.SLAM, What.REORDER, 2.0, 4.0)])
    assert [s.device_ns for s in of(swapped, Kind.SLAM)] != sorted(s.device_ns for s in of(swapped, Kind.SLAM))
    found = counts(swapped)["slam-front-left"]
    assert (found.received, found.late) == (60, 10)


def test_jumped_clocks_shift_capture_times_of_every_reading() -> None:
    for what, sign in ((What.CLOCK_FORWARD, 1), (What.CLOCK_BACK, -1)):
        batches = [s for s in run([Fault(Kind.IMU, what, 2.0, 4.0, amount_s=7.0)]) if s.stream.kind is Kind.IMU]
        for before, after in zip(of(PLAIN, Kind.IMU), batches, strict=True):
            hit = 2.0 <= (before.device_ns - FIRST_NS) / NS_PER_S < 4.0
            assert after.device_ns - before.device_ns == (sign * 7 * NS_PER_S if hit else 0)
            assert isinstance(after.payload, ImuBatch) and after.payload.device_ns[-1] == after.device_ns
            assert after.host_ns == before.host_ns


def test_a_delayed_frame_arrives_later_with_its_true_capture_time() -> None:
    damaged = run([Fault(Kind.SLAM, What.DELAYED, 2.0, 4.0, amount_s=3.0)])
    late = of(damaged, Kind.SLAM, 2.0, 4.0)
    on_time = of(PLAIN, Kind.SLAM, 2.0, 4.0)
    assert [s.device_ns for s in late] == [s.device_ns for s in on_time]
    assert [b.host_ns - a.host_ns for a, b in zip(on_time, late, strict=True)] == [3 * NS_PER_S] * len(late)


def test_what_is_still_held_back_at_the_end_comes_before_the_end_at_its_time() -> None:
    async def main() -> None:
        faults = [Fault(Kind.SLAM, What.DELAYED, 1.0, 2.0, amount_s=5.0)]
        arrived = []
        async for sample in inject(paced(captured(2.0), FIRST_NS), faults):
            assert now_ns() >= sample.host_ns
            arrived.append(sample)
        assert [s.stream.kind for s in arrived[-11:]] == [Kind.SLAM] * 10 + [Kind.NOTICE]
        assert arrived[-1].host_ns == arrived[-2].host_ns == now_ns()

    run_virtual(main())


@pytest.mark.parametrize("kind", [Kind.RGB, Kind.SLAM])
def test_black_and_saturated_frames_are_that(kind: Kind) -> None:
    for what, value in ((What.BLACK, 0), (What.SATURATED, 255)):
        frames = of(run([Fault(kind, what, 2.0, 4.0)]), kind, 2.0, 4.0)
        assert frames and all((image(s) == value).all() for s in frames)


def test_a_saturated_imu_sits_at_its_full_scale_with_the_old_signs() -> None:
    for sample in of(run([Fault(Kind.IMU, What.SATURATED, 2.0, 4.0)]), Kind.IMU, 2.0, 4.0):
        assert isinstance(sample.payload, ImuBatch)
        assert (sample.payload.accel_msec2 > 150).all() and (sample.payload.gyro_radsec < -30).all()


@pytest.mark.parametrize("kind, what", [
    (kind, what) for kind, what in PAIRS
    if what in (What.NAN, What.WRONG_SHAPE) or (what is What.TRUNCATED and kind is not Kind.AUDIO)
])  # fmt: skip
def test_nan_and_misshapen_payloads_are_dropped_by_the_buffer(kind: Kind, what: What) -> None:
    found = counts(run([Fault(kind, what, 2.0, 4.0)]))[LABELS[kind]]
    assert found.dropped > 0 and found.late == 0
    assert found.received == counts(PLAIN)[LABELS[kind]].received


def test_the_original_samples_are_left_as_they_were() -> None:
    for kind, what in PAIRS:
        sample = Sample(Stream(LABELS[kind], kind), FIRST_NS, 0, payload_at(kind, FIRST_NS))
        before = pickle.dumps(sample)

        async def one(sample: Sample = sample) -> AsyncIterator[Sample]:
            yield sample

        async def main(what: What = what, kind: Kind = kind, one: Callable[[], AsyncIterator[Sample]] = one) -> None:
            assert [s async for s in inject(one(), [Fault(kind, what, 0.0, 1.0)])] or what is What.GAP

        run_virtual(main())
        assert pickle.dumps(sample) == before


@pytest.mark.parametrize("kind, what", [
    (kind, what) for kind in Kind for what in What if what not in SUPPORTED.get(kind, ())
])  # fmt: skip
def test_an_unsupported_pair_is_refused(kind: Kind, what: What) -> None:
    with pytest.raises(ConfigError, match=f"got {kind} x {what}"):
        Fault(kind, what, 0.0, 1.0)


def test_an_empty_span_or_a_share_beyond_one_is_refused() -> None:
    for to_s, amount_s, share in ((1.0, 1.0, 1.0), (2.0, 1.0, 0.0), (2.0, 1.0, 1.5), (2.0, -1.0, 1.0)):
        with pytest.raises(ConfigError, match="from_s < to_s"):
            Fault(Kind.SLAM, What.GAP, 1.0, to_s, amount_s, share)


@given(
    st.lists(
        st.tuples(st.sampled_from(PAIRS), st.floats(0, 2), st.floats(0.1, 2), st.floats(0.1, 1.0)), max_size=4
    ),
    st.integers(0, 5),
)  # fmt: skip
@settings(max_examples=20, deadline=None)
def test_any_mix_of_faults_is_the_same_every_time(
    drawn: list[tuple[tuple[Kind, What], float, float, float]], seed: int
) -> None:
    faults = [Fault(k, w, start, start + length, share=share) for (k, w), start, length, share in drawn]
    first, second = run(faults, seed, 2.0), run(faults, seed, 2.0)
    assert len(first) == len(second) and all(map(same, first, second))
    counts(first)


def test_another_seed_hits_other_samples() -> None:
    faults = [Fault(Kind.IMU, What.GAP, 0.0, 6.0, share=0.5)]
    assert [s.device_ns for s in of(run(faults, 1), Kind.IMU)] != [s.device_ns for s in of(run(faults, 2), Kind.IMU)]


class Recorded:
    """The smallest source."""

    info = SourceInfo("test:", Rig(2, {}, {}, np.eye(4)), (), FIRST_NS, 6.0, False)

    def samples(self) -> AsyncIterator[Sample]:
        return paced(captured(6.0), FIRST_NS)


def test_outages_take_the_cameras_away_and_leave_the_rest() -> None:
    async def main() -> list[Sample]:
        source = outages(Recorded(), [(1.0, 2.0), (3.0, 3.5)])
        assert isinstance(source, FaultySource) and source.info is Recorded.info
        return [s async for s in source.samples()]

    damaged = run_virtual(main())
    for kind in (Kind.RGB, Kind.SLAM):
        kept = of(damaged, kind)
        out = of(PLAIN, kind, 1.0, 2.0) + of(PLAIN, kind, 3.0, 3.5)
        assert len(kept) == len(of(PLAIN, kind)) - len(out) and out
        assert not {s.device_ns for s in kept} & {s.device_ns for s in out}
    assert len(of(damaged, Kind.IMU)) == len(of(PLAIN, Kind.IMU))


def test_a_source_that_ends_without_a_word_ends_here_too() -> None:
    async def main() -> None:
        async def nothing() -> AsyncIterator[Sample]:
            return
            yield

        assert [s async for s in inject(nothing(), [Fault(Kind.SLAM, What.GAP, 0, 1)])] == []
        await asyncio.sleep(0)

    run_virtual(main())
