"""Scenes by hand, for tests: a walker at the origin who looks and walks along x unless told otherwise."""

from __future__ import annotations

import math

from handrail.runtime.scene import Band, Coverage, FrameQuality, Obstacle, Scene, Thing, Wearer

NS_PER_S = 1_000_000_000


def walker(
    x_m: float = 0.0, y_m: float = 0.0, speed_msec: float = 1.3, nose_deg: float = 0.0, travel_deg: float | None = 0.0,
    motion_from: str = "vio",
) -> Wearer:  # fmt: skip
    """Standing still with ``travel_deg=None``. Angles counter-clockwise."""
    travel = None if travel_deg is None else math.radians(travel_deg)
    speed = 0.0 if travel is None else speed_msec
    return Wearer(x_m, y_m, 1.6, math.radians(nose_deg), travel, speed, 0.1, 0.0, 0.0, 0.0, motion_from)


def thing(
    x_m: float, y_m: float = 0.0, *, id: int = 1, thing: Thing = Thing.OBSTACLE, band: Band = Band.WAIST,
    velocity: tuple[float, float] | None = None, confirmed: bool = True, seen_ns: int = 0, label: str | None = None,
    distance_sd_m: float = 0.1, bearing_sd_deg: float = 1.0, width_m: float = 0.4,
) -> Obstacle:  # fmt: skip
    vx, vy = velocity or (0.0, 0.0)
    return Obstacle(
        id, thing, band, x_m, y_m, distance_sd_m, bearing_sd_deg, width_m, 1.2, 0.0, vx, vy, velocity is not None, 5,
        confirmed, 0, seen_ns, label,
    )  # fmt: skip


def look(
    t_s: float, wearer: Wearer, *obstacles: Obstacle, usable: bool = True, reason: str | None = None,
    known: float = 1.0,
) -> Scene:  # fmt: skip
    return Scene(
        round(t_s * NS_PER_S), wearer, obstacles, Coverage(-40, 40, -45, 20, known, True, 4.0),
        FrameQuality(100, 40, 1, usable, reason),
    )  # fmt: skip


def mirrored_wearer(w: Wearer) -> Wearer:
    travel = None if w.travel_rad is None else -w.travel_rad
    return Wearer(
        w.x_m, -w.y_m, w.eye_height_m, -w.nose_rad, travel, w.speed_msec, w.speed_sd_msec, w.position_sd_m,
        -w.turn_rate_radsec, w.pitch_rad, w.motion_from,
    )  # fmt: skip


def mirrored(o: Obstacle) -> Obstacle:
    return Obstacle(
        o.id, o.thing, o.band, o.x_m, -o.y_m, o.distance_sd_m, o.bearing_sd_deg, o.width_m, o.top_m, o.bottom_m,
        o.vx_msec, -o.vy_msec, o.moving, o.looks, o.confirmed, o.first_device_ns, o.last_device_ns, o.label,
    )  # fmt: skip
