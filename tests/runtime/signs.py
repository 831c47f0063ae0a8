"""Lines and sights for tests of scene text, put where a test wants them."""

from __future__ import annotations

import importlib.resources
import json

import numpy as np

from handrail.runtime.scenetext.reader import Line, line_of
from handrail.runtime.scenetext.sights import Sight
from handrail.streams.cameras import Rig

PX_PER_DEG = 12.0


def rig(generation: int) -> Rig:
    text = importlib.resources.files("handrail.streams.world").joinpath(f"gen{generation}.json").read_text()
    return Rig.from_json(json.loads(text))


def line_at(
    text: str, x: float, y: float, height_px: float = 20.0, confidence: float = 0.95, tilt_deg: float = 0.0
) -> Line:
    """Its middle at x, y px; as wide as its letters need."""
    half_w, half_h = 0.3 * height_px * max(1, min(len(text), 60)), height_px / 2
    corners = np.array([[-half_w, -half_h], [half_w, -half_h], [half_w, half_h], [-half_w, half_h]])
    c, s = np.cos(np.radians(tilt_deg)), np.sin(np.radians(tilt_deg))
    return line_of(text, confidence, corners @ np.array([[c, s], [-s, c]]) + (x, y))


def sight(
    text: str, bearing_deg: float = 0.0, elevation_deg: float = 0.0, confidence: float = 0.95, height_px: float = 20.0
) -> Sight:
    """As a picture with ``PX_PER_DEG`` and the nose at (700, 700) shows it."""
    line = line_at(text, 700 + PX_PER_DEG * bearing_deg, 700 - PX_PER_DEG * elevation_deg, height_px, confidence)
    width, height = np.ptp(line.quad, axis=0) / PX_PER_DEG
    return Sight(line, bearing_deg, elevation_deg, float(width), float(height))
