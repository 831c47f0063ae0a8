from __future__ import annotations

import functools
import itertools
import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
from numpy.typing import NDArray
from world_looks import Walked, corridor, true_velocity, truth, walked

from handrail.runtime.reflex.attitude import rotation
from handrail.runtime.reflex.depth import DepthView, Pose
from handrail.runtime.reflex.odometry import Odometry
from handrail.runtime.reflex.stereo import StereoDepth
from handrail.streams.samples import PoseBatch
from handrail.streams.world.truth import Truth

F64 = NDArray[np.float64]
TURNING = (22, "head-turn", 5.0)  # walks on from the start; the head turns to 60 degrees between 2 and 4 s
ARRIVES_NS = 12_000_000  # an IMU batch is there that long after its last reading


@dataclass(frozen=True)
class Step:
    pose: Pose
    view: DepthView


def looks(seed: int, kind: str, seconds: float, gen: int = 2) -> tuple[DepthView, ...]:
    return _looks(seed, kind, seconds, gen)


@functools.cache
def _looks(seed: int, kind: str, seconds: float, gen: int) -> tuple[DepthView, ...]:
    """Depth views of a walk, with the attitude that the odometry would have had."""
    walk = walked(seed, kind, seconds, gen)
    depth, odometry = StereoDepth(walk.rig), Odometry(walk.rig)
    views, fed = [], 0
    for ns, left, right in walk.pairs:
        fed = feed(odometry, walk, fed, ns)
        views.append(depth.measure(left, right, ns, odometry.attitude(ns)))
        odometry.step(ns, views[-1])
        depth.learn()
    return tuple(views)


def feed(odometry: Odometry, walk: Walked, fed: int, until_ns: int) -> int:
    while fed < len(walk.imu) and walk.imu[fed][1].device_ns[-1] <= until_ns + ARRIVES_NS:
        odometry.imu(*walk.imu[fed])
        fed += 1
    return fed


def run(
    walk: Walked, views: tuple[DepthView, ...], odometry: Odometry | None = None, blind: range = range(0),
    poses: tuple[PoseBatch, ...] = (), first: int = 0,
) -> list[Pose]:
    """Poses at each view; ``blind``: indices of frames that can't be used."""
    odometry = odometry or Odometry(walk.rig)
    fed, found = 0, []
    for k, view in enumerate(views):
        if k < first:
            continue
        fed = feed(odometry, walk, fed, view.device_ns)
        for batch in poses:
            if view.device_ns - 100_000_000 < batch.device_ns[-1] <= view.device_ns + 20_000_000:
                odometry.poses(batch)
        pose = odometry.step(view.device_ns, None if k in blind else view)
        if pose is not None:
            found.append(pose)
    return found


def to_level(truth: Truth, pose: Pose) -> F64:
    """Rotation about the vertical, level <- world, by the first pose."""
    M = pose.R_level_device @ truth.pose_at(pose.device_ns).T_world_device[:3, :3].T
    return rotation(np.array([0.0, 0.0, math.atan2(M[1, 0] - M[0, 1], M[0, 0] + M[1, 1])]))


def smooth(velocities: list[F64]) -> F64:
    """Means over 0.8 s [N - 7, 2], horizontal, as the travel heading uses."""
    v = np.array(velocities)[:, :2]
    return np.stack([np.convolve(v[:, i], np.ones(8) / 8, "valid") for i in (0, 1)], axis=1)


def vio_of(truth: Truth, times: list[int], R_vio_world: F64, shift_m: F64) -> tuple[PoseBatch, ...]:
    """What a perfect VIO would say, in a frame of its own, one batch a time."""
    batches = []
    for ns in times:
        T = truth.pose_at(ns).T_world_device
        R = R_vio_world @ T[:3, :3]
        angular = rotation_rate(truth, ns)
        batches.append(PoseBatch(
            np.array([ns]), (R_vio_world @ T[:3, 3] + shift_m)[None], quaternion(R)[None],
            (R_vio_world @ true_velocity(truth, ns))[None], angular[None], R_vio_world @ np.array([0.0, 0.0, -9.81]),
            np.ones(1), True,
        ))
    return tuple(batches)


def rotation_rate(truth: Truth, ns: int) -> F64:
    a, b = (truth.pose_at(ns + step).T_world_device[:3, :3] for step in (-1_000_000, 1_000_000))
    D = a.T @ b
    return np.array([D[2, 1] - D[1, 2], D[0, 2] - D[2, 0], D[1, 0] - D[0, 1]]) / 2 / 2e-3


def quaternion(R: F64) -> F64:
    """xyzw of a rotation that isn't near a half turn about any axis, or else by the largest diagonal term."""
    K = np.array([
        [R[0, 0] - R[1, 1] - R[2, 2], R[1, 0] + R[0, 1], R[2, 0] + R[0, 2], R[2, 1] - R[1, 2]],
        [0, R[1, 1] - R[0, 0] - R[2, 2], R[2, 1] + R[1, 2], R[0, 2] - R[2, 0]],
        [0, 0, R[2, 2] - R[0, 0] - R[1, 1], R[1, 0] - R[0, 1]],
        [0, 0, 0, R[0, 0] + R[1, 1] + R[2, 2]],
    ])
    return np.asarray(np.linalg.eigh(K + np.triu(K, 1).T)[1][:, -1])


@pytest.mark.parametrize(("seed", "kind", "seconds", "gen"), [(*TURNING, 2), (22, "head-turn", 4.0, 1)])
def test_speed_and_heading_hold_while_the_head_turns_by_60_degrees(
    seed: int, kind: str, seconds: float, gen: int
) -> None:
    t = truth(seed, kind, seconds, gen)
    poses = run(walked(seed, kind, seconds, gen), looks(seed, kind, seconds, gen))
    R = to_level(t, poses[0])
    nose = [math.degrees(t.pose_at(p.device_ns).nose_rad - t.pose_at(p.device_ns).travel_rad) for p in poses]
    assert max(np.abs(nose)) > 55
    told = [p for p in poses if p.source == "stereo"]
    assert len(told) >= len(poses) - 3
    off = np.array([p.velocity_msec - R @ true_velocity(t, p.device_ns) for p in told])
    assert math.sqrt(np.mean(np.sum(off**2, axis=1))) < 0.08
    a, b = smooth([p.velocity_msec for p in told]), smooth([R @ true_velocity(t, p.device_ns) for p in told])
    heading = np.degrees(np.arctan2(a[:, 1], a[:, 0]) - np.arctan2(b[:, 1], b[:, 0]))
    assert np.abs(heading).max() < 3.0
    assert np.sqrt(np.mean((np.linalg.norm(a, axis=1) - np.linalg.norm(b, axis=1)) ** 2)) < 0.05


def test_the_way_drifts_by_a_few_percent_and_says_so() -> None:
    t, poses = truth(*TURNING), run(walked(*TURNING), looks(*TURNING))
    R = to_level(t, poses[0])
    first, last = (t.pose_at(p.device_ns).T_world_device[:3, 3] for p in (poses[0], poses[-1]))
    way = R @ (last - first)
    drift = poses[-1].device_in_level_m - poses[0].device_in_level_m - way
    assert np.linalg.norm(way) > 3.0
    assert np.linalg.norm(drift) < 0.05 * np.linalg.norm(way)
    growth = [math.sqrt(np.trace(p.position_cov)) for p in poses]
    assert growth[-1] > growth[5] > 0
    assert np.linalg.norm(drift) < 3 * growth[-1]
    assert growth[-1] < 0.1 * np.linalg.norm(way)


def test_the_stated_uncertainty_of_speed_is_not_smaller_than_the_error() -> None:
    t, poses = truth(*TURNING), run(walked(*TURNING), looks(*TURNING))
    R = to_level(t, poses[0])
    square = []
    for p in poses[3:]:
        off = p.velocity_msec - R @ true_velocity(t, p.device_ns)
        square.append(off @ np.linalg.solve(p.velocity_cov, off) / 3)
    assert np.mean(square) < 2.0


def test_the_level_frame_begins_at_the_eyes_with_the_nose_along_x() -> None:
    walk = walked(*TURNING)
    first = run(walk, looks(*TURNING))[0]
    eyes = first.device_in_level_m + first.R_level_device @ walk.rig.T_device_cpf[:3, 3]
    assert np.linalg.norm(eyes) < 0.25  # the first attitude was up to a frame earlier
    nose = first.R_level_device @ walk.rig.T_device_cpf[:3, 2]
    assert abs(math.atan2(nose[1], nose[0])) < math.radians(5)


def test_a_short_loss_of_sight_is_bridged_by_the_imu() -> None:
    t, walk, views = truth(*TURNING), walked(*TURNING), looks(*TURNING)
    poses = run(walk, views, blind=range(15, 19))
    R = to_level(t, poses[0])
    lost = [p for p in poses if views[15].device_ns <= p.device_ns <= views[18].device_ns]
    assert [p.source for p in lost] == ["stereo"] * 4
    for p in lost:
        assert np.linalg.norm(p.velocity_msec - R @ true_velocity(t, p.device_ns)) < 0.25
    assert np.trace(lost[-1].velocity_cov) > 2 * np.trace(lost[0].velocity_cov)


def test_a_long_loss_of_sight_leaves_the_speed_unknown_and_sight_brings_it_back() -> None:
    walk, views = walked(*TURNING), looks(*TURNING)
    poses = run(walk, views, blind=range(15, 45))
    by_ns = {p.device_ns: p for p in poses}
    lost = by_ns[views[44].device_ns]
    assert lost.source == "imu"
    assert np.array_equal(lost.velocity_msec, np.zeros(3))
    assert math.sqrt(lost.velocity_cov[0, 0]) > 0.6
    assert poses[-1].source == "stereo"
    assert np.linalg.norm(poses[-1].velocity_msec) > 0.5


def test_a_pose_does_not_wait_for_its_own_frame_and_hardly_changes_by_it() -> None:
    walk, views = walked(*TURNING), looks(*TURNING)
    seen, unseen = run(walk, views[:20])[-1], run(walk, views[:20], blind=range(19, 20))[-1]
    assert np.array_equal(seen.device_in_level_m, unseen.device_in_level_m)
    seen, unseen = run(walk, views[:21])[-1], run(walk, views[:21], blind=range(19, 20))[-1]
    assert 0.0 < np.linalg.norm(seen.device_in_level_m - unseen.device_in_level_m) < 0.02, "the next one's does"


def test_left_out_rest_is_made_up_for() -> None:
    """Whether it is called matters to nobody but the wearer, who would wait."""
    walk, views = walked(*TURNING), looks(*TURNING)[:12]
    rested, left_out = Odometry(walk.rig), Odometry(walk.rig)
    for odometry in (rested, left_out):
        fed = 0
        for view in views:
            fed = feed(odometry, walk, fed, view.device_ns)
            pose = odometry.step(view.device_ns, view)
            if odometry is rested:
                odometry.rest()
        assert pose is not None
    assert pose.source == "stereo"
    both = [odometry.step(views[-1].device_ns + 1, None) for odometry in (rested, left_out)]
    assert both[0] is not None and both[1] is not None
    np.testing.assert_allclose(both[0].velocity_msec, both[1].velocity_msec, atol=0.02)


def test_without_an_imu_and_without_vio_there_is_no_pose() -> None:
    odometry = Odometry(walked(*TURNING).rig)
    assert odometry.step(looks(*TURNING)[3].device_ns, looks(*TURNING)[3]) is None
    assert odometry.attitude(0) is None


# An odd frame: turned by 2 rad, on its side, far away. And one that only stands upright.
ODD = rotation(np.array([0.3, 0.0, 0.0])) @ rotation(np.array([0.0, 0.0, 2.0]))


@pytest.mark.parametrize("R_vio_world", [ODD, rotation(np.array([0.0, 0.0, -1.0]))])
@pytest.mark.parametrize("with_imu", [True, False])
def test_vio_is_told_in_our_level_frame(R_vio_world: F64, with_imu: bool) -> None:
    t, walk, views = truth(*TURNING), walked(*TURNING), looks(*TURNING)
    vio = vio_of(t, [v.device_ns - 3_000_000 for v in views], R_vio_world, np.array([7.0, -3.0, 2.0]))
    poses = run(walk if with_imu else replace(walk, imu=()), views, poses=vio)
    assert {p.source for p in poses} == {"vio"}
    R = to_level(t, poses[0])
    for p in poses:
        T = t.pose_at(p.device_ns).T_world_device
        assert np.allclose(p.velocity_msec, R @ true_velocity(t, p.device_ns), atol=0.06)
        assert (p.R_level_device @ T[:3, :3].T)[2, 2] > math.cos(math.radians(0.5))
    nose = poses[0].R_level_device @ walk.rig.T_device_cpf[:3, 2]
    assert abs(math.atan2(nose[1], nose[0])) < math.radians(5)
    start, end = (t.pose_at(p.device_ns).T_world_device[:3, 3] for p in (poses[0], poses[-1]))
    way = R @ (end - start)
    assert np.allclose(poses[-1].device_in_level_m - poses[0].device_in_level_m, way, atol=0.05)


def test_when_vio_stops_our_own_odometry_goes_on_from_there() -> None:
    t, walk, views = truth(*TURNING), walked(*TURNING), looks(*TURNING)
    vio = vio_of(t, [v.device_ns for v in views[:20]], ODD, np.zeros(3))
    poses = run(walk, views, poses=vio)
    assert [p.source for p in poses[:15]] == ["vio"] * 15
    assert poses[-1].source == "stereo"
    R = to_level(t, poses[0])
    for before, after in itertools.pairwise(poses):
        dt = (after.device_ns - before.device_ns) / 1e9
        step = after.device_in_level_m - before.device_in_level_m
        assert np.linalg.norm(step - before.velocity_msec * dt) < 0.08
    assert np.allclose(poses[-1].velocity_msec, R @ true_velocity(t, poses[-1].device_ns), atol=0.15)
    assert abs(to_heading(poses[-1].R_level_device, R @ t.pose_at(poses[-1].device_ns).T_world_device[:3, :3])) < 0.03


def to_heading(a: F64, b: F64) -> float:
    M = a @ b.T
    return math.atan2(M[1, 0] - M[0, 1], M[0, 0] + M[1, 1])


def test_a_jump_of_vio_does_not_move_the_wearer() -> None:
    t, walk, views = truth(*TURNING), walked(*TURNING), looks(*TURNING)
    here = vio_of(t, [v.device_ns for v in views[:20]], np.eye(3), np.zeros(3))
    there = vio_of(t, [v.device_ns for v in views[20:]], np.eye(3), np.array([5.0, 2.0, 0.0]))
    poses = run(walk, views, poses=here + there)
    steps = [np.linalg.norm(b.device_in_level_m - a.device_in_level_m) for a, b in itertools.pairwise(poses)]
    assert max(steps) < 0.3


def test_poses_rated_zero_are_not_used() -> None:
    t, walk, views = truth(*TURNING), walked(*TURNING), looks(*TURNING)
    vio = vio_of(t, [v.device_ns for v in views], np.eye(3), np.zeros(3))
    poses = run(walk, views, poses=tuple(replace(b, quality=np.zeros(1)) for b in vio))
    assert "vio" not in {p.source for p in poses}


def test_after_a_seam_everything_starts_anew_and_gives_the_same_again() -> None:
    walk, views = walked(*TURNING), looks(*TURNING)
    odometry = Odometry(walk.rig)
    once = run(walk, views[:20], odometry)
    odometry.reset()
    again = run(walk, views[:20], odometry)
    for a, b in zip(once, again, strict=True):
        assert np.array_equal(a.R_level_device, b.R_level_device)
        assert np.array_equal(a.device_in_level_m, b.device_in_level_m)
        assert np.array_equal(a.velocity_cov, b.velocity_cov)


def test_what_comes_later_changes_no_earlier_pose() -> None:
    walk, views = walked(*TURNING), looks(*TURNING)
    whole, short = run(walk, views), run(walk, views[:25])
    assert np.array_equal(whole[len(short) - 1].velocity_msec, short[-1].velocity_msec)


def test_the_real_corridors_speed_agrees_with_its_vio() -> None:
    """Half a metre a second while the head turns by 130 degrees a second, at 30 Hz."""
    walk = corridor()
    depth, odometry = StereoDepth(walk.rig), Odometry(walk.rig)
    poses = max(walk.poses, key=lambda p: int(p.device_ns[-1]))
    fed, told = 0, []
    for ns, left, right in walk.pairs:
        fed = feed(odometry, walk, fed, ns)
        pose = odometry.step(ns, depth.measure(left, right, ns, odometry.attitude(ns)))
        depth.learn()
        if pose is not None and pose.source == "stereo":
            told.append(pose)
    assert len(told) >= 4
    vio_speed = float(np.linalg.norm(poses.velocity_msec[-1]))
    for pose in told:
        assert np.linalg.norm(pose.velocity_msec) == pytest.approx(vio_speed, abs=0.1)


@pytest.mark.parametrize("how", ["stuck", "run away", "at the end of the world"])
def test_vio_that_tells_nonsense_is_not_followed(how: str) -> None:
    seed, kind, seconds, gen = 1, "textured", 3.0, 2
    t, views = truth(seed, kind, seconds, gen), looks(seed, kind, seconds, gen)
    vio = list(vio_of(t, [v.device_ns for v in views], np.eye(3), np.zeros(3)))
    half = len(vio) // 2
    for i in range(half, len(vio)):
        match how:
            case "stuck":
                vio[i] = replace(vio[half - 1], device_ns=vio[i].device_ns)
            case "run away":
                vio[i] = replace(vio[i], velocity_msec=vio[i].velocity_msec + 100.0)
            case _:
                vio[i] = replace(vio[i], position_m=vio[i].position_m + 1e300)
    found = run(walked(seed, kind, seconds, gen), views, poses=tuple(vio))
    assert [p.source for p in found][half - 2] == "vio"
    assert {p.source for p in found[half + 1 :]} <= {"stereo", "imu"}
