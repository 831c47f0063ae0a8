from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from world_looks import Batches, corridor, truth, walked

from handrail.runtime.reflex.attitude import GRAVITY_MSEC2, AttitudeFilter, rotation, rotations
from handrail.streams.samples import ImuBatch
from handrail.streams.world.scenario import load_rig
from handrail.streams.world.truth import Truth

F64 = NDArray[np.float64]
RIG = load_rig(2)
MAIN, OTHER = "imu-left", "imu-right"


def readings(force: F64, rate: F64, hz: float = 800.0, label: str = MAIN, start_ns: int = 0) -> ImuBatch:
    """Raw readings [N] of device-frame specific force and rate, as an IMU at the device origin gives them, ideal but
    for a noise that is too small to matter."""
    c = RIG.imus[label]
    R = c.T_device_imu[:3, :3]
    accel = np.linalg.solve(c.accel_rectification, (force @ R).T).T + c.accel_bias
    gyro = np.linalg.solve(c.gyro_rectification, (rate @ R).T).T + c.gyro_bias
    ns = start_ns + np.round(np.arange(len(force)) / hz * 1e9).astype(np.int64)
    return ImuBatch(ns, accel + 1e-10 * np.random.default_rng(0).standard_normal(accel.shape), gyro)


def standing(seconds: float, R_level_device: F64, rate: F64 | None = None) -> tuple[F64, F64]:
    n = int(seconds * 800)
    up = R_level_device.T @ np.array([0.0, 0.0, GRAVITY_MSEC2])
    return np.tile(up, (n, 1)), np.tile(np.zeros(3) if rate is None else rate, (n, 1))


def part(batch: ImuBatch, which: slice) -> ImuBatch:
    return ImuBatch(batch.device_ns[which], batch.accel_msec2[which], batch.gyro_radsec[which])


def tilt_deg(truth: Truth, device_ns: int, R_level_device: F64) -> float:
    up = truth.pose_at(device_ns).T_world_device[2, :3]
    return math.degrees(math.acos(min(1.0, float(up @ R_level_device[2]))))


def tilts_deg(imu: Batches, truth: Truth, rig_gen: int = 2) -> tuple[F64, F64]:
    """Tilt error and its stated one sigma, degrees, ten times a second."""
    f = AttitudeFilter(load_rig(rig_gen))
    errors, stated = [], []
    at_ns = truth.first_device_ns + 300_000_000
    for label, batch in imu:
        f.update(label, batch)
        if batch.device_ns[-1] > at_ns + 12_000_000:
            a = f.at(at_ns)
            assert a is not None
            errors.append(tilt_deg(truth, at_ns, a.R_level_device))
            stated.append(math.degrees(a.tilt_sd_rad))
            at_ns += 100_000_000
    return np.array(errors), np.array(stated)


@pytest.mark.parametrize(
    ("seed", "kind", "gen"),
    [(2, "head-turn", 2), (3, "dusk", 2), (1, "textured", 2), (12, "head-turn", 1), (13, "mixed", 1)],
)
def test_gravity_is_known_while_walking_without_any_camera(seed: int, kind: str, gen: int) -> None:
    errors, stated = tilts_deg(walked(seed, kind, 15.0, gen, stereo_hz=0.0).imu, truth(seed, kind, 15.0, gen), gen)
    assert len(errors) > 60
    later = errors[20:]
    assert math.sqrt(np.mean(later**2)) < 1.3
    assert later.max() < 2.5
    assert (later < 5 * stated[20:]).mean() > 0.95


def test_at_rest_the_first_attitude_is_there_after_a_tenth_of_a_second_and_right() -> None:
    R = rotation(np.array([0.2, -0.3, 0.0]))
    f = AttitudeFilter(RIG)
    f.update(MAIN, readings(*standing(0.2, R)))
    a = f.at(150_000_000)
    assert a is not None
    assert a.R_level_device[2] @ R[2] == pytest.approx(1.0, abs=1e-6)
    assert a.tilt_sd_rad < 0.02
    nose = a.R_level_device @ RIG.T_device_cpf[:3, 2]
    assert math.atan2(nose[1], nose[0]) == pytest.approx(0.0, abs=1e-9)  # level x is where the nose points


def test_before_any_reading_and_long_after_the_last_there_is_no_attitude() -> None:
    f = AttitudeFilter(RIG)
    assert f.at(0) is None
    f.update(MAIN, readings(*standing(0.5, np.eye(3))))
    assert f.at(500_000_000) is not None
    assert f.at(700_000_000) is None


def test_a_turn_is_followed_and_its_rate_told() -> None:
    rate = np.array([0.0, 0.0, 1.5])  # about device z while up is device z
    f = AttitudeFilter(RIG)
    still, turning = standing(0.5, np.eye(3)), standing(1.0, np.eye(3), rate)
    f.update(MAIN, readings(np.vstack([still[0], turning[0]]), np.vstack([still[1], turning[1]])))
    before, after = f.at(490_000_000), f.at(1_490_000_000)
    assert before is not None and after is not None
    turned = before.R_gyro_device.T @ after.R_gyro_device
    assert math.atan2(turned[1, 0], turned[0, 0]) == pytest.approx(1.5 * (1.0 - 0.01), abs=0.01)
    assert np.allclose(after.angular_velocity_radsec, rate, atol=0.01)


def test_setting_off_from_rest_does_not_tilt_the_world() -> None:
    """1 m/s^2 for a second looks like 6 degrees of tilt to an accelerometer, and leaves |f| as it was."""
    still, walking = standing(2.0, np.eye(3)), standing(1.0, np.eye(3))
    walking[0][:, 0] += 1.0
    f = AttitudeFilter(RIG)
    f.update(MAIN, readings(np.vstack([still[0], walking[0]]), np.vstack([still[1], walking[1]])))
    a = f.at(2_990_000_000)
    assert a is not None
    assert math.degrees(math.acos(a.R_level_device[2, 2])) < 1.0


def test_many_rotations_at_once_are_the_same_rotations() -> None:
    vectors = np.vstack([np.random.default_rng(0).normal(size=(40, 3)), np.zeros(3), [1e-13, 0.0, 0.0], [0, 0, 7.0]])
    np.testing.assert_allclose(rotations(vectors), [rotation(v) for v in vectors], atol=1e-12)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(1, 120), min_size=1, max_size=20))
def test_how_readings_are_batched_changes_nothing(sizes: list[int]) -> None:
    rng = np.random.default_rng(7)
    force, rate = standing(0.6, rotation(np.array([0.1, 0.2, 0.0])))
    batch = readings(force + rng.normal(0, 0.5, force.shape), rate + rng.normal(0, 0.5, rate.shape))
    whole, pieces = AttitudeFilter(RIG), AttitudeFilter(RIG)
    whole.update(MAIN, batch)
    start = 0
    for size in [*sizes, len(force)]:
        if start < len(force):
            pieces.update(MAIN, part(batch, slice(start, start + size)))
            start += size
    a, b = whole.at(580_000_000), pieces.at(580_000_000)
    assert a is not None and b is not None
    assert np.array_equal(a.R_level_device, b.R_level_device)
    assert a.tilt_sd_rad == b.tilt_sd_rad


@pytest.mark.parametrize("broken", [np.nan, np.inf, 500.0])
def test_broken_readings_are_left_out(broken: float) -> None:
    R = rotation(np.array([0.0, 0.3, 0.0]))
    batch = readings(*standing(1.0, R))
    batch.accel_msec2[100:110, 1] = broken
    batch.gyro_radsec[300:305, 2] = broken
    f = AttitudeFilter(RIG)
    f.update(MAIN, batch)
    a = f.at(950_000_000)
    assert a is not None and np.isfinite(a.R_level_device).all()
    assert a.R_level_device[2] @ R[2] == pytest.approx(1.0, abs=1e-5)


def test_missing_timestamps_and_repeated_batches_are_left_out() -> None:
    batch = readings(*standing(0.5, np.eye(3)))
    once, twice = AttitudeFilter(RIG), AttitudeFilter(RIG)
    once.update(MAIN, batch)
    twice.update(MAIN, ImuBatch(np.full(10, -1), batch.accel_msec2[:10] * 3, batch.gyro_radsec[:10]))
    twice.update(MAIN, batch)
    twice.update(MAIN, batch)
    a, b = once.at(480_000_000), twice.at(480_000_000)
    assert a is not None and b is not None
    assert np.array_equal(a.R_level_device, b.R_level_device)


def test_the_other_imu_takes_over_when_the_main_one_falls_silent() -> None:
    R = rotation(np.array([0.0, 0.3, 0.0]))
    f = AttitudeFilter(RIG)
    main, other = readings(*standing(0.5, R)), readings(*standing(1.5, R), label=OTHER)
    for start in range(0, 1200, 8):
        f.update(MAIN, part(main, slice(start, start + 8)))
        f.update(OTHER, part(other, slice(start, start + 8)))
    a = f.at(1_490_000_000)
    assert a is not None
    assert a.imu_label == OTHER
    assert a.R_level_device[2] @ R[2] == pytest.approx(1.0, abs=1e-4)


def stuck(batch: ImuBatch, from_reading: int) -> ImuBatch:
    accel, gyro = batch.accel_msec2.copy(), batch.gyro_radsec.copy()
    accel[from_reading:], gyro[from_reading:] = accel[from_reading], gyro[from_reading]
    return ImuBatch(batch.device_ns, accel, gyro)


@pytest.mark.parametrize("size", [1, 8])
def test_an_imu_that_repeats_itself_tells_no_attitude(size: int) -> None:
    f = AttitudeFilter(RIG)
    batch = stuck(readings(*standing(1.0, np.eye(3))), 400)
    for start in range(0, 800, size):
        f.update(MAIN, part(batch, slice(start, start + size)))
    assert f.at(490_000_000) is not None
    assert f.at(600_000_000) is None


@pytest.mark.parametrize("size", [8, 80, 600], ids=["10 ms", "a look", "frames were missing"])
@pytest.mark.parametrize("spoilt", ["stuck", "saturated"])
def test_the_other_imu_takes_over_from_a_main_one_that_tells_nonsense(spoilt: str, size: int) -> None:
    R = rotation(np.array([0.0, 0.3, 0.0]))
    f = AttitudeFilter(RIG)
    main, other = readings(*standing(1.5, R)), readings(*standing(1.5, R), label=OTHER)
    if spoilt == "stuck":
        main = stuck(main, 400)
    else:
        main.accel_msec2[400:] = 156.9
    for start in range(0, 1200, size):
        f.update(MAIN, part(main, slice(start, start + size)))
        f.update(OTHER, part(other, slice(start, start + size)))
    a = f.at(1_490_000_000)
    assert a is not None
    assert a.imu_label == OTHER
    assert a.R_level_device[2] @ R[2] == pytest.approx(1.0, abs=1e-4)


def test_an_unknown_imu_is_ignored() -> None:
    f = AttitudeFilter(RIG)
    f.update("imu-tail", readings(*standing(0.5, np.eye(3))))
    assert f.at(400_000_000) is None


def test_a_gap_of_a_second_finds_the_tilt_anew_and_keeps_the_heading() -> None:
    turned = rotation(np.array([0.0, 0.0, 0.5]))
    rate = np.array([0.0, 0.0, 1.0])
    first, turning = standing(0.5, np.eye(3)), standing(0.5, np.eye(3), rate)
    f = AttitudeFilter(RIG)
    f.update(MAIN, readings(np.vstack([first[0], turning[0]]), np.vstack([first[1], turning[1]])))
    f.update(MAIN, readings(*standing(0.5, turned), start_ns=4_000_000_000))
    assert f.at(2_000_000_000) is None
    a = f.at(4_400_000_000)
    assert a is not None
    nose = a.R_level_device @ RIG.T_device_cpf[:3, 2]
    assert math.atan2(nose[1], nose[0]) == pytest.approx(0.5, abs=0.03)


def test_reset_starts_a_new_level_frame() -> None:
    f = AttitudeFilter(RIG)
    f.update(MAIN, readings(*standing(0.5, np.eye(3), np.array([0.0, 0.0, 1.0]))))
    f.reset()
    assert f.at(400_000_000) is None
    f.update(MAIN, readings(*standing(0.5, np.eye(3))))  # earlier than before: time has jumped
    assert f.at(400_000_000) is not None


def test_what_cameras_saw_mends_the_tilt_and_nonsense_does_not() -> None:
    """0.3 m/s^2 to level x that the cameras didn't see: the frame leans by 1.75 degrees."""
    f = AttitudeFilter(RIG)
    force, rate = standing(0.3, np.eye(3))
    shaken = force + np.random.default_rng(3).normal(0, 1.0, force.shape)  # walking: the tilt is uncertain
    f.update(MAIN, readings(shaken, rate))
    before = attitude_after(f, force, rate, 300_000_000)
    lean = before.T @ np.array([0.3, 0.0, GRAVITY_MSEC2])
    f.aid(np.array([0.3, 0.0]), 0.05)
    mended = attitude_after(f, force, rate, 320_000_000)
    assert abs((mended @ lean)[0]) < 0.15
    assert abs((mended @ lean)[1]) < 0.05
    f.aid(np.array([8.0, 0.0]), 0.05)
    assert np.allclose(attitude_after(f, force, rate, 340_000_000), mended, atol=0.002)


def attitude_after(f: AttitudeFilter, force: F64, rate: F64, start_ns: int) -> F64:
    """R_level_device once the next 12 ms have been taken in."""
    f.update(MAIN, readings(force[:10], rate[:10], start_ns=start_ns))
    a = f.at(start_ns + 11_000_000)
    assert a is not None
    return a.R_level_device


def test_the_real_corridors_gravity_agrees_with_its_vio() -> None:
    walk = corridor()
    f = AttitudeFilter(walk.rig)
    for label, batch in walk.imu:
        f.update(label, batch)
    poses = max(walk.poses, key=lambda p: int(p.device_ns[-1]))
    a = f.at(int(poses.device_ns[-1]))
    assert a is not None
    x, y, z, w = poses.quaternion_xyzw[-1]
    up = np.array([2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)])  # in the device frame
    assert math.degrees(math.acos(float(up @ a.R_level_device[2]))) < 3.0  # a third of a second in a fast turn
    assert np.allclose(a.angular_velocity_radsec, poses.angular_velocity_radsec[-1], atol=0.15)
