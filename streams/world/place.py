"""The corridor a walk goes through: floor, walls, ceiling, lamps, and what stands in it. Seeded, metres, world frame.

Knows when the walk in it ends; what stands in it is made in ``things``.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np

from handrail.streams.world.options import WorldOptions
from handrail.streams.world.solids import Face, Material
from handrail.streams.world.things import RISER_M, STEPS, TREAD_M, Thing, along_the_walls, carpet, in_the_way, step_down
from handrail.streams.world.walk import F64, Walk

BEHIND_M = 4.0  # the corridor begins so far behind the start
BODY_FRONT_M = 0.20  # chest and toes, ahead of the body's axis
AFTER_EDGE_S = 0.3  # a walk over an edge ends so long after reaching it


@dataclass(frozen=True, slots=True)
class Lamp:
    centre: F64  # [3]
    half_m: float
    intensity_cd: float


@dataclass(frozen=True, slots=True)
class Place:
    things: tuple[Thing, ...]
    faces: tuple[Face, ...]  # all that is opaque
    panes: tuple[Face, ...]  # glass
    lamps: tuple[Lamp, ...]
    ambient_lux: float  # light from everywhere, before corners shut it out
    duration_s: float  # of the walk in it


def make_place(options: WorldOptions, walk: Walk) -> Place:
    rng = options.random("place")
    gone_m = float(walk.along_m(np.array([options.seconds]))[0])
    edge_m = _edge(options, gone_m)
    things = in_the_way(options, walk, gone_m, edge_m)
    left, right = rng.uniform(1.0, 1.5), -rng.uniform(1.0, 1.5)
    if edge_m is not None:
        things.append(step_down(rng, edge_m, left, right))
    height = rng.uniform(2.4, 2.8)
    end_m = (gone_m if edge_m is None else edge_m + STEPS * TREAD_M) + rng.uniform(5.0, 8.0)
    things += along_the_walls(options.random("walls"), walk, left, right, end_m if edge_m is None else edge_m, things)
    faces = _shell(rng, left, right, height, end_m, edge_m)
    panes: list[Face] = []
    for thing in things:
        if thing.kind == "glass":
            panes.append(_pane(thing))
            faces += _pane_edges(thing)
        elif thing.kind != "step-down":
            faces += thing.prism.faces(thing.material)
    lamps = _lamps(options, left, right, height, end_m)
    faces += [_lamp_face(lamp) for lamp in lamps]
    duration_s = options.seconds if edge_m is None else time_at(walk, edge_m - BODY_FRONT_M) + AFTER_EDGE_S
    ambient = 0.25 * sum(lamp.intensity_cd for lamp in lamps) / len(lamps)
    return Place(tuple(things), tuple(faces), tuple(panes), tuple(lamps), ambient, duration_s)


def time_at(walk: Walk, along_m: float) -> float:
    """When the body's axis has gone so far along the path, seconds; ``along_m`` > 0."""
    low, high = 0.0, 1.0
    while walk.along_m(np.array([high]))[0] < along_m:
        high *= 2.0
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if walk.along_m(np.array([middle]))[0] < along_m else (low, middle)
    return high


def _edge(options: WorldOptions, gone_m: float) -> float | None:
    """Where the floor ends (along the path, and along x: the path's heading is under half a degree), or None."""
    rng = options.random("edge")
    share, chance = rng.uniform(0.75, 0.92), rng.random()
    if options.kind == "step-down" or (options.kind == "mixed" and chance < 0.15 and gone_m > 6.0):
        return max(2.0, min(share * gone_m, gone_m - 0.6))  # reached, and gone over, within the time there is
    return None


def _shell(
    rng: np.random.Generator, left: float, right: float, height: float, end_m: float, edge_m: float | None
) -> list[Face]:
    """Floor (with stairs down after the edge), walls, ceiling and both ends, in pieces of a few metres."""
    floor = carpet(rng)
    wall = Material(rng.uniform(0.5, 0.7), rng.uniform(0.12, 0.25), 1.2, (1.05, 1.0, 0.95))
    ceiling = Material(0.75, rng.uniform(0.1, 0.2), 1.0)
    ends = Material(0.45, 0.35, 1.2, (1.1, 0.95, 0.8))
    width = left - right
    low = 0.0 if edge_m is None else -STEPS * RISER_M
    faces = []
    for a, b in _pieces(-BEHIND_M, end_m if edge_m is None else edge_m):
        faces.append(_rectangle((a, right, 0.0), (1, 0, 0), (0, 1, 0), b - a, width, floor))
    if edge_m is not None:
        for i in range(STEPS):
            x, z = edge_m + i * TREAD_M, -i * RISER_M
            faces.append(_rectangle((x, right, z - RISER_M), (0, 1, 0), (0, 0, 1), width, RISER_M, floor))
            faces.append(_rectangle((x, right, z - RISER_M), (1, 0, 0), (0, 1, 0), TREAD_M, width, floor))
        for a, b in _pieces(edge_m + STEPS * TREAD_M, end_m):
            faces.append(_rectangle((a, right, low), (1, 0, 0), (0, 1, 0), b - a, width, floor))
    for a, b in _pieces(-BEHIND_M, end_m):
        faces.append(_rectangle((a, right, height), (0, 1, 0), (1, 0, 0), width, b - a, ceiling))
        faces.append(_rectangle((a, left, low), (1, 0, 0), (0, 0, 1), b - a, height - low, wall))
        faces.append(_rectangle((b, right, low), (-1, 0, 0), (0, 0, 1), b - a, height - low, wall))
    faces.append(_rectangle((-BEHIND_M, right, low), (0, 1, 0), (0, 0, 1), width, height - low, ends))
    faces.append(_rectangle((end_m, left, low), (0, -1, 0), (0, 0, 1), width, height - low, ends))
    return faces


def _pieces(start: float, end: float, longest: float = 4.0) -> list[tuple[float, float]]:
    cuts = np.linspace(start, end, max(1, math.ceil((end - start) / longest)) + 1)
    return [(float(a), float(b)) for a, b in itertools.pairwise(cuts)]


def _rectangle(
    origin: tuple[float, float, float], u: tuple[int, int, int], v: tuple[int, int, int], du: float, dv: float,
    material: Material,
) -> Face:
    corners = np.array([[0.0, 0.0], [du, 0.0], [du, dv], [0.0, dv]])
    return Face(np.array(origin), np.array(u, dtype=np.float64), np.array(v, dtype=np.float64), corners, material)


def _pane(thing: Thing) -> Face:
    """The side of the pane that faces the walker; glass is thin enough to be one plane."""
    return max(thing.prism.faces(thing.material)[:4], key=lambda face: -face.normal[0])


def _pane_edges(thing: Thing) -> list[Face]:
    """The ground edges of the pane are all that is opaque about it."""
    rim = Material(0.12, 0.0, tint=(0.7, 1.2, 1.0))
    return sorted(thing.prism.faces(rim)[:4], key=lambda face: abs(face.normal[0]))[:2]


def _lamps(options: WorldOptions, left: float, right: float, height: float, end_m: float) -> list[Lamp]:
    rng = options.random("lamps")
    spacing = rng.uniform(2.2, 3.6)
    intensity = rng.uniform(250.0, 600.0) * (0.008 if options.kind == "dusk" else 1.0)
    lamps = []
    x = -BEHIND_M + 1.0
    while x < end_m:
        centre = np.array([x, 0.5 * (left + right), height - 0.02])
        lamps.append(Lamp(centre, 0.3, intensity * rng.uniform(0.6, 1.3)))
        x += spacing
    return lamps


def _lamp_face(lamp: Lamp) -> Face:
    size = 2 * lamp.half_m
    corner = (float(lamp.centre[0] - lamp.half_m), float(lamp.centre[1] + lamp.half_m), float(lamp.centre[2]))
    glow = Material(0.8, 0.0, glow=lamp.intensity_cd / (size * size))
    return _rectangle(corner, (1, 0, 0), (0, -1, 0), size, size, glow)
