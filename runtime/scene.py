"""What is where, how it moves, how the wearer moves, and what is *not* known. The reflex writes it, speech reads it.

Plain frozen structs that go into the event log as they are. Frames and signs: see ``handrail.streams``. Positions are
in the level frame, so that they stay put while the wearer moves; bearings and distances are worked out from them when
they are needed (``seen_from``), never stored for later speech.
"""

from __future__ import annotations

import math
from enum import StrEnum

import msgspec


class Band(StrEnum):
    """Where on the body an obstacle would hit: height of its parts above the floor, metres."""

    GROUND = "ground"  # 0.10 to 0.35: trips
    KNEE = "knee"  # 0.35 to 0.80
    WAIST = "waist"  # 0.80 to 1.40
    HEAD = "head"  # 1.40 to 2.00, and nothing below it: the cane misses it


BAND_TOPS_M = {Band.GROUND: 0.35, Band.KNEE: 0.80, Band.WAIST: 1.40, Band.HEAD: 2.00}
LOWEST_OBSTACLE_M = 0.10


class Thing(StrEnum):
    OBSTACLE = "obstacle"
    DROP_OFF = "drop_off"  # ground missing or stepping down


class Wearer(msgspec.Struct, frozen=True):
    """Where the wearer is and is going, level frame. Headings are mathematical: radians, counter-clockwise from x."""

    x_m: float
    y_m: float
    eye_height_m: float | None  # above the floor; None until a floor was seen
    nose_rad: float
    travel_rad: float | None  # direction of travel while walking, None while standing still
    speed_msec: float
    speed_sd_msec: float
    position_sd_m: float  # growth of position uncertainty since the start or the last seam
    turn_rate_radsec: float  # of the nose, positive to the left
    pitch_rad: float  # nose above the horizon positive
    motion_from: str  # "vio", "stereo", "imu" (orientation only): what translation rests on

    @property
    def reference_rad(self) -> float:
        """The heading that spoken directions refer to: of travel while walking, of the nose while standing still."""
        return self.nose_rad if self.travel_rad is None else self.travel_rad


class Obstacle(msgspec.Struct, frozen=True):
    id: int  # stable while it is tracked
    thing: Thing
    band: Band  # of its lowest part that matters; HEAD only when there is nothing below
    x_m: float  # nearest point, level frame
    y_m: float
    distance_sd_m: float  # of the distance when last seen
    bearing_sd_deg: float
    width_m: float  # across the line of sight
    top_m: float  # highest part seen, above the floor
    bottom_m: float  # lowest part seen, above the floor
    vx_msec: float  # its own motion over the floor, level frame; 0 when not established
    vy_msec: float
    moving: bool  # True when its motion is established
    looks: int  # frames in which it was seen
    confirmed: bool
    first_device_ns: int
    last_device_ns: int  # last frame in which it was seen
    label: str | None = None  # from a detector, when one is there

    def seen_from(self, w: Wearer) -> tuple[float, float]:
        """(distance_m, bearing_deg) of its nearest point now; bearing clockwise from the reference heading."""
        dx, dy = self.x_m - w.x_m, self.y_m - w.y_m
        return math.hypot(dx, dy), wrap_deg(math.degrees(w.reference_rad - math.atan2(dy, dx)))


class Coverage(msgspec.Struct, frozen=True):
    """Over which bearings and heights depth is known in the newest frame; outside is *unknown*, never free.

    Bearings in degrees clockwise from the reference heading, elevations in degrees above the horizon.
    """

    left_deg: float
    right_deg: float
    lowest_deg: float
    highest_deg: float
    corridor_known: float  # share of the walking corridor (to 4 m, visible part) where depth or floor was measured
    head_known: bool  # head height at 2.5 m ahead falls inside the view
    floor_seen_to_m: float  # along the corridor; 0 when no floor was seen


class FrameQuality(msgspec.Struct, frozen=True):
    """Whether a frame can be judged at all, from the rectified left image."""

    mean: float  # grey, 0..255
    contrast: float  # standard deviation of grey
    sharpness: float  # variance of the Laplacian over contrast^2; falls with blur
    usable: bool
    reason: str | None  # "dark", "saturated", "blurred", "covered", "frozen", "mismatched", "swapped" when not usable


class Scene(msgspec.Struct, frozen=True):
    device_ns: int  # capture of the newest frame it rests on
    wearer: Wearer
    obstacles: tuple[Obstacle, ...]  # confirmed and not, nearest first
    coverage: Coverage | None  # None: no depth in the newest frame
    quality: FrameQuality


CORRIDOR_HALF_WIDTH_M = 0.45  # shoulders plus a margin; the corridor follows the reference heading


def wrap_deg(angle: float) -> float:
    """To (-180, 180]."""
    a = math.fmod(angle + 180.0, 360.0)
    return a - 180.0 if a > 0 else a + 180.0


class Closing(msgspec.Struct, frozen=True):
    """How wearer and obstacle approach, going on as now, seen along their relative motion."""

    along_m: float  # to the point of the path that is nearest to it; negative once passed
    across_m: float  # that point's distance from it
    speed_msec: float  # relative


def closing(o: Obstacle, w: Wearer) -> Closing | None:
    """None when they don't move relative to each other (under 0.15 m/s: within the noise of both speeds)."""
    wx = w.speed_msec * math.cos(w.reference_rad) if w.travel_rad is not None else 0.0
    wy = w.speed_msec * math.sin(w.reference_rad) if w.travel_rad is not None else 0.0
    rx, ry = wx - o.vx_msec, wy - o.vy_msec
    speed = math.hypot(rx, ry)
    if speed < 0.15:
        return None
    dx, dy = o.x_m - w.x_m, o.y_m - w.y_m
    return Closing((dx * rx + dy * ry) / speed, abs(dx * ry - dy * rx) / speed, speed)


def time_to_contact_s(o: Obstacle, w: Wearer) -> float | None:
    """Seconds until the wearer, going on as now, reaches it; None when the gap isn't closing or it isn't in the way.

    It is in the way when the path of the relative motion passes within the corridor's half width of its nearest point.
    (Half its width is not added: the nearest point is where it begins.)
    """
    c = closing(o, w)
    if c is None or c.along_m <= 0 or c.across_m > CORRIDOR_HALF_WIDTH_M:
        return None
    return c.along_m / c.speed_msec
