"""The grid: means of what is known per bin, nothing of the future, and features that mean what they say."""

from __future__ import annotations

import dataclasses
import importlib.resources
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray

from handrail.runtime.grid import BINS, HISTORY_NS, STREAMS, Grid, Statistics, bin_means, features, grids
from handrail.runtime.grid.imu import LENGTH, STEP_NS, WINDOW_NS, imu_rows, windows
from handrail.streams.buffer import RollingBuffer
from handrail.streams.cameras import Rig
from handrail.streams.clock import run_virtual
from handrail.streams.errors import InputError
from handrail.streams.samples import (
    BaroBatch,
    Gaze,
    Hand,
    Hands,
    ImuBatch,
    Kind,
    MagBatch,
    Notice,
    PoseBatch,
    Sample,
    Stream,
)
from handrail.streams.source import DecodePlan, open_source

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]
MS, S = 1_000_000, 1_000_000_000
T0 = 100 * S
ARIA = Path(__file__).parents[3] / "shared/data/aria"


def rig(generation: int = 2) -> Rig:
    text = importlib.resources.files("handrail.streams.world").joinpath(f"gen{generation}.json").read_text()
    return Rig.from_json(json.loads(text))


def encoder(windows: F32) -> F32:
    """Every third value of a window: exact, whatever the number of windows."""
    flat = windows.reshape(len(windows), -1)
    return np.concatenate([flat[:, ::3], flat[:, :12]], axis=1)


# ---- samples ---------------------------------------------------------------------------------------------------------

HZ = {"imu-left": 200, "imu-right": 160, "mag0": 25, "baro0": 50, "eyegaze": 20, "handtracking": 10, "vio": 40}
KINDS = (Kind.IMU, Kind.IMU, Kind.MAG, Kind.BARO, Kind.GAZE, Kind.HANDS, Kind.POSE)


def quaternions(rng: np.random.Generator, n: int) -> F64:
    q = rng.normal(size=(n, 4))
    return q / np.linalg.norm(q, axis=1, keepdims=True)


def hand(rng: np.random.Generator) -> Hand | None:
    if rng.random() < 0.3:
        return None
    points = rng.normal(0, 0.3, (24, 3))
    return Hand(float(rng.random()), points[:21], points[21], points[22], points[23] if rng.random() < 0.7 else None)


def look(rng: np.random.Generator) -> Gaze:
    yaw, pitch = rng.normal(0, 0.3, 2).tolist()
    depth = None if rng.random() < 0.3 else float(rng.uniform(0.2, 5))
    return Gaze(yaw, pitch, depth, yaw - 0.05, yaw + 0.05, pitch - 0.02, pitch + 0.03)


def payload(kind: Kind, t: NDArray[np.int64], rng: np.random.Generator) -> Any:
    n = len(t)
    match kind:
        case Kind.IMU:
            return ImuBatch(t, rng.normal([0, 9.8, 0], 3, (n, 3)), rng.normal(0, 1, (n, 3)))
        case Kind.MAG:
            return MagBatch(t, rng.normal(0, 3e-5, (n, 3)))
        case Kind.BARO:
            return BaroBatch(t, rng.normal(101_000, 50, n), rng.normal(30, 1, n))
        case Kind.GAZE:
            return look(rng)
        case Kind.HANDS:
            return Hands(hand(rng), hand(rng))
        case _:
            return PoseBatch(
                t, rng.normal(size=(n, 3)), quaternions(rng, n), rng.normal(size=(n, 3)), rng.normal(size=(n, 3)),
                np.array([0.0, 0.0, -9.81]), rng.uniform(0.5, 1, n), causal=True,
            )  # fmt: skip


def clip(seed: int, seconds: float = 8.0, start_ns: int = T0) -> list[Sample]:
    """All streams with jittered times, packed ones in batches of up to 12, by arrival 5 ms after capture."""
    rng = np.random.default_rng(seed)
    samples = []
    for kind, (label, hz) in zip(KINDS, HZ.items(), strict=True):
        n = int(seconds * hz)
        t = start_ns + (np.arange(n) * S // hz) + rng.integers(0, S // hz // 2, n)
        cuts = range(n) if kind in (Kind.GAZE, Kind.HANDS) else np.unique(rng.integers(0, n, n // 8 + 1)).tolist()
        for a, b in zip([0, *cuts], [*cuts, n], strict=True):
            if b > a:
                last = int(t[b - 1])
                samples.append(Sample(Stream(label, kind), last, last + 5 * MS, payload(kind, t[a:b], rng)))
    return sorted(samples, key=lambda s: s.host_ns)


def cut(sample: Sample, keep: Callable[[Any], Any]) -> Sample | None:
    """The readings of a sample whose times are kept."""
    p = sample.payload
    if isinstance(p, Gaze | Hands):
        return sample if keep(sample.device_ns) else None
    rows = keep(p.device_ns)  # type: ignore[union-attr]
    if not rows.any():
        return None
    columns = {
        f.name: getattr(p, f.name)[rows]
        for f in dataclasses.fields(p)  # type: ignore[arg-type]
        if isinstance(getattr(p, f.name), np.ndarray) and f.name != "gravity_msec2"
    }
    return dataclasses.replace(sample, payload=dataclasses.replace(p, **columns))  # type: ignore[type-var]


def spliced(past: list[Sample], future: list[Sample], at_ns: int) -> list[Sample]:
    """One clip up to a time, another one from there on."""
    parts = [cut(s, lambda t: t < at_ns) for s in past] + [cut(s, lambda t: t >= at_ns) for s in future]
    return [s for s in parts if s is not None]


def same(a: Grid, b: Grid, bins: slice = slice(None)) -> bool:
    return all(
        np.array_equal(x[bins], y[bins]) for x, y in ((a.values, b.values), (a.valid, b.valid), (a.mask(), b.mask()))
    )


# ---- bins ------------------------------------------------------------------------------------------------------------

entries = st.floats(-1e6, 1e6) | st.sampled_from([np.nan, np.inf, -np.inf])


@given(
    t=arrays.arrays(np.int64, st.integers(0, 60), elements=st.integers(-50, 800)),
    columns=st.integers(1, 3), start=st.integers(-20, 300), length=st.integers(1, 400), data=st.data(),
)  # fmt: skip
def test_a_bin_holds_the_mean_of_what_is_known_in_it(
    t: NDArray[np.int64], columns: int, start: int, length: int, data: st.DataObject
) -> None:
    values = data.draw(arrays.arrays(np.float64, (len(t), columns), elements=entries))
    grid = bin_means(t, values, start, start + length)
    for b in range(BINS):
        inside = [i for i in range(len(t)) if start <= t[i] < start + length and (t[i] - start) * BINS // length == b]
        for d in range(columns):
            known = [values[i, d] for i in inside if np.isfinite(values[i, d])]
            assert grid.mask()[b, d] == bool(known)
            assert grid.values[b, d] == pytest.approx(np.mean(known) if known else 0.0, rel=1e-6, abs=1e-3)
        assert grid.valid[b] == grid.mask()[b].any()


def test_what_overflows_is_masked_and_not_infinite() -> None:
    grid = bin_means(np.array([0, 0, 63]), np.array([[1e308], [1e308], [1e60]]), 0, 64)
    assert not grid.valid.any() and not grid.values.any()


def test_an_interval_without_length_is_refused() -> None:
    with pytest.raises(ValueError, match="ends after its start"):
        bin_means(np.array([5]), np.ones((1, 1)), 7, 7)


# ---- causality -------------------------------------------------------------------------------------------------------


@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 999), at_ns=st.integers(T0 + 3 * S, T0 + 8 * S - 1))
def test_nothing_captured_at_the_end_of_the_interval_or_later_changes_a_bit(seed: int, at_ns: int) -> None:
    past = clip(seed)
    changed = spliced(past, clip(seed + 1000, seconds=9), at_ns)
    before, after = (grids(c, rig(), T0 + S, at_ns, encoder) for c in (past, changed))
    assert all(same(before[s], after[s]) for s in STREAMS)


@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 999), at_ns=st.integers(T0 + 3 * S, T0 + 7 * S))  # a second at least is left to differ in
def test_a_bin_tells_nothing_that_came_after_it(seed: int, at_ns: int) -> None:
    start_ns, end_ns, past = T0 + S, T0 + 8 * S, clip(seed)
    changed = spliced(past, clip(seed + 1000), at_ns)
    before, after = (grids(c, rig(), start_ns, end_ns, encoder) for c in (past, changed))
    over = slice(0, (at_ns - start_ns) * BINS // (end_ns - start_ns))
    assert all(same(before[s], after[s], over) for s in STREAMS)
    assert not any(same(before[s], after[s]) for s in STREAMS)


# ---- samples to streams ----------------------------------------------------------------------------------------------


def test_a_recorded_clip_and_the_rolling_buffer_give_the_same_grids() -> None:
    samples, buffer = clip(3), RollingBuffer()
    for sample in samples:
        buffer.add(sample)
    start_ns, end_ns = T0 + 2 * S, T0 + 8 * S
    snapshot = buffer.snapshot(end_ns - 1)
    held = [s for label in HZ for s in snapshot.window(label, start_ns - HISTORY_NS, end_ns - 1)]
    live, recorded = (grids(c, rig(), start_ns, end_ns, encoder) for c in (held, samples))
    assert list(live) == list(STREAMS)
    for stream, width in STREAMS.items():
        assert same(live[stream], recorded[stream]) and live[stream].values.shape == (BINS, width)
        assert live[stream].valid.mean() > 0.4 and live[stream].values.dtype == np.float32


def test_streams_that_are_not_there_are_masked() -> None:
    full = grids(clip(1), rig(), T0, T0 + 8 * S, encoder)
    assert all(not g.valid.any() and not g.values.any() for g in grids([], rig(), T0, T0 + S, encoder).values())
    gone = {"imu": Kind.IMU, "gaze": Kind.GAZE, "hands": Kind.HANDS, "trajectory": Kind.POSE}
    for stream, kind in gone.items():
        rest = grids([s for s in clip(1) if s.stream.kind is not kind], rig(), T0, T0 + 8 * S, encoder)
        assert not rest[stream].valid.any()
        assert all(same(rest[s], full[s]) for s in STREAMS if s != stream)
    assert not grids(clip(1), rig(), T0, T0 + 8 * S, None)["imu"].valid.any()


def test_one_sensor_of_two_leaves_the_other_ones_features_unknown() -> None:
    without = [s for s in clip(1) if s.stream.label not in ("imu-right", "mag0")]
    grid = grids(without, rig(), T0, T0 + 8 * S, encoder)
    imu, magbaro = grid["imu"], grid["magbaro"]
    assert imu.mask()[imu.valid, :512].all() and not imu.mask()[:, 512:].any()
    assert magbaro.valid.any() and not magbaro.mask()[:, :6].any()


def test_the_first_half_of_imu_is_of_1202_1_whichever_side_that_is_on() -> None:
    left_only = [s for s in clip(1) if s.stream.label == "imu-left"]
    halves = [grids(left_only, rig(g), T0, T0 + 8 * S, encoder)["imu"].mask().any(axis=0) for g in (1, 2)]
    assert halves[0].tolist() == [False] * 512 + [True] * 512 and halves[1].tolist() == [True] * 512 + [False] * 512


def test_broken_and_late_samples_are_left_out_as_the_buffer_leaves_them_out() -> None:
    samples = clip(2)
    mag = next(s for s in samples if s.stream.kind is Kind.MAG and s.device_ns > T0 + 2 * S)
    nan = dataclasses.replace(mag, payload=MagBatch(np.array([mag.device_ns + 1]), np.full((1, 3), np.nan)))
    late = dataclasses.replace(mag, payload=MagBatch(np.array([T0 + S]), np.ones((1, 3))))
    blind = Sample(Stream("eyegaze", Kind.GAZE), mag.device_ns, mag.host_ns, Gaze(np.nan, 0, None, 0, 0, 0, 0))
    at = samples.index(mag) + 1
    worse = [*samples[:at], nan, late, blind, *samples[at:]]
    plain, got = (grids(c, rig(), T0, T0 + 8 * S, encoder) for c in (samples, worse))
    assert all(same(plain[s], got[s]) for s in STREAMS)


def test_of_two_streams_of_poses_the_one_with_the_most_readings_is_used() -> None:
    samples = clip(4)
    slow = [
        dataclasses.replace(s, stream=Stream("vio-slow", Kind.POSE)) for s in clip(5) if s.stream.kind is Kind.POSE
    ]  # fmt: skip
    plain, both = (grids(c, rig(), T0, T0 + 8 * S, None) for c in (samples, [*slow[::2], *samples]))
    assert same(plain["trajectory"], both["trajectory"])


# ---- IMU windows -----------------------------------------------------------------------------------------------------


def imu(hz: float, seconds: float, signal: Callable[[F64], F64], start_ns: int = T0) -> ImuBatch:
    t = np.arange(int(seconds * hz)) / hz
    axes = np.stack([signal(t) * k for k in (1, 2, 3, 4, 5, 6)], axis=1)
    return ImuBatch(start_ns + np.round(t * S).astype(np.int64), axes[:, :3], axes[:, 3:])


def test_a_window_is_five_seconds_at_fifty_hertz_up_to_the_last_reading_of_its_bin() -> None:
    batch = imu(1000, 10, lambda t: t)
    ends, found = windows(batch, T0, T0 + 10 * S)
    edges = T0 + np.ceil(np.arange(1, BINS + 1) * 10 * S / BINS).astype(np.int64)
    last = [int(batch.device_ns[batch.device_ns < edge][-1]) for edge in edges]
    assert ends.tolist() == [t for t in last if t - T0 >= WINDOW_NS]
    assert found.shape == (len(ends), 6, LENGTH) and found.dtype == np.float32
    middles = (ends[:, None] - T0 - (np.arange(LENGTH)[::-1] + 0.5) * STEP_NS) / S
    assert np.allclose(found, middles[:, None] * np.arange(1, 7)[:, None], atol=1e-5)


def test_a_window_is_the_same_from_an_imu_of_800_or_1000_hertz_and_does_not_fold_vibration_in() -> None:
    def slow(t: F64) -> F64:
        return np.asarray(np.sin(2 * np.pi * t))

    smooth = windows(imu(1000, 6, slow), T0, T0 + 6 * S)[1][-1]
    other = windows(imu(800, 6, slow), T0, T0 + 6 * S)[1][-1]
    shaken = windows(imu(1000, 6, lambda t: slow(t) + np.sin(2 * np.pi * 150 * t)), T0, T0 + 6 * S)[1][-1]
    assert np.abs(smooth - other).max() < 0.02 * 6  # their last readings are a quarter of a millisecond apart
    assert np.abs(smooth - shaken)[0].max() < 0.03


@pytest.mark.parametrize(("gap_ms", "count"), [(99, 33), (102, 7)])
def test_windows_over_a_gap_of_a_tenth_of_a_second_are_not_used(gap_ms: int, count: int) -> None:
    batch = imu(1000, 10, np.ones_like)
    keep = (batch.device_ns < T0 + 4 * S) | (batch.device_ns >= T0 + 4 * S + gap_ms * MS)
    holed = ImuBatch(batch.device_ns[keep], batch.accel_msec2[keep], batch.gyro_radsec[keep])
    ends, found = windows(holed, T0, T0 + 10 * S)
    assert len(ends) in (count - 1, count)
    assert np.allclose(found[:, 0], 1.0, atol=1e-6)


def test_readings_before_the_interval_fill_its_first_windows() -> None:
    batch = imu(200, 10, np.cos)
    assert len(windows(batch, T0 + 6 * S, T0 + 9 * S)[0]) == BINS


def test_a_reading_that_no_imu_can_give_spoils_no_window_but_is_a_gap() -> None:
    batch = imu(1000, 6, np.ones_like)
    batch.accel_msec2[100] = 1e300
    assert np.allclose(windows(batch, T0, T0 + 6 * S)[1][:, 0], 1.0, atol=1e-6)


def test_an_encoder_of_another_width_is_refused() -> None:
    batch = imu(200, 6, np.ones_like)
    with pytest.raises(ValueError, match="512"):
        imu_rows([batch, None], T0, T0 + 6 * S, lambda w: w[:, 0, :7])


# ---- the other features ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("generation", [1, 2])
def test_heading_is_clockwise_from_magnetic_north_on_either_generation(generation: int) -> None:
    glasses = rig(generation)
    calibration = glasses.magnetometer["mag0"]
    heading = np.radians([0, 90, 200, 355])
    field = np.stack([30 * np.sin(heading), np.full(4, -40.0), 30 * np.cos(heading)], axis=1)  # cpf axes, uT
    R_mag_cpf = np.array(calibration["T_device_mag"])[:3, :3].T @ glasses.T_device_cpf[:3, :3]
    raw = np.linalg.solve(calibration["rectification"], R_mag_cpf @ field.T * 1e-6).T + calibration["bias"]
    _, values = features.magnetometer(MagBatch(np.arange(4), raw), calibration, glasses.T_device_cpf)
    assert np.allclose(values[:, :3], field) and np.allclose(values[:, 3], 50)
    assert np.allclose(values[:, 4:6], np.stack([np.sin(heading), np.cos(heading)], axis=1))
    assert np.isnan(values[:, 6:]).all()


def test_an_uncalibrated_magnetometer_tells_nothing() -> None:
    _, values = features.magnetometer(MagBatch(np.arange(4), np.ones((4, 3))), None, np.eye(4))
    assert np.isnan(values).all()


def test_the_barometer_tells_climb_since_the_start_of_the_interval_and_the_rate_of_pressure() -> None:
    t = T0 + np.arange(200) * 50 * MS
    climbing = BaroBatch(t, 100_000 - 6.0 * np.arange(200) / 20, np.full(200, 31.0))
    _, values = features.barometer(climbing, T0 + 2 * S)
    assert values[40, 6] == 0
    assert values[100, 6] == pytest.approx(3 * 6.0 / (1.21 * 9.81), rel=0.01)  # 3 s at 6 Pa/s, air of 1.21 kg/m^3
    assert np.isnan(values[:20, 7]).all() and np.allclose(values[20:, 7], -6.0)
    assert (values[:, 8] == 31).all() and np.isnan(values[:, :6]).all()
    cold = features.barometer(dataclasses.replace(climbing, temperature_c=np.zeros(200)), T0)[1]
    assert np.isnan(cold[:, 8]).all()


def gaze_rows(looks: list[Gaze], generation: int = 2) -> F64:
    t = T0 + np.arange(len(looks)) * 100 * MS
    return features.gaze(t, looks, rig(generation))[1]


def plain_look(yaw: float, pitch: float, depth: float | None = 3.0) -> Gaze:
    return Gaze(yaw, pitch, depth, yaw - 0.01, yaw + 0.02, pitch - 0.03, pitch + 0.01)


@pytest.mark.parametrize("generation", [1, 2])
def test_a_look_to_the_left_and_up_is_to_the_left_and_up_in_the_upright_picture(generation: int) -> None:
    ahead, left, up = gaze_rows([plain_look(0, 0), plain_look(0.2, 0), plain_look(0, 0.2)], generation)
    assert (0 < np.stack([ahead, left, up])[:, 3:5]).all() and (np.stack([ahead, left, up])[:, 3:5] < 1).all()
    assert ahead[3] - left[3] > 0.08 and abs(ahead[4] - left[4]) < 0.05
    assert ahead[4] - up[4] > 0.08 and abs(ahead[3] - up[3]) < 0.05


def test_gaze_gives_angles_nearness_widths_and_speed() -> None:
    rows = gaze_rows([plain_look(0, 0, 0.5), plain_look(0.1, 0, None), plain_look(0.1, 0.2, 0.01)])
    assert rows[:, :2].tolist() == [[0, 0], [0.1, 0], [0.1, 0.2]]
    assert rows[0, 2] == 2 and np.isnan(rows[1, 2]) and rows[2, 2] == 10  # nothing nearer than 10 cm
    assert np.allclose(rows[:, 5:7], [0.03, 0.04])
    assert np.isnan(rows[0, 7]) and rows[1, 7] == pytest.approx(1.0)


def test_what_a_gaze_can_not_tell_is_not_known() -> None:
    on_device = Gaze(0.1, 0.1, None, 0.1, 0.1, 0.1, 0.1)
    (row,) = gaze_rows([on_device])
    assert np.isnan(row[[2, 5, 6, 7]]).all() and np.isfinite(row[[0, 1, 3, 4]]).all()
    beside = gaze_rows([plain_look(yaw, 0, 1e3) for yaw in (-1.55, -1.4, -1.2, 1.2, 1.4, 1.55)])
    assert np.isnan(beside[:, 3:5]).all()
    far = features.gaze(T0 + np.array([0, 600 * MS]), [on_device] * 2, Rig(2, {}, {}, np.eye(4)))[1]
    assert np.isnan(far[:, [3, 4, 7]]).all()


def test_a_hand_out_of_sight_has_confidence_zero_and_no_place() -> None:
    T = np.eye(4)
    T[:3, 3] = [0, 0, 1]
    right = Hand(0.9, np.zeros((21, 3)), np.array([0.1, 0.2, 1.3]), np.array([0.1, 0.3, 1.4]), None)
    _, rows = features.hands(np.array([T0, T0 + 1]), [Hands(None, right), Hands(None, None)], T)
    assert rows[0, 0] == 0 and np.isnan(rows[0, 1:10]).all()
    assert np.allclose(rows[0, 10:17], [0.9, 0.1, 0.2, 0.3, 0.1, 0.3, 0.4]) and np.isnan(rows[0, 17:]).all()
    grid = bin_means(np.array([T0, T0 + 1]), rows, T0, T0 + 64)
    assert grid.valid[:2].all() and grid.mask()[1].nonzero()[0].tolist() == [0, 10]


def walk(n: int = 50) -> PoseBatch:
    """Walking along odometry's x at 1.5 m/s with the head (cpf) upright, turning left at half a radian a second."""
    t = np.arange(n) / 50
    head = 0.5 * t  # about z, which is up
    zero = np.zeros(n)
    # cpf: x left, y up, z forward; its axes in odometry at heading 0 are y, z, x
    upright = np.tile([0.5, 0.5, 0.5, 0.5], (n, 1))
    turn = np.stack([zero, zero, np.sin(head / 2), np.cos(head / 2)], axis=1)
    return PoseBatch(
        T0 + np.round(t * S).astype(np.int64), np.stack([1.5 * t, zero, zero + 1.7], axis=1), product(turn, upright),
        np.tile([1.5, 0.0, 0.0], (n, 1)), np.tile([0.0, 0.5, 0.0], (n, 1)), np.array([0.0, 0.0, -9.81]), np.ones(n),
        causal=True,
    )  # fmt: skip


def product(a: F64, b: F64) -> F64:
    """Of quaternions xyzw [N, 4]."""
    av, aw, bv, bw = a[:, :3], a[:, 3:], b[:, :3], b[:, 3:]
    return np.hstack([aw * bv + bw * av + np.cross(av, bv), aw * bw - np.sum(av * bv, axis=1, keepdims=True)])


def test_a_trajectory_is_told_in_the_axes_of_the_head() -> None:
    _, rows = features.trajectory(walk(), np.eye(4), T0)
    t = np.arange(50) / 50
    assert np.allclose(rows[:, 0:3], np.stack([0 * t, 0 * t, 1.5 * t], axis=1))
    assert np.allclose(rows[0, 3:9], [1, 0, 0, 0, 1, 0])
    assert np.allclose(rows[:, 3:6], np.stack([np.cos(0.5 * t), 0 * t, -np.sin(0.5 * t)], axis=1))
    assert np.allclose(rows[:, 9:12], 1.5 * np.stack([-np.sin(0.5 * t), 0 * t, np.cos(0.5 * t)], axis=1))
    assert np.allclose(rows[:, 12:15], [0, 0.5, 0]) and np.allclose(rows[:, 15:18], [0, -9.81, 0])


def test_the_velocity_of_the_eyes_is_the_change_of_their_place() -> None:
    T = rig().T_device_cpf
    _, rows = features.trajectory(walk(), T, T0)
    turns = np.stack([rows[:, 3:6], rows[:, 6:9], np.cross(rows[:, 3:6], rows[:, 6:9])], axis=2)
    velocity = (turns @ rows[:, 9:12, None])[:, :, 0]  # in the axes of the first pose
    assert np.allclose(np.gradient(rows[:, 0:3], 0.02, axis=0)[1:-1], velocity[1:-1], atol=1e-4)


@given(seed=st.integers(0, 10_000))
def test_a_trajectory_does_not_depend_on_where_odometry_began(seed: int) -> None:
    rng = np.random.default_rng(seed)
    plain, turn, shift = walk(20), quaternions(rng, 1), rng.normal(0, 100, 3)

    def turned(v: F64) -> F64:
        axis, w = turn[:, :3], turn[:, 3:]
        return np.asarray(v + 2 * np.cross(axis, np.cross(axis, v) + w * v))

    moved = dataclasses.replace(
        plain, position_m=turned(plain.position_m) + shift, velocity_msec=turned(plain.velocity_msec),
        quaternion_xyzw=product(np.repeat(turn, 20, axis=0), plain.quaternion_xyzw),
        gravity_msec2=turned(plain.gravity_msec2[None])[0],
    )  # fmt: skip
    (_, a), (_, b) = (features.trajectory(p, rig().T_device_cpf, T0) for p in (plain, moved))
    assert np.allclose(a, b, atol=1e-9)


def test_poses_that_vio_itself_does_not_trust_are_left_out() -> None:
    poses = walk(10)
    poses.quality[:3] = 0
    t, rows = features.trajectory(poses, np.eye(4), T0)
    assert len(t) == 7 and not rows[0, :3].any()


# ---- statistics ------------------------------------------------------------------------------------------------------


def statistics(seed: int = 0) -> Statistics:
    rng = np.random.default_rng(seed)
    mean = {s: rng.normal(size=d).astype(np.float32) for s, d in STREAMS.items()}
    return Statistics(mean, {s: rng.uniform(0.1, 3, d).astype(np.float32) for s, d in STREAMS.items()})


def test_what_is_normalised_is_zero_where_it_is_not_known() -> None:
    grid, stats = grids(clip(6), rig(), T0, T0 + 8 * S, encoder), statistics()
    for stream, normal in stats.apply(grid).items():
        raw = grid[stream]
        expected = (raw.values - stats.mean[stream]) / stats.std[stream]
        assert np.array_equal(normal.values, np.where(raw.mask(), expected, 0))
        assert np.array_equal(normal.valid, raw.valid)
        assert np.array_equal(normal.mask(), raw.mask())
    assert not (grid["hands"].mask() == grid["hands"].valid[:, None]).all()


def test_statistics_survive_being_written_and_read() -> None:
    stats = statistics()
    back = Statistics.from_json(json.loads(json.dumps(stats.to_json())))
    for stream in STREAMS:
        assert np.array_equal(back.mean[stream], stats.mean[stream])
        assert np.array_equal(back.std[stream], stats.std[stream])


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda d: [], '"mean" and "std"'),
        (lambda d: {"mean": d["mean"]}, '"mean" and "std"'),
        (lambda d: {**d, "mean": 3}, "expected the streams imu, magbaro"),
        (lambda d: {**d, "std": {k: v for k, v in d["std"].items() if k != "gaze"}}, "expected the streams"),
        (lambda d: {**d, "std": {**d["std"], "gaze": [1.0] * 7}}, "std of gaze: expected 8 numbers, got 7"),
        (lambda d: {**d, "std": {**d["std"], "gaze": None}}, "expected 8 numbers, got NoneType"),
        (lambda d: {**d, "std": {**d["std"], "gaze": [1.0] * 7 + [0.0]}}, "above 0"),
        (lambda d: {**d, "mean": {**d["mean"], "gaze": [float("nan")] * 8}}, "finite"),
        (lambda d: {**d, "mean": {**d["mean"], "gaze": [1e300] * 8}}, "finite"),
        (lambda d: {**d, "mean": {**d["mean"], "gaze": [10**400] * 8}}, "finite"),
        (lambda d: {**d, "mean": {**d["mean"], "gaze": ["1"] * 8}}, "finite"),
    ],
)
def test_statistics_that_do_not_fit_are_refused_in_one_line(damage: Any, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        Statistics.from_json(damage(statistics().to_json()))
    assert "\n" not in str(caught.value)


# ---- real recordings -------------------------------------------------------------------------------------------------


def recording(name: str, laps: int) -> tuple[Rig, list[Sample]]:
    if not (ARIA / name).is_file():
        pytest.skip("real recordings (../shared/data/aria) aren't here")
    pytest.importorskip("projectaria_tools")

    async def read() -> tuple[Rig, list[Sample]]:
        async with open_source(f"vrs:{ARIA / name}?loop={laps}", DecodePlan(stereo_hz=0.0)) as source:
            return source.info.rig, [s async for s in source.samples() if not isinstance(s.payload, Notice)]

    return run_virtual(read())


@pytest.mark.parametrize(
    ("name", "streams"),
    [
        ("gen1/bedroom_profile9.vrs", {"magbaro"}),
        ("gen2/corridor_profile8.vrs", {"magbaro", "gaze", "hands", "trajectory"}),
    ],
)
def test_a_real_recording_fills_the_grid_with_what_it_has(name: str, streams: set[str]) -> None:
    glasses, samples = recording(name, 1)
    times = [s.device_ns for s in samples if s.stream.kind is Kind.IMU]
    grid = grids(samples, glasses, min(times), max(times) + 1, encoder)
    assert {s for s, g in grid.items() if g.valid.any()} == streams
    field = grid["magbaro"]
    assert (10 < field.values[field.mask()[:, 3], 3]).all() and (field.values[field.mask()[:, 3], 3] < 120).all()
    if "trajectory" in streams:
        down = grid["trajectory"].values[grid["trajectory"].valid, 15:]
        assert np.allclose(np.linalg.norm(down, axis=1), 9.81, atol=0.05) and (down[:, 1] < -5).all()


def test_a_real_imu_makes_windows_when_it_runs_for_five_seconds() -> None:
    glasses, samples = recording("gen1/bedroom_profile9.vrs", 15)
    times = [s.device_ns for s in samples if s.stream.kind is Kind.IMU]
    seen: list[F32] = []

    def watching(found: F32) -> F32:
        seen.append(found)
        return encoder(found)

    grid = grids(samples, glasses, min(times), max(times) + 1, watching)["imu"]
    assert grid.valid[-1] and not grid.valid[0]
    assert np.allclose(np.linalg.norm(seen[0][:, :3], axis=1).mean(), 9.81, atol=0.5)
