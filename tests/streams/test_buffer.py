"""The rolling buffer against a naive model, its views, its bounds, and how it tells age."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from handrail.streams.age import FUTURE_NS
from handrail.streams.buffer import RollingBuffer
from handrail.streams.errors import StaleError
from handrail.streams.rings import Bound
from handrail.streams.samples import (
    AudioBlock,
    BaroBatch,
    Gaze,
    Hand,
    Hands,
    ImageFrame,
    ImuBatch,
    Kind,
    MagBatch,
    Notice,
    Other,
    Payload,
    PoseBatch,
    Sample,
    Stream,
)

MS = 1_000_000
S = 1_000_000_000
SLAM = Stream("slam-front-left", Kind.SLAM)
IMU = Stream("imu-left", Kind.IMU)
MAG = Stream("mag0", Kind.MAG)


def frame(number: int = 0, **changes: Any) -> ImageFrame:
    plain = ImageFrame(np.full((2, 3), number % 256, np.uint8), 3, 2, 0.002, 1.0, number)
    return dataclasses.replace(plain, **changes)


def imu(times_ns: list[int], value: float = 0.0) -> ImuBatch:
    times = np.array(times_ns, np.int64)
    accel = np.stack([times / S, np.full(len(times), value), np.full(len(times), 9.81)], axis=-1)
    return ImuBatch(times, accel, -accel)


def poses(times_ns: list[int], causal: bool = True) -> PoseBatch:
    n = len(times_ns)
    return PoseBatch(
        np.array(times_ns, np.int64), np.zeros((n, 3)), np.tile([0.0, 0.0, 0.0, 1.0], (n, 1)), np.zeros((n, 3)),
        np.zeros((n, 3)), np.array([0.0, 0.0, -9.81]), np.ones(n), causal,
    )


def gaze(**changes: Any) -> Gaze:
    return dataclasses.replace(Gaze(0.1, -0.2, 1.5, 0.0, 0.2, -0.3, -0.1), **changes)


def hand(**changes: Any) -> Hand:
    return dataclasses.replace(
        Hand(0.9, np.zeros((21, 3)), np.zeros(3), np.zeros(3), np.array([0.0, 0.0, 1.0])), **changes
    )


def at(stream: Stream, device_ns: int, payload: Payload, way_ns: int = 10 * MS) -> Sample:
    return Sample(stream, device_ns, device_ns + way_ns, payload)


def one_imu(times_ns: list[int], way_ns: int = 10 * MS) -> Sample:
    return at(IMU, times_ns[-1], imu(times_ns), way_ns)


# --- against a naive model ---

SMALL = {Kind.SLAM: Bound(50, 6), Kind.IMU: Bound(50, 12)}


class AgainstModel(RuleBasedStateMachine):
    """Random frames and batches with late and NaN readings; lists and loops say what the buffer must answer."""

    def __init__(self) -> None:
        super().__init__()
        self.buffer = RollingBuffer(SMALL)
        self.held: dict[str, list[int]] = {SLAM.label: [], IMU.label: []}
        self.counts = {SLAM.label: [0, 0, 0], IMU.label: [0, 0, 0]}  # received, dropped, late
        self.now_ns = 1000
        self.snapshots: list[tuple[Any, int, dict[str, list[int]]]] = []

    def insert(self, label: str, time_ns: int, bound: Bound, fit: bool) -> None:
        held, counts = self.held[label], self.counts[label]
        counts[0] += 1
        if not fit:
            counts[1] += 1
        elif held and time_ns <= held[-1]:
            counts[2] += 1
        else:
            held.append(time_ns)
            self.held[label] = [t for t in held if t >= time_ns - bound.age_ns][-bound.count :]

    @rule(step=st.integers(0, 30), back=st.integers(0, 40), fit=st.booleans())
    def add_frame(self, step: int, back: int, fit: bool) -> None:
        self.now_ns += step
        time_ns = self.now_ns - back
        pixels = np.zeros((2, 3) if fit else (3, 2), np.uint8)
        self.buffer.add(Sample(SLAM, time_ns, self.now_ns, frame(time_ns, pixels=pixels)))
        self.insert(SLAM.label, time_ns, SMALL[Kind.SLAM], fit)

    @rule(steps=st.lists(st.tuples(st.integers(-15, 20), st.booleans()), min_size=1, max_size=20))
    def add_batch(self, steps: list[tuple[int, bool]]) -> None:
        times, time_ns = [], self.now_ns
        for step, _ in steps:
            time_ns = max(1, time_ns + step)
            times.append(time_ns)
        self.now_ns = max(self.now_ns, *times)
        batch = imu(times)
        for row, (_, fit) in enumerate(steps):
            if not fit:
                batch.gyro_radsec[row, 1] = np.nan
        bound, newest = SMALL[Kind.IMU], max(self.held[IMU.label], default=-1)
        taken = self.buffer.add(Sample(IMU, times[-1], self.now_ns, batch))
        fresh = []
        for time_ns, (_, fit) in zip(times, steps, strict=True):
            if fit and time_ns > newest:
                fresh.append(time_ns)
                newest = time_ns
        assert times_of(() if taken is None else (taken,)) == fresh
        for time_ns, (_, fit) in zip(times, steps, strict=True):
            self.insert(IMU.label, time_ns, bound, fit)

    @precondition(lambda self: self.held[SLAM.label])
    @rule(back=st.integers(0, 60))
    def take_snapshot(self, back: int) -> None:
        until_ns = self.now_ns - back
        expected = {label: [t for t in held if t <= until_ns] for label, held in self.held.items()}
        self.snapshots.append((self.buffer.snapshot(until_ns), until_ns, expected))

    @rule(back=st.integers(-5, 70), tolerance=st.integers(0, 30))
    def closest_is_the_nearest_within_tolerance(self, back: int, tolerance: int) -> None:
        wanted = self.now_ns - back
        for label, held in self.held.items():
            near = [t for t in held if abs(t - wanted) <= tolerance]
            expected = min(near, key=lambda t: (abs(t - wanted), t)) if near else None
            found = self.buffer.closest(label, wanted, tolerance)
            assert (None if found is None else found.device_ns) == expected

    @rule(back=st.integers(0, 70), length=st.integers(0, 70))
    def window_holds_what_was_captured_in_it(self, back: int, length: int) -> None:
        from_ns, to_ns = self.now_ns - back, self.now_ns - back + length
        for label, held in self.held.items():
            assert times_of(self.buffer.window(label, from_ns, to_ns)) == [t for t in held if from_ns < t <= to_ns]

    @invariant()
    def statistics_agree(self) -> None:
        for label, found in self.buffer.statistics().items():
            received, dropped, late = self.counts[label]
            assert (found.received, found.dropped, found.late) == (received, dropped, late)
            assert found.held == len(self.held[label])

    @invariant()
    def snapshots_stay_what_they_were(self) -> None:
        for snapshot, until_ns, expected in self.snapshots:
            for label, times in expected.items():
                window = snapshot.window(label, -1, until_ns + 1000)
                assert times_of(window) == times
                for sample in window:
                    if isinstance(sample.payload, ImuBatch):
                        assert (sample.payload.accel_msec2[:, 0] == np.array(times) / S).all()


def times_of(samples: tuple[Sample, ...]) -> list[int]:
    times: list[int] = []
    for sample in samples:
        if isinstance(sample.payload, ImuBatch):
            times.extend(sample.payload.device_ns.tolist())
        else:
            times.append(sample.device_ns)
    return times


AgainstModel.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
test_answers_as_a_naive_model_does = AgainstModel.TestCase


# --- views ---


def test_a_window_over_an_imu_is_one_view_without_a_copy() -> None:
    buffer = RollingBuffer()
    for start in range(0, 1000, 10):
        buffer.add(one_imu(list(range(start * MS + 1, (start + 10) * MS, MS))))
    (sample,) = buffer.window(IMU.label, 100 * MS, 900 * MS)
    assert isinstance(sample.payload, ImuBatch)
    (again,) = buffer.window(IMU.label, 100 * MS, 900 * MS)
    assert isinstance(again.payload, ImuBatch)
    assert np.shares_memory(sample.payload.accel_msec2, again.payload.accel_msec2)
    assert sample.payload.device_ns[0] > 100 * MS and sample.device_ns == sample.payload.device_ns[-1] <= 900 * MS
    assert sample.host_ns >= sample.device_ns


def test_windows_in_a_row_share_no_reading_and_miss_none() -> None:
    buffer = RollingBuffer()
    times = list(range(5 * MS, 500 * MS, 5 * MS))
    buffer.add(one_imu(times))
    seen = [t for start in range(0, 500, 50) for t in times_of(buffer.window(IMU.label, start * MS, (start + 50) * MS))]
    assert seen == times


def test_nobody_can_write_into_what_the_buffer_hands_out() -> None:
    buffer = RollingBuffer()
    buffer.add(one_imu([1, 2, 3]))
    (sample,) = buffer.window(IMU.label, 0, 3)
    assert isinstance(sample.payload, ImuBatch)
    with pytest.raises(ValueError, match="read-only"):
        sample.payload.gyro_radsec[0, 0] = 1.0


def test_a_batch_changed_by_its_sender_afterwards_changes_nothing_held() -> None:
    buffer, batch = RollingBuffer(), imu([1, 2, 3], value=5.0)
    buffer.add(at(IMU, 3, batch))
    batch.accel_msec2[:] = -1.0
    (held,) = buffer.window(IMU.label, 0, 3)
    assert isinstance(held.payload, ImuBatch) and (held.payload.accel_msec2[:, 1] == 5.0).all()


def test_frames_are_held_without_a_copy() -> None:
    buffer, payload = RollingBuffer(), frame()
    buffer.add(at(SLAM, 5, payload))
    held = buffer.closest(SLAM.label, 5, 0)
    assert held is not None and held.payload is payload


def test_a_snapshot_holds_nothing_captured_after_its_time() -> None:
    buffer = RollingBuffer()
    for ms in range(0, 100, 10):
        buffer.add(at(SLAM, ms * MS, frame(ms)))
        buffer.add(one_imu([ms * MS + 1, ms * MS + 5 * MS]))
    snapshot = buffer.snapshot(52 * MS)
    newest = snapshot.newest(SLAM.label)
    assert newest is not None and newest.device_ns == 50 * MS
    assert times_of(snapshot.window(IMU.label, 0, 1 * S))[-1] == 50 * MS + 1
    assert snapshot.closest(SLAM.label, 60 * MS, 5 * MS) is None
    assert snapshot.closest(SLAM.label, 56 * MS, 6 * MS) == newest


def test_a_snapshot_outlives_a_thousand_turns_of_its_ring() -> None:
    buffer = RollingBuffer({Kind.IMU: Bound(10 * S, 16)})
    buffer.add(one_imu([1, 2, 3], 0))
    snapshot = buffer.snapshot(3)
    for turn in range(1, 1000):
        buffer.add(one_imu([turn * 100 + i for i in range(16)], 0))
    assert times_of(snapshot.window(IMU.label, 0, S)) == [1, 2, 3]


def test_a_batch_longer_than_its_ring_leaves_its_newest_readings() -> None:
    buffer = RollingBuffer({Kind.IMU: Bound(10 * S, 8)})
    buffer.add(one_imu(list(range(1, 101))))
    assert times_of(buffer.window(IMU.label, 0, S)) == list(range(93, 101))
    assert buffer.statistics()[IMU.label].received == 100


def test_poses_keep_their_gravity_and_one_future_aware_pose_taints_the_window() -> None:
    stream, buffer = Stream("vio", Kind.POSE), RollingBuffer()
    buffer.add(at(stream, 2, poses([1, 2])))
    (window,) = buffer.window("vio", 0, 9)
    assert isinstance(window.payload, PoseBatch) and window.payload.causal
    assert window.payload.gravity_msec2.tolist() == [0.0, 0.0, -9.81]
    buffer.add(at(stream, 3, poses([3], causal=False)))
    (window,) = buffer.window("vio", 0, 9)
    assert isinstance(window.payload, PoseBatch) and not window.payload.causal
    assert window.payload.quaternion_xyzw.shape == (3, 4)


def test_a_stream_never_heard_of_is_empty() -> None:
    buffer = RollingBuffer()
    assert buffer.closest("camera-rgb", 0, S) is None
    assert buffer.window("camera-rgb", 0, S) == ()
    assert buffer.snapshot(S).newest("camera-rgb") is None
    assert buffer.statistics() == {}


# --- what is refused, and counted ---

NAN = float("nan")
UNFIT: dict[str, tuple[Kind, Payload]] = {
    "transposed image": (Kind.SLAM, frame(pixels=np.zeros((3, 2), np.uint8))),
    "truncated image": (Kind.RGB, frame(pixels=np.zeros((1, 3, 3), np.uint8))),
    "image with four channels": (Kind.RGB, frame(pixels=np.zeros((2, 3, 4), np.uint8))),
    "image of floats": (Kind.SLAM, frame(pixels=np.zeros((2, 3)))),
    "image of no size": (Kind.SLAM, frame(width=0, pixels=np.zeros((2, 0), np.uint8))),
    "NaN exposure": (Kind.SLAM, frame(exposure_s=NAN)),
    "IMU column too short": (Kind.IMU, ImuBatch(np.array([1, 2]), np.zeros((1, 3)), np.zeros((2, 3)))),
    "IMU with two axes": (Kind.IMU, ImuBatch(np.array([1, 2]), np.zeros((2, 2)), np.zeros((2, 3)))),
    "IMU time a scalar": (Kind.IMU, ImuBatch(np.array(1), np.zeros((1, 3)), np.zeros((1, 3)))),
    "magnetometer of single floats": (Kind.MAG, MagBatch(np.array([1]), np.zeros((1, 3), np.float32))),
    "barometer NaN": (Kind.BARO, BaroBatch(np.array([1]), np.array([NAN]), np.array([20.0]))),
    "pose with NaN gravity": (Kind.POSE, dataclasses.replace(poses([1]), gravity_msec2=np.full(3, NAN))),
    "audio in one dimension": (Kind.AUDIO, AudioBlock(np.zeros(8, np.int32), 48_000.0, 0)),
    "audio at no rate": (Kind.AUDIO, AudioBlock(np.zeros((8, 2), np.int32), 0.0, 0)),
    "gaze NaN": (Kind.GAZE, gaze(yaw_rad=NAN)),
    "gaze at infinite depth": (Kind.GAZE, gaze(depth_m=float("inf"))),
    "hand with twenty landmarks": (Kind.HANDS, Hands(hand(landmarks_m=np.zeros((20, 3))), None)),
    "hand with NaN wrist": (Kind.HANDS, Hands(None, hand(wrist_m=np.full(3, NAN)))),
    "gaze in a camera stream": (Kind.SLAM, gaze()),
    "image in an IMU stream": (Kind.IMU, frame()),
}


@pytest.mark.parametrize("name", UNFIT)
def test_unfit_payloads_are_refused_and_counted(name: str) -> None:
    kind, payload = UNFIT[name]
    buffer = RollingBuffer()
    assert buffer.add(at(Stream("x", kind), 2, payload)) is None
    found = buffer.statistics()["x"]
    assert found.received == found.dropped >= 1
    assert (found.late, found.held) == (0, 0)
    assert buffer.window("x", -1, S) == ()


@pytest.mark.parametrize(
    "kind, payload",
    [
        (Kind.RGB, frame(pixels=np.zeros((2, 3, 3), np.uint8))), (Kind.SLAM, frame(pixels=None)), (Kind.EYE, frame()),
        (Kind.AUDIO, AudioBlock(np.zeros((8, 7), np.int32), 48_000.0, 0)), (Kind.GAZE, gaze(depth_m=None)),
        (Kind.HANDS, Hands(hand(), hand(palm_normal=None))), (Kind.HANDS, Hands(None, None)),
        (Kind.BARO, BaroBatch(np.array([2]), np.array([1e5]), np.array([20.0]))),
        (Kind.MAG, MagBatch(np.array([2]), np.zeros((1, 3)))), (Kind.POSE, poses([2])), (Kind.IMU, imu([2])),
    ],
)  # fmt: skip
def test_fit_payloads_of_every_kind_are_held(kind: Kind, payload: Payload) -> None:
    buffer = RollingBuffer()
    assert buffer.add(at(Stream("x", kind), 2, payload)) is not None
    assert buffer.closest("x", 2, 0) is not None


def test_only_the_broken_readings_of_a_batch_are_refused() -> None:
    buffer, batch = RollingBuffer(), imu([1, 2, -1, 4, 5])
    batch.accel_msec2[1, 2] = np.inf
    taken = buffer.add(at(IMU, 5, batch))
    assert taken is not None and times_of((taken,)) == times_of(buffer.window(IMU.label, 0, S)) == [1, 4, 5]
    assert buffer.statistics()[IMU.label].dropped == 2


def test_a_missing_timestamp_is_refused() -> None:
    buffer = RollingBuffer()
    assert buffer.add(Sample(SLAM, -1, 5, frame())) is None
    assert buffer.statistics()[SLAM.label].dropped == 1


def test_late_and_repeated_frames_are_counted_and_not_inserted() -> None:
    buffer = RollingBuffer()
    taken = [buffer.add(at(SLAM, time_ns, frame(), 100)) for time_ns in (10, 30, 20, 30, 40)]
    assert [sample is not None for sample in taken] == [True, True, False, False, True]
    assert times_of(buffer.window(SLAM.label, 0, 99)) == [10, 30, 40]
    found = buffer.statistics()[SLAM.label]
    assert (found.received, found.dropped, found.late, found.held) == (5, 0, 2, 3)


def test_streams_without_a_ring_are_counted_per_recorded_sample() -> None:
    buffer = RollingBuffer()
    buffer.add(at(Stream("gps", Kind.OTHER), 1, Other(7)))
    buffer.add(at(Stream("gps", Kind.OTHER), 2, Other(3)))
    assert buffer.statistics()["gps"].received == 10


def test_a_seam_empties_the_rings_and_keeps_the_counts() -> None:
    buffer = RollingBuffer()
    buffer.add(at(SLAM, 1 * S, frame()))
    buffer.add(one_imu([1 * S]))
    buffer.add(Sample(Stream("source", Kind.NOTICE), 1 * S, 1 * S, Notice("seam", "loop 2")))
    assert buffer.snapshot(9 * S).newest(SLAM.label) is None
    assert buffer.snapshot(9 * S).newest(IMU.label) is None
    assert list(buffer.statistics()) == [SLAM.label, IMU.label]
    assert buffer.statistics()[IMU.label].received == 1


@pytest.mark.parametrize("broken", ["quaternion of zeros", "quaternion of tens", "no gravity"])
def test_a_pose_whose_rotation_is_none_is_dropped(broken: str) -> None:
    buffer, batch = RollingBuffer(), poses([S, 2 * S])
    match broken:
        case "no gravity":
            batch = dataclasses.replace(batch, gravity_msec2=np.zeros(3))
        case _:
            batch.quaternion_xyzw[0] *= 0.0 if "zeros" in broken else 10.0
    taken = buffer.add(Sample(Stream("vio", Kind.POSE), 2 * S, 2 * S, batch))
    assert (0 if taken is None else taken.count) == (0 if broken == "no gravity" else 1)


# --- age ---

OFFSET = 5_000 * S  # the loop's clock against the device's


def host(device_ns: int, way_ms: float) -> int:
    return device_ns + OFFSET + round(way_ms * MS)


def feed_imu(buffer: RollingBuffer, from_ms: int, to_ms: int, way_ms: float = 12.0, skew_ns: int = 0) -> None:
    """IMU and magnetometer every 10 ms of host time; ``skew_ns`` is added to what the device clock says."""
    for ms in range(from_ms, to_ms, 10):
        for stream in (IMU, MAG):
            stamp = ms * MS + skew_ns
            payload: Payload = imu([stamp]) if stream is IMU else MagBatch(np.array([stamp]), np.ones((1, 3)))
            buffer.add(Sample(stream, stamp, host(ms * MS, way_ms), payload))


def age_ms(buffer: RollingBuffer, device_ns: int, now_ns: int) -> float:
    return buffer.age_ns(device_ns, now_ns) / MS


def test_a_frame_that_waited_in_a_queue_comes_out_stale() -> None:
    buffer = RollingBuffer()
    feed_imu(buffer, 0, 5000)
    now_ns = host(5000 * MS, 12.0)
    fresh, queued = 4977 * MS, 1300 * MS  # both are handed over now; one waited 3.7 s
    buffer.add(Sample(Stream("camera-rgb", Kind.RGB), queued, now_ns, frame()))
    buffer.add(Sample(SLAM, fresh, now_ns, frame()))
    assert age_ms(buffer, queued, now_ns) == pytest.approx(3700, abs=1)
    assert age_ms(buffer, fresh, now_ns) == pytest.approx(23, abs=1)
    assert buffer.latest(SLAM.label, 500.0, now_ns).device_ns == fresh
    with pytest.raises(StaleError, match=r"camera-rgb: expected .* at most 500 ms old, the newest is 3700 ms"):
        buffer.latest("camera-rgb", 500.0, now_ns)


def test_latest_says_so_when_nothing_is_held() -> None:
    with pytest.raises(StaleError, match="none is held"):
        RollingBuffer().latest(SLAM.label, 500.0, 0)


def test_age_is_unknown_before_the_first_sample() -> None:
    with pytest.raises(StaleError, match="none has arrived"):
        RollingBuffer().age_ns(0, 0)


def test_without_any_low_latency_stream_the_quickest_of_the_others_tells_age() -> None:
    buffer = RollingBuffer()
    for ms in range(0, 1000, 100):
        buffer.add(Sample(SLAM, ms * MS, host(ms * MS, 35.0 if ms != 500 else 30.0), frame()))
    assert age_ms(buffer, 900 * MS, host(900 * MS, 35.0)) == pytest.approx(5, abs=0.1)


def test_one_quick_arrival_sets_the_offset_and_slow_ones_do_not_raise_it() -> None:
    buffer = RollingBuffer()
    feed_imu(buffer, 0, 100, 20.0)
    feed_imu(buffer, 100, 110, 8.0)
    feed_imu(buffer, 110, 3000, 400.0)
    assert age_ms(buffer, 0, host(0, 8.0)) == pytest.approx(0, abs=0.5)


def test_a_lag_of_seconds_stays_visible_for_minutes() -> None:
    buffer = RollingBuffer()
    feed_imu(buffer, 0, 1000)
    feed_imu(buffer, 1000, 121_000, 3012.0)
    assert age_ms(buffer, 120_000 * MS, host(120_000 * MS, 3012.0)) > 2980


def test_a_device_clock_that_runs_slow_does_not_age_the_samples() -> None:
    buffer = RollingBuffer()
    drift = 50e-6
    for s in range(0, 4 * 3600):
        stamp = s * S - round(s * S * drift)
        buffer.add(Sample(MAG, stamp, host(s * S, 12.0), MagBatch(np.array([stamp]), np.ones((1, 3)))))
    assert age_ms(buffer, stamp, host(s * S, 12.0)) == pytest.approx(0, abs=0.1)


@pytest.mark.parametrize("jump_s", [-30, -2, 2, 30, 4000])
def test_one_damaged_timestamp_changes_nothing(jump_s: int) -> None:
    buffer = RollingBuffer()
    feed_imu(buffer, 0, 1000)
    stamp = 1000 * MS + jump_s * S
    buffer.add(Sample(IMU, stamp, host(1000 * MS, 12.0), imu([stamp])))
    feed_imu(buffer, 1010, 1100)
    assert age_ms(buffer, 1090 * MS, host(1090 * MS, 12.0)) == pytest.approx(0, abs=0.3)
    assert buffer.statistics()[IMU.label].held == 109
    window = times_of(buffer.window(IMU.label, -1, 1 << 60))
    assert window == [ms * MS for ms in range(0, 1000, 10)] + [ms * MS for ms in range(1010, 1100, 10)]


@pytest.mark.parametrize("jump_s", [-30, 30])
def test_a_damaged_first_timestamp_does_not_blind_for_ever(jump_s: int) -> None:
    buffer = RollingBuffer()
    stamp = (100 + jump_s) * S
    buffer.add(Sample(IMU, stamp, host(100 * S, 12.0), imu([stamp])))
    feed_imu(buffer, 100_010, 100_100)
    assert age_ms(buffer, 100_090 * MS, host(100_090 * MS, 12.0)) == pytest.approx(0, abs=0.3)
    assert times_of(buffer.window(IMU.label, 0, 1 << 60)) == [ms * MS for ms in range(100_010, 100_100, 10)]


@pytest.mark.parametrize("jump_s", [-5, 5])
def test_a_device_clock_that_was_set_anew_is_followed_within_half_a_second(jump_s: int) -> None:
    buffer = RollingBuffer()
    feed_imu(buffer, 10_000, 12_000)
    feed_imu(buffer, 12_000, 12_500, skew_ns=jump_s * S)
    now_ns = host(12_490 * MS, 12.0)
    assert age_ms(buffer, 12_490 * MS + jump_s * S, now_ns) == pytest.approx(0, abs=0.3)
    newest = buffer.snapshot(1 << 60).newest(IMU.label)
    assert newest is not None and newest.device_ns == 12_490 * MS + jump_s * S
    feed_imu(buffer, 12_500, 13_000)  # and back
    assert age_ms(buffer, 12_990 * MS, host(12_990 * MS, 12.0)) == pytest.approx(0, abs=0.3)


def test_one_stream_whose_clock_jumps_does_not_take_the_others_along() -> None:
    buffer = RollingBuffer()
    feed_imu(buffer, 0, 1000)
    for ms in range(1000, 3000, 10):
        buffer.add(Sample(IMU, ms * MS + 7 * S, host(ms * MS, 12.0), imu([ms * MS + 7 * S])))
        buffer.add(Sample(MAG, ms * MS, host(ms * MS, 12.0), MagBatch(np.array([ms * MS]), np.ones((1, 3)))))
    assert age_ms(buffer, 2990 * MS, host(2990 * MS, 12.0)) == pytest.approx(0, abs=0.3)
    assert buffer.statistics()[IMU.label].dropped == 200
    feed_imu(buffer, 3000, 3100)
    newest = buffer.snapshot(1 << 60).newest(IMU.label)
    assert newest is not None and newest.device_ns == 3090 * MS


def test_a_frame_from_the_future_is_refused() -> None:
    buffer = RollingBuffer()
    feed_imu(buffer, 0, 1000)
    now_ns = host(1000 * MS, 12.0)
    assert buffer.add(Sample(SLAM, 1000 * MS + FUTURE_NS + 20 * MS, now_ns, frame())) is None
    assert buffer.add(Sample(SLAM, 980 * MS, now_ns, frame())) is not None


def test_a_reading_from_the_future_inside_a_batch_is_refused() -> None:
    buffer = RollingBuffer()
    feed_imu(buffer, 0, 1000)
    times = [1000 * MS, 90 * S, 1002 * MS]
    buffer.add(Sample(IMU, times[-1], host(1002 * MS, 12.0), imu(times)))
    assert times_of(buffer.window(IMU.label, 995 * MS, 99 * S)) == [1000 * MS, 1002 * MS]
    assert buffer.statistics()[IMU.label].dropped == 1
