"""The corridor a walk goes through: floor, walls, ceiling, lamps, and what stands in it. Seeded, metres, world frame.

Things are placed in coordinates of the path (along, to the left) so that it is known which of them are met. Between
0.45 m (the walking corridor) and 0.6 m to the side nothing is ever placed: what is in the way is never a close call.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np

from handrail.streams.world.options import WorldOptions
from handrail.streams.world.solids import Face, Material, Prism, box, pole
from handrail.streams.world.walk import F64, Walk

BEHIND_M = 4.0  # the corridor begins so far behind the start
TREAD_M, RISER_M, STEPS = 0.28, 0.17, 8
BODY_FRONT_M = 0.20  # chest and toes, ahead of the body's axis
AFTER_EDGE_S = 0.3  # a walk over an edge ends so long after reaching it
KEEP_ASIDE_M = 0.62  # things along the walls stay so far from the path


@dataclass(frozen=True, slots=True)
class Thing:
    """Something in the corridor. ``prism`` of a step down: the lower part, its top at the floor that ends."""

    kind: str  # "ground", "knee", "waist", "head", "plain-wall", "pole", "glass", "head-bar", "step-down", "aside"
    label: str  # in words
    prism: Prism
    material: Material

    @property
    def textured(self) -> bool:
        return self.material.contrast >= 0.1 and self.kind not in ("glass", "step-down")


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
    things = _in_the_way(options, walk, gone_m, edge_m)
    left, right = rng.uniform(1.0, 1.5), -rng.uniform(1.0, 1.5)
    if edge_m is not None:
        things.append(_step_down(rng, edge_m, left, right))
    height = rng.uniform(2.4, 2.8)
    end_m = (gone_m if edge_m is None else edge_m + STEPS * TREAD_M) + rng.uniform(5.0, 8.0)
    things += _along_the_walls(options.random("walls"), walk, left, right, end_m if edge_m is None else edge_m, things)
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


def path_to_world(walk: Walk, along_m: float, left_m: float) -> tuple[float, float]:
    c, s = math.cos(walk.heading_rad), math.sin(walk.heading_rad)
    return along_m * c - left_m * s, walk.start_y_m + along_m * s + left_m * c


def _edge(options: WorldOptions, gone_m: float) -> float | None:
    """Where the floor ends (along the path, and along x: the path's heading is under half a degree), or None."""
    rng = options.random("edge")
    share, chance = rng.uniform(0.75, 0.92), rng.random()
    if options.kind == "step-down" or (options.kind == "mixed" and chance < 0.15 and gone_m > 6.0):
        return max(2.0, min(share * gone_m, gone_m - 0.6))  # reached, and gone over, within the time there is
    return None


_SPECIALS = ("plain-wall", "pole", "glass", "head-bar")


def _in_the_way(options: WorldOptions, walk: Walk, gone_m: float, edge_m: float | None) -> list[Thing]:
    """What the walk would run into, 3.5 to 5.5 m apart."""
    rng = options.random("obstacles")
    things: list[Thing] = []
    last_m = gone_m - 0.5 if edge_m is None else edge_m - 4.5
    spots = []
    along = rng.uniform(4.5, 6.0)
    while along < last_m and options.kind != "free":
        spots.append(along)
        along += rng.uniform(3.5, 5.5)
    special = int(rng.integers(len(spots))) if options.kind == "mixed" and edge_m is None and spots else -1
    for i, spot in enumerate(spots):
        if options.kind in _SPECIALS:
            kind = options.kind
        elif i == special:
            kind = str(rng.choice(_SPECIALS))
        else:
            kind = str(rng.choice(("ground", "knee", "waist", "head"), p=(0.25, 0.3, 0.25, 0.2)))
        things.append(_obstacle(rng, walk, kind, spot))
    return things


def _step_down(rng: np.random.Generator, edge_m: float, left: float, right: float) -> Thing:
    far = edge_m + STEPS * TREAD_M
    lower = Prism(np.array([[edge_m, right], [far, right], [far, left], [edge_m, left]]), -STEPS * RISER_M, 0.0)
    return Thing("step-down", "stairs going down", lower, _carpet(rng))


def _obstacle(rng: np.random.Generator, walk: Walk, kind: str, along_m: float) -> Thing:
    """One thing that reaches into the walking corridor by 0.15 m at the least."""
    where = path_to_world(walk, along_m, rng.uniform(-0.3, 0.3))
    across = walk.heading_rad
    turned = across + math.radians(rng.uniform(-25, 25))
    material = _textured(rng)
    draw = rng.uniform

    def cuboid(label: str, length: float, width: float, bottom: float, top: float) -> Thing:
        turn = turned if material.contrast >= 0.1 else across
        return Thing(kind, label, box(where, length, width, turn, bottom, top), material)

    match kind:
        case "ground":
            return cuboid("low box", draw(0.25, 0.6), draw(0.4, 0.8), 0.0, draw(0.18, 0.35))
        case "knee":
            return cuboid("box", draw(0.3, 0.5), draw(0.35, 0.7), 0.0, draw(0.42, 0.8))
        case "waist" if rng.random() < 0.3:  # a table top or counter: nothing stands below its edge
            top = draw(0.95, 1.3)
            return cuboid("board", draw(0.4, 0.6), draw(0.6, 1.0), top - draw(0.08, 0.14), top)
        case "waist":
            return cuboid("cabinet", draw(0.3, 0.5), draw(0.4, 0.7), 0.0, draw(0.9, 1.38))
        case "head":
            bottom = draw(1.40, walk.eye_height_m + 0.02)
            return cuboid("hanging board", draw(0.05, 0.4), draw(0.5, 1.0), bottom, min(2.0, bottom + draw(0.25, 0.4)))
        case "head-bar":
            material = Material(draw(0.2, 0.7), 0.05, tint=(1.1, 1.0, 0.8))
            bottom = draw(1.42, walk.eye_height_m + 0.02)
            return cuboid("bar", draw(0.05, 0.1), draw(1.2, 1.8), bottom, bottom + draw(0.05, 0.1))
        case "plain-wall":
            material = Material(draw(0.55, 0.8), 0.0)
            return cuboid("plain wall", 0.12, draw(0.9, 1.3), 0.0, 2.3)
        case "pole":
            return Thing(kind, "pole", pole(where, draw(0.02, 0.05), 0.0, 2.3), Material(draw(0.15, 0.7), 0.05))
        case "glass":
            material = Material(0.04, 0.0)
            return cuboid("glass pane", 0.012, draw(0.8, 1.2), 0.0, 2.1)
    raise AssertionError(kind)


def _along_the_walls(
    rng: np.random.Generator, walk: Walk, left: float, right: float, end_m: float, taken: list[Thing]
) -> list[Thing]:
    """Cabinets, boxes and pictures along both walls, out of the way."""
    things = []
    for wall, inward in ((left, -1.0), (right, 1.0)):
        x = -2.0 + rng.uniform(0.0, 2.0)
        while x < end_m - 1.5:
            length = rng.uniform(0.4, 1.4)
            middle = x + length / 2
            path_y = walk.start_y_m + middle * math.tan(walk.heading_rad)
            room = min(0.5, abs(wall - path_y) - KEEP_ASIDE_M)
            deep = rng.uniform(0.15, 0.5)
            picture = deep > room or rng.random() < 0.35
            bottom, top = (rng.uniform(1.1, 1.4), rng.uniform(1.7, 2.0)) if picture else (0.0, rng.uniform(0.3, 1.9))
            deep = 0.04 if picture else deep
            material = _textured(rng) if rng.random() < 0.8 else Material(rng.uniform(0.3, 0.7), 0.0)
            shape = box((middle, wall + inward * deep / 2), length, deep, 0.0, bottom, top)
            if not any(_too_near(shape, thing.prism) for thing in taken):
                things.append(Thing("aside", "picture" if picture else "cabinet", shape, material))
            x += length + rng.uniform(0.6, 2.4)
    return things


def _too_near(a: Prism, b: Prism) -> bool:
    """Whether their bounding rectangles come within 0.1 m of each other."""
    a_low, a_high = a.footprint.min(axis=0) - 0.1, a.footprint.max(axis=0) + 0.1
    return bool(((a_low < b.footprint.max(axis=0)) & (b.footprint.min(axis=0) < a_high)).all())


def _textured(rng: np.random.Generator) -> Material:
    tint = tuple(float(v) for v in rng.uniform(0.6, 1.4, 3))
    return Material(rng.uniform(0.25, 0.6), rng.uniform(0.25, 0.45), rng.uniform(0.5, 1.2), (tint[0], tint[1], tint[2]))


def _carpet(rng: np.random.Generator) -> Material:
    return Material(rng.uniform(0.2, 0.4), rng.uniform(0.2, 0.35), rng.uniform(0.6, 1.0), (0.9, 1.0, 1.1))


def _shell(
    rng: np.random.Generator, left: float, right: float, height: float, end_m: float, edge_m: float | None
) -> list[Face]:
    """Floor (with stairs down after the edge), walls, ceiling and both ends, in pieces of a few metres."""
    floor = _carpet(rng)
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
