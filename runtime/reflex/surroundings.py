"""Depth and pose in, scene out: floor, obstacles, drop-offs, coverage and tracks, tied together over time.

Knows nothing of images, matching or IMUs: those are ``reflex``'s. Pure: the same views and poses give the same scenes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from handrail.runtime.reflex.coverage import coverage
from handrail.runtime.reflex.depth import DepthView, Pose
from handrail.runtime.reflex.drops import find_drop_off, look_at_floor
from handrail.runtime.reflex.field import Field, Here
from handrail.runtime.reflex.ground import Floor, GroundFilter
from handrail.runtime.reflex.heading import NECK_IN_CPF_M, Travel
from handrail.runtime.reflex.obstacles import find_obstacles
from handrail.runtime.reflex.rays import LevelRays
from handrail.runtime.reflex.tracks import Tracks
from handrail.runtime.scene import Coverage, FrameQuality, Scene, Wearer

F64 = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class _Head:
    x_m: float  # of the eyes, level frame
    y_m: float
    z_m: float
    neck_m: F64  # [3]
    nose_rad: float
    pitch_rad: float
    turn_rate_radsec: float


class Surroundings:
    """``see`` once a frame, in order of time; ``mark`` is called with the name of each stage as it ends."""

    def __init__(self, T_device_cpf: F64) -> None:
        self._T_device_cpf = T_device_cpf
        self._ground, self._tracks, self._travel = GroundFilter(), Tracks(), Travel()

    def reset(self) -> None:
        """The scene starts anew: a seam."""
        self._ground.reset()
        self._tracks.reset()
        self._travel.reset()

    def see(
        self, view: DepthView | None, pose: Pose, quality: FrameQuality, mark: Callable[[str], None] = lambda _: None
    ) -> Scene:
        """``view`` None: the frame can't be used; what was seen before grows old."""
        head = self._head(pose)
        speed_sd = math.sqrt(float(pose.velocity_cov[0, 0] + pose.velocity_cov[1, 1]) / 2)
        self._travel.update(pose.device_ns, head.neck_m, speed_sd)
        travel = self._travel.heading_rad
        here = Here(head.x_m, head.y_m, head.nose_rad if travel is None else travel)
        known: Coverage | None = None
        floor: Floor | None = None
        if view is None:
            self._tracks.predict(pose)
        else:
            rays = LevelRays.of(view, pose)
            floor = self._ground.update(rays, pose)
            mark("ground")
            found = find_obstacles(Field.of(rays, floor, here), here)
            sightings = found.sightings
            strip = look_at_floor(rays, floor, here)
            drop_off = find_drop_off(strip, floor, here, rays.sd_inverse)
            if drop_off is not None:
                sightings.append(drop_off)
            known = coverage(rays, floor, here, strip)
            mark("obstacles")
            self._tracks.update(sightings, found.hints, rays, strip, floor, pose, here, walking=travel is not None)
            mark("tracks")
        wearer = Wearer(
            x_m=head.x_m, y_m=head.y_m, eye_height_m=_eye_height(floor, head), nose_rad=head.nose_rad,
            travel_rad=travel, speed_msec=self._travel.speed_msec, speed_sd_msec=speed_sd,
            position_sd_m=math.sqrt(max(float(np.trace(pose.position_cov)) / 3, 0.0)),
            turn_rate_radsec=head.turn_rate_radsec, pitch_rad=head.pitch_rad, motion_from=pose.source,
        )
        return Scene(pose.device_ns, wearer, self._tracks.obstacles(here), known, quality)

    def _head(self, pose: Pose) -> _Head:
        eyes = pose.device_in_level_m + pose.R_level_device @ self._T_device_cpf[:3, 3]
        nose = pose.R_level_device @ self._T_device_cpf[:3, 2]
        neck = eyes + pose.R_level_device @ self._T_device_cpf[:3, :3] @ NECK_IN_CPF_M
        turning = pose.R_level_device @ pose.angular_velocity_radsec
        return _Head(
            float(eyes[0]), float(eyes[1]), float(eyes[2]), neck, math.atan2(nose[1], nose[0]),
            math.asin(float(np.clip(nose[2], -1.0, 1.0))), float(turning[2]),
        )


def _eye_height(floor: Floor | None, head: _Head) -> float | None:
    if floor is None or not floor.known:
        return None
    x, y = np.array([head.x_m], dtype=np.float32), np.array([head.y_m], dtype=np.float32)
    return round(head.z_m - float(floor.z_at(x, y)[0]), 3)
