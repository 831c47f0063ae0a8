"""What is really there on a simulated walk, for scoring. Nothing that runs on the glasses may import this module.

Bearings are in degrees clockwise from the travel heading, distances in metres along the floor from the point below the
eyes, heights above the upper floor, as in ``handrail.streams``. Knows nothing of what was seen or said.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from handrail.streams.cameras import Camera
from handrail.streams.world.cast import Caster
from handrail.streams.world.place import BODY_FRONT_M, time_at
from handrail.streams.world.scenario import Scenario, device_ns, scenario, walk_s
from handrail.streams.world.solids import Prism, clip_strip, nearest_point
from handrail.streams.world.things import RISER_M, TREAD_M, Thing
from handrail.streams.world.walk import F64

CORRIDOR_HALF_WIDTH_M = 0.45  # shoulders plus a margin, as in runtime.scene
CROWN_M = 0.12  # top of the head above the eyes
LOWEST_OBSTACLE_M = 0.10
BANDS_M = {"ground": (0.10, 0.35), "knee": (0.35, 0.80), "waist": (0.80, 1.40), "head": (1.40, 2.00)}
SEEN_SHARE = 0.1  # of the points on an obstacle: about a third of the side that faces the wearer


@dataclass(frozen=True, slots=True)
class TrueObstacle:
    """One solid. ``bands`` are all it reaches into, lowest first; "head" alone means that nothing is below."""

    index: int  # along the path; the order of ``Truth.obstacles``
    kind: str  # "ground", "knee", "waist", "head", "plain-wall", "pole", "glass", "head-bar", "step-down", "aside"
    label: str
    textured: bool
    drop_off: bool
    bands: tuple[str, ...]  # empty for a drop-off
    prism: Prism  # world frame; a drop-off's begins at the edge and reaches down
    contact_ns: int | None  # device time at which the unwarned walker's front touches it; None: never on this walk


@dataclass(frozen=True, slots=True)
class Sighting:
    """Where an obstacle is from the wearer: its nearest point, in the walking corridor if any of it is there ahead."""

    distance_m: float
    bearing_deg: float
    point_m: F64  # [2] world
    in_corridor: bool


@dataclass(frozen=True, slots=True)
class TruePose:
    device_ns: int
    T_world_cpf: F64  # [4, 4]
    T_world_device: F64  # [4, 4]
    velocity_msec: F64  # [3] of the cpf, world
    speed_msec: float  # of the body along its path, without the sway of each step
    walking: bool  # faster than 0.3 m/s
    travel_rad: float  # heading of the path, counter-clockwise from world x
    nose_rad: float
    pitch_rad: float  # nose above the horizon positive
    floor_m: float  # height of the floor below the eyes
    eye_height_m: float  # above that floor


class Truth:
    def __init__(self, world: Scenario) -> None:
        self._world = world
        self._caster = Caster(world.place.faces)
        self._T_cpf_device = np.linalg.inv(world.rig.T_device_cpf)
        c, s = math.cos(world.walk.heading_rad), math.sin(world.walk.heading_rad)
        self._to_path = np.array([[c, s], [-s, c]])  # world [x, y] -> along, left
        self.first_device_ns = device_ns(0.0)
        self.last_device_ns = device_ns(world.place.duration_s)
        self._pose = self._pose_at(self.first_device_ns)
        things = sorted(world.place.things, key=lambda thing: float(self._path(thing.prism.footprint)[:, 0].min()))
        self.obstacles = tuple(self._obstacle(i, thing) for i, thing in enumerate(things))
        self._points = [self._corridor_points(o) for o in self.obstacles]

    def pose_at(self, at_ns: int) -> TruePose:
        if at_ns != self._pose.device_ns:  # asked for once per obstacle and frame
            self._pose = self._pose_at(at_ns)
        return self._pose

    def _pose_at(self, at_ns: int) -> TruePose:
        t = np.array([walk_s(at_ns)])
        walk = self._world.walk
        T = walk.T_world_cpf(t)[0]
        h = 1e-4
        velocity = (walk.T_world_cpf(t + h)[0, :3, 3] - walk.T_world_cpf(t - h)[0, :3, 3]) / (2 * h)
        speed = float(walk.speed_msec * walk.walking(t)[0])
        floor = self._floor_m(float(T[0, 3]))
        nose = T[:3, 2]
        return TruePose(
            at_ns, T, T @ self._T_cpf_device, velocity, speed, speed > 0.3, walk.heading_rad,
            math.atan2(nose[1], nose[0]), math.asin(nose[2]), floor, float(T[2, 3]) - floor,
        )

    def seen_from(self, obstacle: TrueObstacle, at_ns: int, reference_rad: float | None = None) -> Sighting:
        """The bearing is from ``reference_rad`` (world, counter-clockwise) where given, else from the travel heading;
        the corridor always follows the travel heading."""
        pose = self.pose_at(at_ns)
        eyes = pose.T_world_cpf[:2, 3]
        footprint = (obstacle.prism.footprint - eyes) @ self._to_path.T
        ahead = clip_strip(
            clip_strip(footprint, 1, -CORRIDOR_HALF_WIDTH_M, CORRIDOR_HALF_WIDTH_M), 0, 0.0, math.inf
        )
        nearest = nearest_point(ahead if len(ahead) else footprint, np.zeros(2))
        point = eyes + nearest @ self._to_path
        off = point - eyes
        reference = pose.travel_rad if reference_rad is None else reference_rad
        bearing = math.degrees(reference - math.atan2(off[1], off[0]))
        return Sighting(float(np.hypot(*nearest)), (bearing + 180.0) % 360.0 - 180.0, point, len(ahead) > 0)

    def visible_to_pair(self, obstacle: TrueObstacle, at_ns: int) -> bool:
        """Whether both forward SLAM cameras see at least a tenth of the points on its part in the corridor (of all of
        it, where nothing is in the corridor): inside the lens circle, nothing opaque before it."""
        pair = self._world.rig.stereo_pair
        assert pair is not None
        points = self._points[obstacle.index]
        T = self.pose_at(at_ns).T_world_device
        seen = np.ones(len(points), dtype=bool)
        for label in pair:
            seen &= self._sees(self._world.rig.cameras[label], T, points)
        return bool(seen.mean() >= SEEN_SHARE)

    def _sees(self, camera: Camera, T_world_device: F64, points: F64) -> np.typing.NDArray[np.bool_]:
        _, inside = camera.project((points - T_world_device[:3, 3]) @ T_world_device[:3, :3])
        eye = (T_world_device @ camera.T_device_camera)[:3, 3]
        rays = points - eye
        length = np.linalg.norm(rays, axis=1)
        direct = (1.0 - 0.01 / np.maximum(length, 0.02)).astype(np.float32)  # stop 1 cm before the point
        blocked = self._caster.blocked(eye.astype(np.float32), rays.astype(np.float32), direct)
        return np.asarray(inside & ~blocked)

    def _obstacle(self, index: int, thing: Thing) -> TrueObstacle:
        low, high = thing.prism.bottom_m, thing.prism.top_m
        drop = thing.kind == "step-down"
        bands = tuple(b for b, (bottom, top) in BANDS_M.items() if min(top, high) - max(bottom, low) > 0.01)
        if len(bands) > 1:
            bands = tuple(b for b in bands if b != "head")  # something is below
        return TrueObstacle(
            index, thing.kind, thing.label, thing.textured, drop, () if drop else bands, thing.prism,
            self._contact_ns(thing, drop),
        )

    def _contact_ns(self, thing: Thing, drop: bool) -> int | None:
        """The walk passes through what it touches; each obstacle's contact counts as if it were the only one."""
        walk, prism = self._world.walk, thing.prism
        if not drop and (prism.top_m <= LOWEST_OBSTACLE_M or prism.bottom_m >= walk.eye_height_m + CROWN_M):
            return None
        path = clip_strip(self._path(prism.footprint), 1, -CORRIDOR_HALF_WIDTH_M, CORRIDOR_HALF_WIDTH_M)
        if len(path) == 0 or path[:, 0].min() <= BODY_FRONT_M:
            return None
        at = device_ns(time_at(walk, float(path[:, 0].min()) - BODY_FRONT_M))
        return at if at <= self.last_device_ns else None

    def _path(self, xy: F64) -> F64:
        """World [..., 2] -> along the path and to its left, from where the walk starts."""
        return np.asarray((xy - [0.0, self._world.walk.start_y_m]) @ self._to_path.T)

    def _corridor_points(self, obstacle: TrueObstacle) -> F64:
        """[N, 3] points, 6 cm apart, on the part of an obstacle in the corridor; of a drop-off those on its edge."""
        half = CORRIDOR_HALF_WIDTH_M
        path = self._path(obstacle.prism.footprint)
        inside = clip_strip(path, 1, -half, half)
        start = np.array([0.0, self._world.walk.start_y_m])
        if obstacle.drop_off:
            edge = np.stack([np.full(15, inside[:, 0].min()), np.linspace(-half, half, 15)], axis=-1)
            return np.column_stack([edge @ self._to_path + start, np.full(15, 0.005)])
        part = (inside if len(inside) >= 3 else path) @ self._to_path + start
        return Prism(part, obstacle.prism.bottom_m, obstacle.prism.top_m).surface_points(0.06)

    def _floor_m(self, x_m: float) -> float:
        for thing in self._world.place.things:
            if thing.kind == "step-down" and x_m > (edge := float(thing.prism.footprint[:, 0].min())):
                return max(-RISER_M * math.ceil((x_m - edge) / TREAD_M), thing.prism.bottom_m)
        return 0.0


def truth_of(seed_text: str, options: Mapping[str, str]) -> Truth:
    """The truth behind ``world:SEED?options``. Raises SourceError for a wrong option, as opening the source does."""
    return Truth(scenario(seed_text, options))
