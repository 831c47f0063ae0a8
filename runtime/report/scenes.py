"""One kept frame as plain data for the page's script: pictures, outlines, and the scene as seen by the wearer.

Bearings in degrees clockwise from the reference heading (negative left), distances in metres, times in seconds.
"""

from __future__ import annotations

import base64
from typing import Any

from handrail.runtime.redacted import Redacted
from handrail.runtime.report.builder import Frame
from handrail.runtime.report.draw import drawn_width_m
from handrail.runtime.scene import Obstacle, Scene, Thing, wrap_deg
from handrail.runtime.summary import Run, relevance, side_of

DEGREES = 180.0 / 3.141592653589793


def frame_data(frame: Frame, run: Run) -> dict[str, Any]:
    scene = frame.scene
    first_device_ns = run.started.first_device_ns if run.started is not None else scene.device_ns
    state = next((e.state.value for e in reversed(run.states) if e.t_ns <= frame.t_ns), "starting")
    w, c = scene.wearer, scene.coverage
    return {
        "t": round(frame.t_ns / 1e9, 3),
        "captured": round((scene.device_ns - first_device_ns) / 1e9, 3),
        "alert": frame.alert,
        "state": state,
        "image": jpeg_uri(frame.picture.image) if frame.picture else None,
        "depth": jpeg_uri(frame.picture.depth) if frame.picture else None,
        "size": list(frame.picture.image.pixels.shape[1::-1]) if frame.picture else None,
        "obstacles": [_obstacle(o, frame) for o in scene.obstacles],
        "nose": round(wrap_deg((w.reference_rad - w.nose_rad) * DEGREES), 1),
        "walking": w.travel_rad is not None,
        "speed": round(w.speed_msec, 2),
        "motion": w.motion_from,
        "coverage": None if c is None else {
            "left": round(c.left_deg, 1), "right": round(c.right_deg, 1), "known": round(c.corridor_known, 2),
            "floor": round(c.floor_seen_to_m, 1), "head": c.head_known,
        },
        "quality": scene.quality.reason,
        "says": describe(scene),
    }


def _obstacle(o: Obstacle, frame: Frame) -> dict[str, Any]:
    distance_m, bearing_deg = o.seen_from(frame.scene.wearer)
    seen = o.last_device_ns == frame.scene.device_ns
    line = frame.picture.outlines.get(o.id) if frame.picture is not None else None
    return {
        "what": name_of(o),
        "kind": "drop" if o.thing is Thing.DROP_OFF else "head" if o.band == "head" else "obstacle",
        "band": o.band.value,
        "bottom": round(o.bottom_m, 2),
        "top": round(o.top_m, 2),
        "distance": round(distance_m, 2),
        "bearing": round(bearing_deg, 1),
        "side": side_of(bearing_deg),
        "distance_sd": round(o.distance_sd_m, 2),
        "bearing_sd": round(o.bearing_sd_deg, 1),
        # Across the line of sight *when seen*: once the wearer has moved on, nobody knows which way it lies.
        "width": round(drawn_width_m(o), 2) if seen else None,
        "confirmed": o.confirmed,
        "seen": seen,
        "age": round((frame.scene.device_ns - o.last_device_ns) / 1e9, 1),
        "points": line.points if line is not None else None,
        "mark": line.mark if line is not None else None,
    }


def name_of(o: Obstacle) -> str:
    return o.label or ("drop-off" if o.thing is Thing.DROP_OFF else "obstacle")


def describe(scene: Scene) -> str:
    """The scene in one sentence, what lies ahead first: what the picture shows, for those who can't see it."""
    confirmed = [(*o.seen_from(scene.wearer), o) for o in scene.obstacles if o.confirmed]
    confirmed.sort(key=lambda found: relevance(found[1], found[0]))
    if not scene.quality.usable:
        return f"This frame can't be judged: {scene.quality.reason}."
    if not confirmed:
        return "No confirmed obstacle. That is not a promise: unknown areas are marked."
    told = []
    for distance_m, bearing_deg, o in confirmed[:6]:
        told.append(f"{name_of(o)} at {o.band.value} height, {distance_m:.1f} m, {side_of(bearing_deg)}")
    more = f"; and {len(confirmed) - 6} more" if len(confirmed) > 6 else ""
    return "; ".join(told).capitalize() + more + "."


def jpeg_uri(image: Redacted) -> str:
    """A picture inside the page."""
    if not isinstance(image, Redacted):  # types alone don't stop a caller that isn't checked
        raise TypeError(f"report: expected a Redacted image, got {type(image).__name__}")
    return "data:image/jpeg;base64," + base64.b64encode(image.jpeg()).decode()
