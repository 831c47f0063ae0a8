"""A recording's calibrations as a ``Rig``, without serial numbers. Runs in the reader child.

A calibration that can't be right (a flipped byte is not noticed by the native reader) is left out with a note: no depth
is told as no depth, a wrong one would be a wrong side. Lengths in metres, angles in radians, sizes in pixels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import numpy as np

from handrail.streams.cameras import Camera, Fisheye, ImuCalibration, Rig
from handrail.streams.errors import SourceError
from handrail.streams.reader.chatter import one_line
from handrail.streams.samples import F64

T = TypeVar("T")


def rig_from(
    calibration: Any, generation: int, sizes: dict[str, tuple[int, int]], recorded: set[str]
) -> tuple[Rig, list[str]]:
    """The rig and notes on what is missing. ``calibration`` is the provider's DeviceCalibration or None; ``sizes`` are
    the recorded frames' (width, height), to which cameras are scaled. Sensors that are not among the ``recorded``
    labels are left out, so that nothing waits for them; Gen 1 records both eye cameras as one picture."""
    bare = Rig(generation, {}, {}, np.eye(4))
    if calibration is None:
        return bare, ["no calibration in the recording: no depth, no directions"]
    try:
        T_device_cpf = _rigid(calibration.get_transform_device_cpf().to_matrix())
    except Exception as e:  # native errors come as several types
        return bare, [f"calibration has no usable head frame, so none of it is used ({one_line(str(e))})"]
    notes: list[str] = []
    camera_labels = [k for k in calibration.get_camera_labels() if k in recorded or k.startswith("camera-et")]
    cameras = _each(camera_labels, lambda label: _camera(calibration, label, sizes), notes)
    imus = _each(recorded & set(calibration.get_imu_labels()), lambda label: _imu(calibration, label), notes)
    magnetometers = _each(calibration.get_magnetometer_labels(), lambda label: _magnetometer(calibration, label), notes)
    rig = Rig(generation, cameras, imus, T_device_cpf, magnetometers)
    if rig.stereo_pair is not None and not _left_is_left(rig):
        left, right = rig.stereo_pair
        notes.append(f"calibration puts {left} to the right of {right}: neither is used")
        del cameras[left], cameras[right]
    return rig, notes


def _each(labels: Iterable[str], build: Callable[[str], T], notes: list[str]) -> dict[str, T]:
    built: dict[str, T] = {}
    for label in sorted(labels):
        try:
            built[label] = build(label)
        except Exception as e:  # native errors come as several types; one bad sensor leaves the others usable
            notes.append(f"{label}: calibration not used ({one_line(str(e))})")
    return built


def _camera(calibration: Any, label: str, sizes: dict[str, tuple[int, int]]) -> Camera:
    c = calibration.get_camera_calib(label)
    width, height = (int(v) for v in c.get_image_size())
    model = Fisheye.from_params(c.get_model_name().name, [float(v) for v in c.get_projection_params()])
    radius = c.get_valid_radius()
    T = _rigid(c.get_transform_device_camera().to_matrix())
    camera = Camera(label, model, width, height, T, None if radius is None else float(radius))
    (fx, fy), (cx, cy) = model.focal_px, model.centre_px
    plausible = 0.1 < fx / width < 5 and 0.1 < fy / width < 5 and 0.2 < cx / width < 0.8 and 0.2 < cy / height < 0.8
    if not (plausible and np.all(np.isfinite([*model.radial, *model.tangential, *model.thin_prism]))):
        raise SourceError(f"focal length {fx:.6g}, centre {cx:.6g}, {cy:.6g} for a {width}x{height} frame")
    return camera.scaled(*sizes[label]) if label in sizes else camera


def _imu(calibration: Any, label: str) -> ImuCalibration:
    c = calibration.get_imu_calib(label)
    accel_bias, accel_rectification = _affine(c.raw_to_rectified_accel)
    gyro_bias, gyro_rectification = _affine(c.raw_to_rectified_gyro)
    T = _rigid(c.get_transform_device_imu().to_matrix())
    return ImuCalibration(label, T, accel_bias, accel_rectification, gyro_bias, gyro_rectification)


def _magnetometer(calibration: Any, label: str) -> dict[str, list[Any]]:
    """true field = rectification @ (raw - bias), tesla, in the magnetometer's frame."""
    bias, rectification = _affine(calibration.get_magnetometer_calib(label).raw_to_rectified)
    T_device_mag = _rigid(calibration.get_transform_device_sensor(label, True).to_matrix())  # from the drawings
    return {"T_device_mag": T_device_mag.tolist(), "bias": bias.tolist(), "rectification": rectification.tolist()}


def _affine(rectify: Callable[[F64], Any]) -> tuple[F64, F64]:
    """Bias [3] and matrix [3, 3] of ``rectify(raw) = matrix @ (raw - bias)``, found by asking it four times."""
    at_zero = np.asarray(rectify(np.zeros(3)), dtype=np.float64).reshape(3)
    columns = [np.asarray(rectify(axis), dtype=np.float64).reshape(3) - at_zero for axis in np.eye(3)]
    matrix = np.stack(columns, axis=1)
    if not np.all(np.isfinite(matrix)) or not 0.2 < abs(np.linalg.det(matrix)) < 5:
        raise SourceError("its rectification is not near the identity")
    return np.asarray(-np.linalg.solve(matrix, at_zero), dtype=np.float64), matrix


def _rigid(matrix: Any) -> F64:
    """The 4x4 itself, where it is a rotation and a shift within a pair of glasses."""
    T = np.array(matrix, dtype=np.float64)
    R = T[:3, :3]
    if not np.all(np.isfinite(T)) or not np.allclose(R @ R.T, np.eye(3), atol=1e-3) or np.linalg.det(R) < 0:
        raise SourceError("its orientation is not a rotation")
    if np.linalg.norm(T[:3, 3]) > 0.5:
        raise SourceError(f"it lies {np.linalg.norm(T[:3, 3]):.1f} m from the glasses")
    return T


def _left_is_left(rig: Rig) -> bool:
    assert rig.stereo_pair is not None
    to_left = rig.T_device_cpf[:3, 0]  # x of the cpf points left
    left, right = (rig.cameras[label].T_device_camera[:3, 3] for label in rig.stereo_pair)
    return bool((left - right) @ to_left > 0.05)  # the pair's baseline is 0.13 m
