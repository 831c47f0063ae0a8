from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from world_looks import corridor, true_attitude, truth, walked, with_camera

from handrail.runtime.reflex.attitude import rotation
from handrail.runtime.reflex.rectify import Rectifier
from handrail.runtime.reflex.stereo import StereoDepth
from handrail.streams.cameras import Rig


def bent(rig: Rig, angles: tuple[float, float, float]) -> Rig:
    """A calibration from before the glasses were bent: the frames come from a right camera turned by ``angles``."""
    r = Rectifier(rig)
    right = rig.cameras[r.labels[1]]
    R_rect, T = r.T_device_rect[:3, :3], right.T_device_camera.copy()
    T[:3, :3] = R_rect @ rotation(-np.array(angles)) @ R_rect.T @ T[:3, :3]
    return with_camera(rig, replace(right, T_device_camera=T))


@pytest.mark.parametrize("angles", [(0.0, 0.0, 0.0), (-0.002, -0.012, -0.005), (0.005, 0.01, 0.003)])
def test_the_bend_of_the_glasses_is_learned_within_a_second(angles: tuple[float, float, float]) -> None:
    walk = walked(1, "textured", 2.0, 2, stereo_hz=5.0)
    depth = StereoDepth(bent(walk.rig, angles))
    for ns, left, right in walk.pairs[:6]:
        depth.measure(left, right, ns, true_attitude(truth(1, "textured", 2.0), ns))
        depth.learn()
    bend = depth.alignment.bend
    off = bend.angles_rad - np.array(angles)
    assert abs(off[0]) < 0.0007  # pitch: a sixth of a pixel
    assert abs(off[1]) < 0.0015  # yaw: a third of a pixel of disparity
    assert (np.abs(off) < 3 * bend.sd_rad).all()


def test_depth_from_bent_glasses_is_mended_before_the_first_view_is_handed_out() -> None:
    walk = walked(1, "textured", 2.0, 2, stereo_hz=5.0)
    ns, left, right = walk.pairs[0]
    attitude = true_attitude(truth(1, "textured", 2.0), ns)
    good = StereoDepth(walk.rig).measure(left, right, ns, attitude)
    mended = StereoDepth(bent(walk.rig, (-0.002, -0.012, -0.005))).measure(left, right, ns, attitude)
    both = np.isfinite(good.rho_m) & np.isfinite(mended.rho_m) & (good.rho_m < 5)
    ratio = mended.rho_m[both] / good.rho_m[both]
    assert both.sum() > 0.5 * good.visible.sum()
    assert 0.9 < np.median(ratio) < 1.1  # unmended, 4 m reads as 6 m


def test_without_gravity_the_bend_is_learned_from_rows_alone_and_the_doubt_is_told() -> None:
    walk = walked(1, "textured", 2.0, 2, stereo_hz=5.0)
    depth = StereoDepth(bent(walk.rig, (-0.002, -0.012, -0.005)))
    for ns, left, right in walk.pairs[:6]:
        view = depth.measure(left, right, ns, None)
        depth.learn()
    bend = depth.alignment.bend
    assert abs(bend.angles_rad[0] + 0.002) < 0.0007
    assert abs(bend.angles_rad[1] + 0.012) < 3 * bend.sd_rad[1]
    assert view.shift_sd_px > 0.6


def test_frames_without_detail_teach_nothing() -> None:
    walk = walked(1, "textured", 2.0, 2, stereo_hz=5.0)
    depth = StereoDepth(walk.rig)
    plain = np.full((512, 512), 90, np.uint8)
    for k in range(3):
        depth.measure(plain, plain, k * 100_000_000, None)
        depth.learn()
    assert np.array_equal(depth.alignment.bend.angles_rad, np.zeros(3))


def test_the_real_corridors_cameras_are_bent_as_its_own_vio_says() -> None:
    """VIO's online calibration there: -1.5, -12.7, -5.1 mrad with lens terms of its own, which alone are worth 2."""
    walk = corridor()
    depth = StereoDepth(walk.rig)
    for ns, left, right in walk.pairs:
        depth.measure(left, right, ns, None)
        depth.learn()
    pitch, yaw, roll = depth.alignment.bend.angles_rad
    assert pitch == pytest.approx(-0.0016, abs=0.0008)
    assert yaw == pytest.approx(-0.0115, abs=0.004)
    assert roll == pytest.approx(-0.0045, abs=0.003)
