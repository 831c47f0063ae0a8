"""Where a line of text is, seen from the nose: bearings and elevations of its quad, through the camera's own rays.

Frames: see ``handrail.streams``. Gen 1's RGB sensor lies on its side, and its picture is turned upright by a quarter
turn clockwise before it is read: ``sensor_px`` undoes that. Knows no distance: the few centimetres between the camera
and the eyes are left out, which is one degree at two metres.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from handrail.runtime.scenetext.reader import Line
from handrail.streams.cameras import Camera, Rig
from handrail.streams.errors import SourceError
from handrail.streams.upright import sensor_px

U8 = NDArray[np.uint8]
F64 = NDArray[np.float64]
RGB = "camera-rgb"


@dataclass(frozen=True, slots=True)
class Sight:
    """A line in one picture, in degrees as seen from the nose when the picture was taken."""

    line: Line
    bearing_deg: float  # of its middle, clockwise from the nose
    elevation_deg: float  # above the nose's direction
    width_deg: float
    height_deg: float


def sights(lines: Sequence[Line], rig: Rig, height_px: int, width_px: int) -> list[Sight]:
    """Of lines read in the upright RGB picture of that size. Raises SourceError without a calibration for it."""
    camera = _camera(rig, height_px, width_px)
    if not lines:
        return []
    corners = np.stack([line.quad for line in lines])  # [N, 4, 2]
    px = np.concatenate([corners, corners.mean(axis=1, keepdims=True)], axis=1)
    angles = _angles(camera, rig, sensor_px(px, rig.generation, width_px))  # [N, 5, 2]
    found = []
    for line, of_line in zip(lines, angles, strict=True):
        width, height = np.ptp(of_line[:4], axis=0)
        found.append(Sight(line, *(float(v) for v in (*of_line[4], width, height))))
    return found


def pixel_of(look_deg: tuple[float, float], rig: Rig, height_px: int, width_px: int) -> tuple[float, float]:
    """Where a direction (bearing, elevation) meets the upright RGB picture of that size: x, y, outside of it too."""
    bearing, elevation = np.radians(look_deg)
    in_cpf = np.array([
        -math.sin(bearing) * math.cos(elevation), math.sin(elevation), math.cos(bearing) * math.cos(elevation),
    ])  # fmt: skip
    camera = _camera(rig, height_px, width_px)
    in_camera = (rig.T_device_cpf[:3, :3] @ in_cpf) @ camera.T_device_camera[:3, :3]
    x, y = (float(v) for v in camera.model.project(in_camera))
    return (width_px - 1 - y, x) if rig.generation == 1 else (x, y)


def _camera(rig: Rig, height_px: int, width_px: int) -> Camera:
    camera = rig.cameras.get(RGB)
    if camera is None:
        there = ", ".join(rig.cameras) or "none"
        raise SourceError(f"text: expected a calibration of {RGB}, got {there}; without it text has no direction")
    return camera.scaled(*((height_px, width_px) if rig.generation == 1 else (width_px, height_px)))


def _angles(camera: Camera, rig: Rig, px: F64) -> F64:
    """Native pixels [..., 2] -> (bearing, elevation) [..., 2] in degrees."""
    in_device = camera.model.unproject(px) @ camera.T_device_camera[:3, :3].T
    left, up, ahead = np.moveaxis(in_device @ rig.T_device_cpf[:3, :3], -1, 0)
    angles: F64 = np.degrees(np.stack([np.arctan2(-left, ahead), np.arctan2(up, np.hypot(left, ahead))], axis=-1))
    return angles
