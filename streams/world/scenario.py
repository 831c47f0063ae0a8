"""One simulated walk as a whole: options, glasses, path and place; and how its time maps to the device clock.

The source draws from it, the truth is read off it. Cheap to make; nothing is rendered here.
"""

from __future__ import annotations

import importlib.resources
import json
from collections.abc import Mapping
from dataclasses import dataclass

from handrail.streams.cameras import Rig
from handrail.streams.world.options import WorldOptions, parse_options
from handrail.streams.world.place import Place, make_place
from handrail.streams.world.walk import Walk, make_walk

FIRST_DEVICE_NS = 10_000_000_000  # device time when the walk's time is 0


@dataclass(frozen=True, slots=True)
class Scenario:
    options: WorldOptions
    rig: Rig
    walk: Walk
    place: Place


def scenario(seed_text: str, options: Mapping[str, str]) -> Scenario:
    """Raises SourceError for an option that is unknown or out of range."""
    parsed = parse_options(seed_text, options)
    walk = make_walk(parsed)
    return Scenario(parsed, load_rig(parsed.generation), walk, make_place(parsed, walk))


def load_rig(generation: int) -> Rig:
    """Calibration of one real pair of glasses, serial numbers removed; the RGB camera at 352 pixels' width."""
    text = importlib.resources.files("handrail.streams.world").joinpath(f"gen{generation}.json").read_text()
    return Rig.from_json(json.loads(text))


def device_ns(t_s: float) -> int:
    return FIRST_DEVICE_NS + round(t_s * 1e9)


def walk_s(at_device_ns: int) -> float:
    return (at_device_ns - FIRST_DEVICE_NS) / 1e9
