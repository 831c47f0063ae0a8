"""The path is smooth, keeps its bounds, and is what the IMU feels."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from handrail.streams.cameras import ImuCalibration
from handrail.streams.clock import run_virtual
from handrail.streams.samples import ImuBatch
from handrail.streams.source import DecodePlan
from handrail.streams.world import inertial
from handrail.streams.world.options import KINDS, parse_options
from handrail.streams.world.scenario import load_rig, scenario, walk_s
from handrail.streams.world.source import open_world
from handrail.streams.world.walk import F64, Walk, make_walk

SEEDS = st.integers(0, 10_000).map(str)
COUNT_ONLY = DecodePlan(stereo_hz=0.0)


def _felt(walk: Walk, T_cpf_imu: F64, t: F64) -> tuple[F64, F64]:
    h = inertial.STEP_S
    before, at, after = (walk.T_world_cpf(t + step) @ T_cpf_imu for step in (-h, 0.0, h))
    return inertial.motion((before, at, after))


def _turned(R: F64, rate: F64, dt: float) -> F64:
    """R after turning at ``rate`` (rad/s, own axes) for ``dt``: Rodrigues' formula."""
    angle = float(np.linalg.norm(rate)) * dt
    x, y, z = rate / max(float(np.linalg.norm(rate)), 1e-12)
    K = np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]])
    return np.asarray(R @ (np.eye(3) + math.sin(angle) * K + (1 - math.cos(angle)) * K @ K))


@pytest.mark.parametrize(("seed", "kind"), [("3", "mixed"), ("8", "head-turn")])
def test_integrating_what_the_imu_feels_gives_the_path_back(seed: str, kind: str) -> None:
    world = scenario(seed, {"kind": kind})
    T_cpf_imu = np.linalg.inv(world.rig.T_device_cpf) @ world.rig.imus["imu-left"].T_device_imu
    dt, seconds = 1 / 800, 10.0
    middles = np.arange(0, seconds, dt) + dt / 2
    force, rate = _felt(world.walk, T_cpf_imu, middles)
    T = world.walk.T_world_cpf(np.array([0.0, -1e-5, 1e-5, seconds])) @ T_cpf_imu
    R, p, v = T[0, :3, :3], T[0, :3, 3], (T[2, :3, 3] - T[1, :3, 3]) / 2e-5
    for f, w in zip(force, rate, strict=True):
        acceleration = _turned(R, w, dt / 2) @ f - [0.0, 0.0, inertial.GRAVITY_MSEC2]
        p = p + v * dt + acceleration * dt * dt / 2
        v = v + acceleration * dt
        R = _turned(R, w, dt)
    assert np.linalg.norm(p - T[3, :3, 3]) < 0.005  # of about 10 m
    assert math.acos(min(1.0, (np.trace(R.T @ T[3, :3, :3]) - 1) / 2)) < math.radians(0.02)


def test_raw_readings_become_true_ones_through_the_rig() -> None:
    """Also the other way round: without the calibration they are off by more than the stated error of its bias."""

    async def readings(label: str) -> tuple[F64, F64, F64, ImuCalibration]:
        async with open_world("3", COUNT_ONLY, {"gen": "1", "seconds": "8"}) as world:
            batches = [s.payload async for s in world.captured() if s.stream.label == label]
            imu = [b for b in batches if isinstance(b, ImuBatch)]
            ns = np.concatenate([b.device_ns for b in imu])
            return (
                np.array([walk_s(int(n)) for n in ns]),
                np.concatenate([b.accel_msec2 for b in imu]),
                np.concatenate([b.gyro_radsec for b in imu]),
                world.info.rig.imus[label],
            )

    for label in ("imu-left", "imu-right"):
        t, accel, gyro, calibration = run_virtual(readings(label))
        walk = scenario("3", {"gen": "1", "seconds": "8"}).walk
        T_cpf_imu = np.linalg.inv(load_rig(1).T_device_cpf) @ calibration.T_device_imu
        R_device_imu = calibration.T_device_imu[:3, :3]
        force, rate = (x @ R_device_imu.T for x in _felt(walk, T_cpf_imu, t))
        accel_device, gyro_device = calibration.to_device(accel, gyro)
        assert np.abs((gyro_device - rate).mean(axis=0)).max() < 4 * 0.0015
        assert np.std(gyro_device - rate, axis=0).max() < 0.003
        assert np.abs((accel_device - force).mean(axis=0)).max() < 4 * 0.03
        uncalibrated = np.linalg.norm((accel @ R_device_imu.T - force).mean(axis=0))
        assert uncalibrated > np.linalg.norm((accel_device - force).mean(axis=0))


@settings(max_examples=40, deadline=None)
@given(SEEDS, st.sampled_from(KINDS), st.integers(2, 45))
def test_the_head_keeps_its_bounds(seed: str, kind: str, pitch: int) -> None:
    walk = make_walk(parse_options(seed, {"kind": kind, "pitch": str(pitch)}))
    t = np.arange(0, 20, 0.01)
    T = walk.T_world_cpf(t)
    nose_pitch = np.degrees(np.arcsin(T[:, 2, 2]))
    assert np.abs(nose_pitch).max() <= pitch
    yaw = np.degrees(np.arctan2(T[:, 1, 2], T[:, 0, 2]))
    assert np.abs(yaw).max() < 62
    assert 1.4 < T[:, 2, 3].min() <= T[:, 2, 3].max() < 1.85
    assert 0.8 <= walk.speed_msec <= 1.4
    assert np.allclose(T[:, :3, :3] @ T[:, :3, :3].transpose(0, 2, 1), np.eye(3), atol=1e-12)


@settings(max_examples=20, deadline=None)
@given(SEEDS)
def test_head_turn_looks_far_to_both_sides_and_walks_straight_on(seed: str) -> None:
    walk = make_walk(parse_options(seed, {"kind": "head-turn"}))
    t = np.arange(0, 20, 0.01)
    T = walk.T_world_cpf(t)
    yaw = np.degrees(np.arctan2(T[:, 1, 2], T[:, 0, 2]))
    assert yaw.max() > 54 and yaw.min() < -54
    line = np.polynomial.Polynomial.fit(T[:, 0, 3], T[:, 1, 3], 1)
    assert np.abs(T[:, 1, 3] - line(T[:, 0, 3])).max() < 0.2  # sway, and the eyes' circle about the neck


@settings(max_examples=20, deadline=None)
@given(SEEDS, st.sampled_from(KINDS))
def test_motion_has_no_kinks(seed: str, kind: str) -> None:
    """Between two readings neither force nor rate jumps by more than a head can: a kink would be felt as a blow."""
    walk = make_walk(parse_options(seed, {"kind": kind}))
    force, rate = _felt(walk, np.eye(4), np.arange(0, 20, 0.001))
    assert np.abs(np.diff(force, axis=0)).max() < 0.4
    assert np.abs(np.diff(rate, axis=0)).max() < 0.1
    assert np.abs(np.linalg.norm(force, axis=1) - inertial.GRAVITY_MSEC2).max() < 12
    assert np.linalg.norm(rate, axis=1).max() < 6


def test_steps_are_felt_at_walking_rate() -> None:
    walk = make_walk(parse_options("3", {}))
    t = np.arange(4, 20, 0.005)
    spectrum = np.abs(np.fft.rfft(walk.T_world_cpf(t)[:, 2, 3] - walk.eye_height_m))
    strongest = np.fft.rfftfreq(len(t), 0.005)[1 + spectrum[1:].argmax()]
    assert strongest == pytest.approx(walk.step_hz, abs=0.1)
    assert 1.3 < walk.step_hz < 2.1
