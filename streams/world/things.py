"""What stands in the corridor: in the walker's way, along the walls, and the stairs. Seeded, metres, world frame.

Things are placed in coordinates of the path (along, to the left) so that it is known which of them are met. Between
0.45 m (the walking corridor) and 0.6 m to the side nothing is ever placed: what is in the way is never a close call.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from handrail.streams.world.options import WorldOptions
from handrail.streams.world.solids import Material, Prism, box, pole
from handrail.streams.world.walk import Walk

TREAD_M, RISER_M, STEPS = 0.28, 0.17, 8
KEEP_ASIDE_M = 0.62  # things along the walls stay so far from the path
SPECIALS = ("plain-wall", "pole", "glass", "head-bar")


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


def path_to_world(walk: Walk, along_m: float, left_m: float) -> tuple[float, float]:
    c, s = math.cos(walk.heading_rad), math.sin(walk.heading_rad)
    return along_m * c - left_m * s, walk.start_y_m + along_m * s + left_m * c


def in_the_way(options: WorldOptions, walk: Walk, gone_m: float, edge_m: float | None) -> list[Thing]:
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
        if options.kind in SPECIALS:
            kind = options.kind
        elif i == special:
            kind = str(rng.choice(SPECIALS))
        else:
            kind = str(rng.choice(("ground", "knee", "waist", "head"), p=(0.25, 0.3, 0.25, 0.2)))
        things.append(_obstacle(rng, walk, kind, spot))
    return things


def step_down(rng: np.random.Generator, edge_m: float, left: float, right: float) -> Thing:
    far = edge_m + STEPS * TREAD_M
    lower = Prism(np.array([[edge_m, right], [far, right], [far, left], [edge_m, left]]), -STEPS * RISER_M, 0.0)
    return Thing("step-down", "stairs going down", lower, carpet(rng))


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


def along_the_walls(
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


def carpet(rng: np.random.Generator) -> Material:
    return Material(rng.uniform(0.2, 0.4), rng.uniform(0.2, 0.35), rng.uniform(0.6, 1.0), (0.9, 1.0, 1.1))
