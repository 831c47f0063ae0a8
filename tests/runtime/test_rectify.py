from __future__ import annotations

import math
from dataclasses import replace

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray
from world_looks import with_camera

from handrail.runtime.reflex.attitude import rotation
from handrail.runtime.reflex.rectify import DISPARITIES, Rectifier
from handrail.streams.cameras import Rig
from handrail.streams.errors import SourceError
from handrail.streams.world.scenario import load_rig

F64 = NDArray[np.float64]
EVERYTHING = slice(0, None)


def dot_at(rig: Rig, label: str, point_device: F64) -> NDArray[np.uint8]:
    """A bright native frame (which needs no stretching) with one soft dark spot where the camera sees a point."""
    camera = rig.cameras[label]
    px, inside = camera.project(point_device)
    assert inside
    y, x = np.ogrid[: camera.height, : camera.width]
    spot = 200 - 180 * np.exp(-((x - px[0]) ** 2 + (y - px[1]) ** 2) / (2 * 1.8**2))
    return np.rint(spot).astype(np.uint8)


def centre(image: NDArray[np.uint8]) -> tuple[float, float]:
    """(row, column) of the spot, by its centre of mass; outside the lens circle it is dark, too."""
    weight = np.where(image > 1, np.clip(190 - image.astype(float), 0, None), 0)
    weight[cv2.dilate((image <= 1).astype(np.uint8), np.ones((9, 9))) > 0] = 0
    row, column = np.unravel_index(np.argmax(cv2.GaussianBlur(weight, (0, 0), 2)), weight.shape)
    r0, c0 = max(int(row) - 9, 0), max(int(column) - 9, 0)
    part = weight[r0 : r0 + 19, c0 : c0 + 19]
    rows, columns = np.mgrid[r0 : r0 + part.shape[0], c0 : c0 + part.shape[1]]
    return float((rows * part).sum() / part.sum()), float((columns * part).sum() / part.sum())


@pytest.mark.parametrize("gen", [1, 2])
@pytest.mark.parametrize(
    ("rho_m", "phi_deg", "tan"), [(0.7, -35, 0.1), (2.0, 10, -0.2), (2.0, -50, 0.2), (9.0, 30, 0.0)]
)
def test_a_point_lies_on_one_row_and_its_disparity_tells_its_distance_from_the_baseline(
    gen: int, rho_m: float, phi_deg: float, tan: float
) -> None:
    rig = load_rig(gen)
    r = Rectifier(rig)
    phi = math.radians(phi_deg)
    point_rect = rho_m * np.array([tan, -math.sin(phi), math.cos(phi)])
    point = r.T_device_rect[:3, :3] @ point_rect + r.T_device_rect[:3, 3]
    pair = r.rectify(dot_at(rig, r.labels[0], point), dot_at(rig, r.labels[1], point), EVERYTHING)
    left, right = centre(pair.left), centre(pair.bright_right)
    assert left[0] == pytest.approx(right[0], abs=0.15)
    assert r.phi_rad[round(left[0])] == pytest.approx(phi, abs=0.004)
    assert r.canvas_tan[round(left[1])] == pytest.approx(tan, abs=0.004)
    assert left[1] - right[1] == pytest.approx(r.focal_px * r.baseline_m / rho_m, abs=0.25)


@pytest.mark.parametrize("gen", [1, 2])
def test_baseline_and_axes_are_those_of_the_cameras(gen: int) -> None:
    rig = load_rig(gen)
    r = Rectifier(rig)
    left, right = (rig.cameras[label].T_device_camera[:3, 3] for label in r.labels)
    assert r.baseline_m == pytest.approx(float(np.linalg.norm(right - left)))
    x, y, z = r.T_device_rect[:3, :3].T
    assert np.allclose(x, (right - left) / r.baseline_m)
    assert np.allclose(np.cross(x, y), z)
    up, nose = rig.T_device_cpf[:3, 1], rig.T_device_cpf[:3, 2]
    assert y @ up < -0.8  # down
    assert z @ nose > 0.8  # ahead


@pytest.mark.parametrize("gen", [1, 2])
@pytest.mark.parametrize("pitch_deg", [-20, -10, 0, 10, 20])
def test_the_aim_follows_gravity_and_covers_floor_and_head_height(gen: int, pitch_deg: float) -> None:
    rig = load_rig(gen)
    r = Rectifier(rig)
    head = rotation(np.array([0.0, math.radians(-pitch_deg), 0.0]))  # nose up positive, about level y (left)
    upright = np.array([[0.0, 0.0, 1.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])  # level <- cpf
    R_level_device = head @ upright @ rig.T_device_cpf[:3, :3].T
    rows = r.aim(R_level_device)
    lowest, highest = np.degrees(r.covered_rad(rows, R_level_device))
    assert lowest < -50 if pitch_deg <= 10 else lowest < -40
    # Gen 2 looks 24 degrees below the nose: with the head down, what is high leaves the lenses
    assert highest > 20 or (gen == 2 and highest > 17 and pitch_deg == -20)
    assert rows.stop - rows.start == r.aim(None).stop - r.aim(None).start


def test_visible_is_what_both_lenses_see() -> None:
    rig = load_rig(2)
    r = Rectifier(rig)
    rows, columns = np.mgrid[0 : len(r.phi_rad) : 23, 0 : len(r.tan_x) : 17]
    phi, tan = r.phi_rad[rows], r.tan_x[columns]
    far = 1e5 * np.stack([tan, -np.sin(phi), np.cos(phi)], axis=-1) @ r.T_device_rect[:3, :3].T
    both = rig.cameras[r.labels[0]].project(far)[1] & rig.cameras[r.labels[1]].project(far)[1]
    assert np.array_equal(r.visible[rows, columns], both)
    assert 0.3 < r.visible.mean() < 0.95


def test_a_frame_of_another_size_is_refused_with_what_was_expected() -> None:
    r = Rectifier(load_rig(2))
    with pytest.raises(SourceError, match="512x512"):
        r.rectify(np.zeros((480, 640), np.uint8), np.zeros((512, 512), np.uint8), EVERYTHING)


def test_a_rig_without_a_pair_is_refused() -> None:
    rig = load_rig(2)
    alone = Rig(2, {"slam-front-left": rig.cameras["slam-front-left"]}, rig.imus, rig.T_device_cpf)
    with pytest.raises(SourceError, match="forward SLAM camera"):
        Rectifier(alone)


def test_cameras_that_see_different_places_are_refused() -> None:
    rig = load_rig(2)
    right = rig.cameras["slam-front-right"]
    T = right.T_device_camera.copy()
    T[:3, :3] = T[:3, :3] @ rotation(np.array([0.0, math.pi, 0.0]))
    with pytest.raises(SourceError, match="same place"):
        Rectifier(with_camera(rig, replace(right, T_device_camera=T)))


def test_bending_rectifies_as_a_camera_turned_by_that_much_would_be() -> None:
    rig = load_rig(2)
    nominal = Rectifier(rig)
    angles = np.array([0.004, -0.012, 0.006])
    R_rect = nominal.T_device_rect[:3, :3]
    right = rig.cameras[nominal.labels[1]]
    T = right.T_device_camera.copy()
    T[:3, :3] = R_rect @ rotation(angles) @ R_rect.T @ T[:3, :3]
    turned = with_camera(rig, replace(right, T_device_camera=T))
    nominal.bend(angles)
    for rho_m, phi_deg, tan in ((1.0, -40, 0.3), (3.0, 0, -0.4), (6.0, 30, 0.5)):
        phi = math.radians(phi_deg)
        point = R_rect @ (rho_m * np.array([tan, -math.sin(phi), math.cos(phi)])) + nominal.T_device_rect[:3, 3]
        pair = nominal.rectify(
            dot_at(turned, nominal.labels[0], point), dot_at(turned, nominal.labels[1], point), EVERYTHING
        )
        left, right_at = centre(pair.left), centre(pair.bright_right)
        assert left[0] == pytest.approx(right_at[0], abs=0.15)
        assert left[1] - right_at[1] == pytest.approx(nominal.focal_px * nominal.baseline_m / rho_m, abs=0.25)


def test_the_two_images_are_brought_to_one_brightness_and_dusk_is_smoothed() -> None:
    rng = np.random.default_rng(1)
    texture = cv2.GaussianBlur(rng.normal(0, 400, (512, 512)), (0, 0), 3) + 100
    light = np.clip(texture, 20, 200).astype(np.uint8)
    r = Rectifier(load_rig(2))
    day = r.rectify(light, (light * 0.5).astype(np.uint8), r.aim(None))
    assert not day.dark
    columns = slice(DISPARITIES + 150, -150)
    assert np.median(day.bright_left[:, columns]) == pytest.approx(np.median(day.bright_right[:, columns]), rel=0.15)
    dusk = r.rectify((light * 0.15).astype(np.uint8), (light * 0.15).astype(np.uint8), r.aim(None))
    assert dusk.dark
