"""Camera models against projectaria_tools' own, their inverses, scales, and the rig's way through JSON."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from handrail.streams.cameras import Camera, Fisheye, ImuCalibration, Rig
from handrail.streams.errors import SourceError

# Parameters of the size that Aria's calibrations have: focal lengths, centre, distortion.
SLAM = [242.0, 318.2, 237.5, -0.026, 0.099, -0.066, 0.012, 0.0, 0.0, 3e-4, -2e-4, 4e-4, 1e-4, -3e-4, 2e-4]
RGB = [611.2, 714.8, 705.1, 0.404, -0.464, 0.135, 0.983, -1.42, 0.58, 8e-4, -4e-4, 7e-4, -6e-5, 1.1e-3, 3e-4]
K3 = [241.0, 240.5, 320.4, 240.1, -0.025, 0.1, -0.07, 0.01]
MODELS = {
    "slam": Fisheye.from_params("FISHEYE624", SLAM),
    "rgb": Fisheye.from_params("FISHEYE624", RGB),
    "k3": Fisheye.from_params("KANNALA_BRANDT_K3", K3),
}


def rays(widest_deg: float) -> np.ndarray:
    """[N, 3] unit rays over the view, the axis included."""
    theta, azimuth = np.meshgrid(np.radians(np.linspace(0, widest_deg, 25)), np.radians(np.arange(0, 360, 15)))
    return np.stack(
        [np.sin(theta) * np.cos(azimuth), np.sin(theta) * np.sin(azimuth), np.cos(theta)], axis=-1
    ).reshape(-1, 3)


@pytest.mark.parametrize("name, model, params", [
    ("slam", "FISHEYE624", SLAM), ("rgb", "FISHEYE624", RGB), ("k3", "KANNALA_BRANDT_K3", K3),
])  # fmt: skip
def test_projection_agrees_with_project_arias_own(name: str, model: str, params: list[float]) -> None:
    calibration = pytest.importorskip("projectaria_tools.core.calibration")
    theirs = calibration.CameraProjection(getattr(calibration.CameraModelType, model), np.array(params))
    some = rays(60)
    expected = np.array([theirs.project(ray) for ray in some])
    assert np.abs(MODELS[name].project(some) - expected).max() < 1e-8


@pytest.mark.parametrize("name", MODELS)
def test_unprojection_is_the_inverse_of_projection(name: str) -> None:
    some = rays(55 if name == "rgb" else 75)
    back = MODELS[name].unproject(MODELS[name].project(some))
    assert np.abs(back - some).max() < 1e-7
    assert np.abs(np.linalg.norm(back, axis=-1) - 1).max() < 1e-12


@given(st.floats(0.01, 100.0), st.floats(-1, 1), st.floats(-1, 1), st.floats(0.1, 1))
@settings(max_examples=80)
def test_projection_does_not_depend_on_distance(distance_m: float, x: float, y: float, z: float) -> None:
    ray = np.array([x, y, z])
    assert np.allclose(MODELS["slam"].project(ray * distance_m), MODELS["slam"].project(ray), atol=1e-8)


def test_rays_beyond_ninety_degrees_stay_on_their_side() -> None:
    right, left = MODELS["k3"].project(np.array([[1.0, 0.0, -0.05], [-1.0, 0.0, -0.05]]))
    assert right[0] > K3[2] > left[0]


@pytest.mark.parametrize("model, params", [("FISHEYE624", K3), ("KANNALA_BRANDT_K3", SLAM), ("LINEAR", [1.0] * 4)])
def test_an_unknown_model_or_a_wrong_number_of_parameters_is_refused(model: str, params: list[float]) -> None:
    with pytest.raises(SourceError, match=f"got {model} \\({len(params)}\\)"):
        Fisheye.from_params(model, params)


def pose(x_m: float, y_m: float, z_m: float, yaw_rad: float) -> np.ndarray:
    c, s = np.cos(yaw_rad), np.sin(yaw_rad)
    return np.array([[c, 0, s, x_m], [0, 1, 0, y_m], [-s, 0, c, z_m], [0, 0, 0, 1.0]])


def camera(label: str = "slam-front-left", radius_px: float | None = 200.0) -> Camera:
    return Camera(label, MODELS["slam"], 640, 480, pose(0.05, 0.01, 0.02, 0.3), radius_px)


def test_a_point_on_the_optical_axis_lands_on_the_centre() -> None:
    one = camera()
    ahead = one.T_device_camera[:3, :3] @ np.array([0.0, 0.0, 2.0]) + one.T_device_camera[:3, 3]
    pixel, seen = one.project(ahead[None])
    assert np.allclose(pixel[0], MODELS["slam"].centre_px) and seen[0]


def test_a_camera_sees_inside_its_frame_and_lens_circle_only() -> None:
    corner, centre, outside = np.array([[1.0, 1.0], [318.0, 237.0], [-0.5, 100.0]])
    assert camera().sees(np.array([corner, centre, outside])).tolist() == [False, True, False]
    assert camera(radius_px=None).sees(np.array([corner, centre, outside])).tolist() == [True, True, False]


def test_a_frame_of_half_the_size_shows_the_same_ray_at_half_the_pixel() -> None:
    half = camera().scaled(320, 240)
    some = rays(40)
    whole_px, half_px = camera().model.project(some), half.model.project(some)
    assert np.allclose((whole_px + 0.5) / 2 - 0.5, half_px, atol=1e-9)
    assert half.valid_radius_px == 100.0
    same = camera()
    assert same.scaled(640, 480) is same


def test_another_aspect_ratio_is_a_crop_and_refused() -> None:
    with pytest.raises(SourceError, match="calibration is for 640x480, frames are 640x400"):
        camera().scaled(640, 400)


def rig(generation: int = 2, labels: tuple[str, ...] = ("slam-front-left", "slam-front-right")) -> Rig:
    imus = {
        name: ImuCalibration(
            name, pose(0.0, 0.02, 0.0, 0.1), np.array([0.1, -0.2, 0.05]), np.eye(3) * 1.01 + 0.001,
            np.array([0.01, 0.0, -0.02]), np.eye(3) * 0.99,
        )
        for name in ("imu-left", "imu-right")
    }
    return Rig(generation, {label: camera(label) for label in labels}, imus, pose(0, 0, 0.1, 0.0), {"mag0": [1, 2]})


def test_a_rig_survives_the_way_through_json_bit_for_bit() -> None:
    before = rig().to_json()
    assert Rig.from_json(json.loads(json.dumps(before))).to_json() == before


@pytest.mark.parametrize("path", [
    ("cameras",), ("generation",), ("T_device_cpf",), ("cameras", "slam-front-left", "radial"),
    ("imus", "imu-left", "accel_bias"),
])  # fmt: skip
def test_a_calibration_without_a_key_names_the_key(path: tuple[str, ...]) -> None:
    broken = rig().to_json()
    node: dict[str, Any] = broken
    for key in path[:-1]:
        node = node[key]
    del node[path[-1]]
    with pytest.raises(SourceError, match=path[-1]):
        Rig.from_json(broken)


def test_the_stereo_pair_is_the_forward_one_or_none() -> None:
    assert rig().stereo_pair == ("slam-front-left", "slam-front-right")
    assert rig(1, ("camera-slam-left", "camera-slam-right")).stereo_pair == ("camera-slam-left", "camera-slam-right")
    assert rig(2, ("slam-front-left", "slam-side-right")).stereo_pair is None


def test_the_main_imu_is_the_first_of_its_generation_whose_sides_are_swapped() -> None:
    assert rig(1).main_imu == "imu-right"
    assert rig(2).main_imu == "imu-left"
    assert replace(rig(2), imus={"imu-right": rig().imus["imu-right"]}).main_imu == "imu-right"
    assert replace(rig(2), imus={}).main_imu is None


def test_imu_readings_come_out_in_device_axes_without_bias() -> None:
    one = rig().imus["imu-left"]
    true_accel, true_gyro = np.array([0.3, -9.7, 1.2]), np.array([0.2, 0.1, -0.4])
    raw_accel = np.linalg.solve(one.accel_rectification, true_accel) + one.accel_bias
    raw_gyro = np.linalg.solve(one.gyro_rectification, true_gyro) + one.gyro_bias
    accel, gyro = one.to_device(raw_accel[None], raw_gyro[None])
    rotation = one.T_device_imu[:3, :3]
    assert np.allclose(accel[0], rotation @ true_accel) and np.allclose(gyro[0], rotation @ true_gyro)
