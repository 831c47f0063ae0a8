"""What a simulated walk can be asked for, and the seeded random generators that everything in it comes from.

``world:7?gen=2&seconds=20&kind=mixed&pitch=20``. Knows no geometry.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from handrail.streams.errors import SourceError

KINDS = (
    "mixed",  # textured obstacles and at most one special one
    "textured",
    "plain-wall",  # free-standing walls of uniform albedo in the path
    "pole",
    "glass",
    "dusk",  # textured obstacles, little light
    "head-bar",  # at head height, nothing below
    "step-down",  # the corridor ends in stairs going down
    "free",  # nothing in the path
    "head-turn",  # straight on, while the head turns up to 60 degrees each way
)
VALID = "gen=1|2, seconds=2..120, kind=" + "|".join(KINDS) + ", pitch=1..45"


@dataclass(frozen=True, slots=True)
class WorldOptions:
    seed: int
    generation: int  # of the glasses
    seconds: float  # length of the walk; a walk to stairs ends earlier
    kind: str
    pitch_deg: float  # the head's pitch stays within it, up and down

    def random(self, purpose: str) -> np.random.Generator:
        """A generator of its own for each purpose, so that a change in one part of the world moves no other."""
        return np.random.default_rng([self.seed, zlib.crc32(purpose.encode())])


def parse_options(seed_text: str, options: Mapping[str, str]) -> WorldOptions:
    """Raises SourceError that names the option, what it was given and what is valid."""
    unknown = sorted(set(options) - {"gen", "seconds", "kind", "pitch"})
    if unknown:
        raise SourceError(f"world option {unknown[0]!r} is unknown: expected {VALID}")
    if not (seed_text.isascii() and seed_text.isdigit() and len(seed_text) <= 18):
        raise SourceError(f"world:{seed_text}: expected a whole number from 0 as the seed, e.g. world:7")
    kind = options.get("kind", "mixed")
    if kind not in KINDS:
        raise SourceError(f"world option kind={kind!r}: expected one of {', '.join(KINDS)}")
    return WorldOptions(
        seed=int(seed_text),
        generation=int(_number(options, "gen", 2, (1, 2))),
        seconds=_number(options, "seconds", 20, (2, 120)),
        kind=kind,
        pitch_deg=_number(options, "pitch", 20, (1, 45)),
    )


def _number(options: Mapping[str, str], name: str, default: float, limits: tuple[float, float]) -> float:
    text = options.get(name)
    if text is None:
        return float(default)
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not limits[0] <= value <= limits[1] or (name == "gen" and value != int(value)):
        raise SourceError(f"world option {name}={text!r}: expected a number in {limits[0]}..{limits[1]} ({VALID})")
    return value
