"""An upright picture of one camera, and where its pixels look: relative to the nose, level with gravity.

The nose frame has its origin at the eyes (cpf), x along the nose's heading, y left, z up. The head's pitch is known,
its roll isn't part of a scene and is taken as none. Azimuths in degrees clockwise from the nose (negative = left),
elevations in degrees above the horizon, both as seen from the camera, which sits some centimetres beside the eyes.
Knows no boxes.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from handrail.streams.cameras import Rig
from handrail.streams.errors import SourceError
from handrail.streams.upright import sensor_px

F64 = NDArray[np.float64]
U8 = NDArray[np.uint8]

WIDEST_RAD = math.radians(100.0)  # beyond, the lens polynomial folds back into the picture


class View:
    """``width``, ``height``: of the upright picture. Raises SourceError when the rig has no such camera, or of another
    shape."""

    def __init__(self, rig: Rig, camera_label: str, width: int, height: int) -> None:
        if camera_label not in rig.cameras:
            raise SourceError(f"labels: expected a camera of {sorted(rig.cameras)}, got {camera_label}; its "
                              "calibration is missing")
        self._generation = rig.generation
        native = (height, width) if self._generation == 1 else (width, height)
        self._camera = rig.cameras[camera_label].scaled(*native)
        self._T_cpf_camera = np.linalg.inv(rig.T_device_cpf) @ self._camera.T_device_camera
        self.width, self.height = width, height

    def sees(self, px: F64) -> NDArray[np.bool_]:
        """Upright pixels [..., 2]: whether they are inside the picture and the lens circle."""
        return self._camera.sees(self._sensor_px(px))

    def look(self, px: F64, pitch_rad: float) -> tuple[F64, F64]:
        """Upright pixels [..., 2] to azimuth and elevation [...], degrees, from the camera."""
        in_cpf = self._camera.model.unproject(self._sensor_px(px)) @ self._T_cpf_camera[:3, :3].T
        return _angles(in_cpf @ _nose_of_cpf(pitch_rad).T)

    def towards(self, points_m: F64, pitch_rad: float) -> tuple[F64, F64, F64]:
        """Points [..., 3] in the nose frame to azimuth, elevation (degrees) and distance along the floor (metres), from
        the camera."""
        from_camera = points_m - self.camera_m(pitch_rad)
        azimuth, elevation = _angles(from_camera)
        return azimuth, elevation, np.asarray(np.hypot(from_camera[..., 0], from_camera[..., 1]))

    def place(self, points_m: F64, pitch_rad: float) -> tuple[F64, NDArray[np.bool_]]:
        """Points [..., 3] in the nose frame to upright pixels [..., 2] and whether they are seen there."""
        in_cpf = points_m @ _nose_of_cpf(pitch_rad)
        rays = (in_cpf - self._T_cpf_camera[:3, 3]) @ self._T_cpf_camera[:3, :3]
        native = self._camera.model.project(rays)
        ahead = rays[..., 2] > np.linalg.norm(rays, axis=-1) * math.cos(WIDEST_RAD)
        px = native
        if self._generation == 1:
            px = np.stack([self._camera.height - 1 - native[..., 1], native[..., 0]], axis=-1)
        return px, np.asarray(self._camera.sees(native) & ahead)

    def camera_m(self, pitch_rad: float) -> F64:
        """[3] where the camera is, nose frame."""
        return np.asarray(_nose_of_cpf(pitch_rad) @ self._T_cpf_camera[:3, 3])

    def _sensor_px(self, px: F64) -> F64:
        return sensor_px(px, self._generation, self.width)


def _nose_of_cpf(pitch_rad: float) -> F64:
    """[3, 3] rotation nose <- cpf (x left, y up, z forward)."""
    c, s = math.cos(pitch_rad), math.sin(pitch_rad)
    return np.array([[0.0, -s, c], [1.0, 0.0, 0.0], [0.0, c, s]])


def _angles(rays: F64) -> tuple[F64, F64]:
    azimuth = np.degrees(np.arctan2(-rays[..., 1], rays[..., 0]))
    elevation = np.degrees(np.arctan2(rays[..., 2], np.hypot(rays[..., 0], rays[..., 1])))
    return np.asarray(azimuth), np.asarray(elevation)
