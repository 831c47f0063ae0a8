from __future__ import annotations

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray
from world_looks import corridor, true_attitude, true_rho, truth, walked

from handrail.runtime.reflex.depth import DepthView
from handrail.runtime.reflex.rectify import Rectifier
from handrail.runtime.reflex.stereo import StereoDepth, StereoMatcher
from handrail.streams.world.scenario import load_rig

U8 = NDArray[np.uint8]
F32 = NDArray[np.float32]


def depth_of(seed: int, kind: str, gen: int, spoil: float = 1.0) -> tuple[DepthView, NDArray[np.float64]]:
    """The third view of a walk and its truth. ``spoil`` scales the right camera's brightness."""
    walk = walked(seed, kind, 2.0, gen, stereo_hz=5.0)
    depth = StereoDepth(walk.rig)
    for ns, left, right in walk.pairs[:3]:
        view = depth.measure(left, (right * spoil).astype(np.uint8), ns, true_attitude(truth(seed, kind, 2.0, gen), ns))
        depth.learn()
    return view, true_rho(seed, kind, 2.0, gen, view)


def errors_px(view: DepthView, rho_m: NDArray[np.float64], nearest_m: float, farthest_m: float) -> NDArray[np.float64]:
    fb = view.focal_px * view.baseline_m
    use = view.visible & np.isfinite(view.rho_m) & (rho_m > nearest_m) & (rho_m < farthest_m)
    return np.asarray(fb / view.rho_m[use] - fb / rho_m[use])


def known_share(view: DepthView) -> float:
    return float(np.isfinite(view.rho_m)[view.visible].mean())


@pytest.mark.parametrize("gen", [1, 2])
def test_textured_places_are_measured_to_a_third_of_a_pixel(gen: int) -> None:
    view, rho = depth_of(1, "textured", gen)
    off = errors_px(view, rho, 0.8, 6.0)
    assert known_share(view) > 0.7
    assert abs(np.median(off)) < 0.35  # the bend is learned to about a milliradian, a quarter of a pixel
    assert 1.48 * np.median(np.abs(off - np.median(off))) < 0.35
    assert np.mean(np.abs(off) > 2) < 0.03


def test_the_stated_error_is_the_one_measured() -> None:
    view, rho = depth_of(1, "textured", 2)
    off = errors_px(view, rho, 0.8, 6.0)
    assert 0.5 < np.percentile(np.abs(off - np.median(off)), 68) / view.disparity_sd_px < 1.2
    assert abs(np.median(off)) < 2 * view.shift_sd_px
    at_4_m = view.rho_sd_m(4.0)
    assert view.rho_sd_m(2.0) == pytest.approx(at_4_m / 4)
    assert 0.1 < at_4_m < 0.6  # 15 % of 4 m


def test_dusk_is_seen_with_a_larger_error_that_is_told() -> None:
    view, rho = depth_of(3, "dusk", 2)
    off = errors_px(view, rho, 1.5, 6.0)
    assert known_share(view) > 0.3
    assert view.disparity_sd_px > 0.5
    assert 1.48 * np.median(np.abs(off - np.median(off))) < 1.3 * view.disparity_sd_px


def test_a_camera_that_exposes_half_as_long_changes_little() -> None:
    (even, _), (uneven, rho) = depth_of(1, "textured", 2), depth_of(1, "textured", 2, spoil=0.5)
    assert known_share(uneven) > known_share(even) - 0.1
    assert abs(np.median(errors_px(uneven, rho, 0.8, 6.0))) < 0.4


def plain_pair(slope: float, seed: int) -> tuple[U8, U8]:
    """A wall without texture, lit from one side, with the noise of two cameras."""
    rng = np.random.default_rng(seed)
    x = np.linspace(-1, 1, 512)[None, :] * slope
    return (
        np.clip(120 + x * 60 + rng.normal(0, 2.5, (512, 512)), 0, 255).astype(np.uint8),
        np.clip(120 + x * 60 + rng.normal(0, 2.5, (512, 512)), 0, 255).astype(np.uint8),
    )


@pytest.mark.parametrize("slope", [0.0, 0.5, 1.0])
def test_a_plain_wall_stays_unknown_however_it_is_lit(slope: float) -> None:
    r = Rectifier(load_rig(2))
    view = StereoMatcher(r).match(r.rectify(*plain_pair(slope, 5), r.aim(None)), 0)
    assert known_share(view) < 0.01


def test_a_plain_wall_between_textured_ones_stays_unknown_inside() -> None:
    """The world's free-standing plain walls: phantom depth behind them would send the wearer into them."""
    walk = walked(4, "plain-wall", 10.0, 2, stereo_hz=1.0)
    depth = StereoDepth(walk.rig)
    wall_seen = 0
    for ns, left, right in walk.pairs[3:6]:  # the wall comes to 1 m
        view = depth.measure(left, right, ns, true_attitude(truth(4, "plain-wall", 10.0), ns))
        off = errors_px(view, true_rho(4, "plain-wall", 10.0, 2, view), 0.8, 6.0)
        assert np.mean(off < -3) < 0.015  # much farther than what is there
        wall_seen += known_share(view) < 0.7
    assert wall_seen > 0


def test_depth_is_told_only_inside_both_lenses_or_nearer_than_infinity_allows() -> None:
    view, _ = depth_of(1, "textured", 2)
    outside = np.isfinite(view.rho_m) & ~view.visible
    assert outside.sum() < 0.02 * np.isfinite(view.rho_m).sum()


def test_far_places_are_far_and_not_unknown() -> None:
    r = Rectifier(load_rig(2))
    rng = np.random.default_rng(3)
    texture = cv2.GaussianBlur(rng.normal(0, 300, (512, 512)), (0, 0), 2)
    frame = np.clip(120 + texture, 0, 255).astype(np.uint8)
    # Shown at infinity: the right camera sees along each ray what the left one sees along it.
    pair = r.rectify(frame, frame, r.aim(None))
    at_infinity = type(pair)(pair.left, pair.bright_left, pair.bright_left, False, pair.rows)
    view = StereoMatcher(r).match(at_infinity, 0)
    assert np.isfinite(view.rho_m[view.visible]).mean() > 0.9
    assert np.nanmin(view.rho_m[view.visible]) > 50


def test_the_same_frames_give_the_same_depth_bit_for_bit() -> None:
    walk = walked(1, "textured", 2.0, 2, stereo_hz=5.0)

    def run() -> list[F32]:
        depth = StereoDepth(walk.rig)
        views = []
        for ns, left, right in walk.pairs[:3]:
            views.append(depth.measure(left, right, ns, None).rho_m)
            depth.learn()
        return views

    for a, b in zip(run(), run(), strict=True):
        assert np.array_equal(a, b, equal_nan=True)


def test_the_real_corridor_has_boxes_on_the_left_and_a_wall_on_the_right() -> None:
    walk = corridor()
    depth = StereoDepth(walk.rig)
    ns, left, right = walk.pairs[0]
    view = depth.measure(left, right, ns, None)
    assert known_share(view) > 0.35
    points = view.points_rect()
    up = view.T_device_rect[:3, :3].T @ walk.rig.T_device_cpf[:3, 1]
    # 15 degrees of head pitch aside: between knee and waist, the nearest on each side of the nose
    height = points @ up.astype(np.float32)
    across, ahead = points[..., 0], points[..., 2]
    low = np.isfinite(height) & (ahead > 0.3)
    left_side = view.rho_m[low & (across < -0.25) & (across > -1.5)]
    assert 0.6 < np.percentile(left_side, 2) < 1.4
    right_side = view.rho_m[low & (across > 0.5) & (across < 2.0)]
    assert 1.0 < np.percentile(right_side, 2) < 2.6
