"""A simulated walk with a perfect detector: boxes around what is really there, drawn into the upright RGB picture.

For tests alone. The words are chosen by size, so that each thing can be what it is called; a box's score tells whose it
is. The way into the picture is the test's own: native pixels from the camera model, the quarter turn by an index map.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from world_looks import truth, walked

from handrail.runtime.labels.detector import Box
from handrail.runtime.labels.names import SAID
from handrail.runtime.reflex.reflex import Reflex
from handrail.runtime.reflex.runner import Look, see_with
from handrail.runtime.scene import Scene
from handrail.streams.cameras import Camera, Rig
from handrail.streams.samples import ImageFrame
from handrail.streams.world.truth import TrueObstacle, Truth

F64 = NDArray[np.float64]
RGB = "camera-rgb"


@dataclass(frozen=True)
class LabelledWalk:
    rig: Rig
    truth: Truth
    scenes: tuple[Scene, ...]

    def size(self) -> tuple[int, int]:
        """Width and height of the upright picture."""
        c = self.rig.cameras[RGB]
        return (c.height, c.width) if self.rig.generation == 1 else (c.width, c.height)

    def boxes(self, device_ns: int) -> dict[int, Box]:
        """By the index of the thing, those of which stereo can see something, too; the score is 0.5 and the index in
        thousandths."""
        there = {}
        for o in self.truth.obstacles:
            word = word_for(o)
            if word is not None and self.truth.visible_to_pair(o, device_ns):
                px = upright_pixels(self.rig, _surface(o), self.truth.pose_at(device_ns).T_world_device)
                if len(px):
                    (left, top), (right, bottom) = px.min(axis=0), px.max(axis=0)
                    there[o.index] = Box(word, 0.5 + o.index / 1000, left, top, right, bottom)
        return there


def word_for(o: TrueObstacle) -> str | None:
    """By height, and by width: None where nothing that is said is like it."""
    tall_m = o.prism.top_m - o.prism.bottom_m
    wide_m = math.dist(o.prism.footprint.min(axis=0), o.prism.footprint.max(axis=0))
    if o.drop_off or o.prism.bottom_m > 0.05:
        return None
    able = (name for name, s in SAID.items() if s.least_m <= tall_m <= s.most_m and wide_m <= s.widest_m)
    return next(able, None)


def labelled_walk(seed: int, kind: str, seconds: float, gen: int) -> LabelledWalk:
    walk = walked(seed, kind, seconds, gen)
    reflex, scenes, imu = Reflex(walk.rig, threads=1), [], list(walk.imu)
    for ns, left, right in walk.pairs:
        due = [(label, batch) for label, batch in imu if batch.device_ns[-1] <= ns]
        imu = imu[len(due) :]
        first, second = (ImageFrame(px, px.shape[1], px.shape[0], 1e-3, 1.0, 0) for px in (left, right))
        scenes.append(see_with(reflex, Look(ns, first, second, tuple(due), ())))
    return LabelledWalk(walk.rig, truth(seed, kind, seconds, gen), tuple(scenes))


def upright_pixels(rig: Rig, points_world: F64, T_world_device: F64, label: str = RGB) -> F64:
    """[N, 2] of those that are seen."""
    camera = rig.cameras[label]
    in_device = (points_world - T_world_device[:3, 3]) @ T_world_device[:3, :3]
    ahead = (in_device - camera.T_device_camera[:3, 3]) @ camera.T_device_camera[:3, 2] > 0.05
    px, seen = camera.project(in_device[ahead])
    px = px[seen]
    return turned(camera, px) if rig.generation == 1 else px


def turned(camera: Camera, px: F64) -> F64:
    """Where pixels of the native picture are found after a quarter turn clockwise, by turning their coordinates."""
    v, u = np.mgrid[0 : camera.height, 0 : camera.width]
    at = np.stack([np.rot90(u, k=3), np.rot90(v, k=3)], axis=-1)  # native (u, v) of each upright pixel
    across, down = at[0, :, 1], at[:, 0, 0]  # each depends on one of the two alone
    x = np.interp(-px[:, 1], -across, np.arange(len(across)))
    y = np.interp(px[:, 0], down, np.arange(len(down)))
    return np.stack([x, y], axis=1)


def _surface(o: TrueObstacle) -> F64:
    return o.prism.surface_points(0.03)
