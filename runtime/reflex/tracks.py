"""Obstacles over time: which of this frame's sightings is which, what moves, what is still there though out of view.

A track holds its nearest point in the level frame, so that it stays put while the wearer walks and turns. It is
confirmed by two of three looks (of the first, some evidence will do; what is solid, or a plain bar surely measured by
its ends, needs one), kept with growing uncertainty while out of view, and forgotten when rays pass through its place,
by age, or behind the wearer. It moves only when that is established: odometry errs for all things alike, and a chair
that walks would be told. Knows no pixels beyond asking the rays what they saw. Metres, level frame.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from handrail.runtime.reflex import probes
from handrail.runtime.reflex.depth import Pose
from handrail.runtime.reflex.drops import Strip
from handrail.runtime.reflex.field import Here
from handrail.runtime.reflex.front import Front
from handrail.runtime.reflex.ground import Floor
from handrail.runtime.reflex.motion import Motion
from handrail.runtime.reflex.obstacles import BEARING_STEP_RAD, Sighting, band_of
from handrail.runtime.reflex.probes import along_across
from handrail.runtime.reflex.rays import LevelRays
from handrail.runtime.scene import Band, Obstacle, Thing

F64 = NDArray[np.float64]

NS_PER_S = 1_000_000_000
GATE = 12.0  # squared sigmas
SAME_BOTTOM_M = 0.15
EDGE_LOOKS = 3  # a false "Stop. Step down." costs more trust than a tenth of a second costs way
SOLID_POINTS, NEAR_M = 150, 2.0  # so solid and near a sighting needs no second look; twice as solid, none anywhere
HINT_S = 0.35  # three looks
ON_M, FEWEST_PLACES = 0.15, 3  # of hints and bars on which a sighting lies
FORGET_S = 8.0  # unseen, out of view
REMEMBER_LOOK_S = 0.4  # what was hardly seen is hardly remembered: stereo's ghosts live for two or three looks
FORGET_UNKNOWN_S = 4.0  # unseen, in view, but without depth there
FORGET_MOVING_S = 2.0
FORGET_UNCONFIRMED_S = 0.45
FREE_LOOKS = 3  # looks through a confirmed track's place before it is gone
WANDER_MSEC = 0.15  # how fast a static thing's nearest point may slide along it
DOUBLED_LOOKS = 3.0  # then it is a part of the other
# People, prams, large dogs. The visible part of what is larger or flatter changes with the way of looking.
WIDEST_MOVER_M, LOWEST_MOVER_M = 1.0, 0.7
CENTRE_SD_M = 0.06  # across the line of sight
TURN_SD_RAD = math.radians(2.5)  # a frame: fronts are curved, and other parts come into view
COLUMN_SD_RAD = 0.5 * BEARING_STEP_RAD


@dataclass(slots=True)
class _Track:
    id: int
    thing: Thing
    at: F64  # [2] nearest point
    cov: F64  # [2, 2]
    motion: Motion
    first_ns: int
    last_ns: int
    width_m: float
    top_m: float
    bottom_m: float
    bands: dict[Band, float]  # votes, in the order of Band
    front: Front | None
    looks: int = 1
    recent: list[bool] = field(default_factory=lambda: [True])  # seen in the last three frames
    confirmed: bool = False
    doubled: float = 0.0  # frames in which another track took the sighting that would have been this one's, leaking
    free: int = 0  # frames in a row in which rays passed through its place

    @property
    def band(self) -> Band:
        """The lowest band with a fair share of the votes."""
        total = sum(self.bands.values())
        return next((b for b, votes in self.bands.items() if votes >= 0.3 * total), Band.HEAD)


class Tracks:
    """``update`` once a frame, in order of time; a frame that isn't newer than the last changes nothing."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self._tracks: list[_Track] = []
        self._next_id = 1
        self._last_ns: int | None = None
        self._hints: list[tuple[int, F64]] = []  # of the last looks

    def update(
        self, sightings: list[Sighting], hints: F64, rays: LevelRays, strip: Strip, floor: Floor, pose: Pose,
        here: Here, *, walking: bool,
    ) -> None:
        now_ns = pose.device_ns
        if self._last_ns is not None and now_ns <= self._last_ns:
            return
        self.predict(pose)
        pairs, rivals = self._pairs(sightings, here)
        grounded = probes.bottom_seen(sightings, rays, floor)
        fronted = probes.front_seen(sightings, rays, floor, here)
        sided = probes.sides_seen(sightings, rays, floor, here)
        for track in self._tracks:
            seen = pairs.get(track.id)
            track.recent = [*track.recent[-2:], seen is not None]
            track.doubled = track.doubled + 1.0 if track.id in rivals else max(0.0, track.doubled - 0.5)
            if seen is not None:
                self._see(
                    track, sightings[seen], here, now_ns,
                    bottom_seen=bool(grounded[seen]), front_seen=bool(fronted[seen]), sides_seen=bool(sided[seen]),
                )
        taken = set(pairs.values())
        bars_m = rays.bars_m()
        bars_m[:, 2] -= floor.z_at(bars_m[:, 0].astype(np.float32), bars_m[:, 1].astype(np.float32))
        before_m = self._hinted_lately(now_ns)
        for track in self._tracks:  # one look and some evidence in another
            if not track.confirmed and track.id not in pairs and track.thing is Thing.OBSTACLE:
                sd_m = math.sqrt(float(np.trace(track.cov)) / 2)
                track.confirmed = _lies_on(track.at, sd_m, track.bottom_m, track.top_m, hints, here)
        states = probes.look_through([t for t in self._tracks if t.last_ns != now_ns], rays, strip, floor, here)
        self._tracks = [t for t in self._tracks if self._keep(t, states.get(t.id), here, now_ns, walking)]
        for i, sighting in enumerate(sightings):
            if i not in taken:
                self._start(sighting, bars_m, before_m, here, now_ns)
        self._hints.append((now_ns, hints))

    def predict(self, pose: Pose) -> None:
        """Move on in time without a look (also for frames that can't be used)."""
        if self._last_ns is not None and pose.device_ns > self._last_ns:
            dt_s = (pose.device_ns - self._last_ns) / NS_PER_S
            odometry_var = float(pose.velocity_cov[0, 0] + pose.velocity_cov[1, 1]) / 2
            for track in self._tracks:
                track.motion.predict(dt_s, odometry_var)
                unseen_s = (pose.device_ns - track.last_ns) / NS_PER_S
                wander = WANDER_MSEC
                if track.motion.moving:
                    wander = 0.5
                    if unseen_s < 1.0:
                        track.at = track.at + track.motion.velocity * dt_s
                track.cov = track.cov + np.eye(2) * (odometry_var * dt_s**2 + (wander * dt_s) ** 2)
        if self._last_ns is None or pose.device_ns > self._last_ns:
            self._last_ns = pose.device_ns

    def obstacles(self, here: Here) -> tuple[Obstacle, ...]:
        """Nearest first."""
        out = [self._obstacle(t, here) for t in self._tracks if not t.doubled or t.recent[-1]]
        return tuple(sorted(out, key=lambda o: (math.hypot(o.x_m - here.x_m, o.y_m - here.y_m), o.id)))

    def _obstacle(self, t: _Track, here: Here) -> Obstacle:
        along, across = along_across(t.at, here)
        distance = max(math.hypot(t.at[0] - here.x_m, t.at[1] - here.y_m), 0.1)
        v = t.motion.velocity if t.motion.moving else np.zeros(2)
        return Obstacle(
            id=t.id, thing=t.thing, band=t.band, x_m=_mm(t.at[0]), y_m=_mm(t.at[1]),
            distance_sd_m=_mm(math.sqrt(float(along @ t.cov @ along))),
            bearing_sd_deg=round(math.degrees(math.atan2(math.sqrt(float(across @ t.cov @ across)), distance)), 2),
            width_m=_mm(t.width_m), top_m=_mm(t.top_m), bottom_m=_mm(t.bottom_m),
            vx_msec=_mm(v[0]), vy_msec=_mm(v[1]), moving=t.motion.moving,
            looks=t.looks, confirmed=t.confirmed, first_device_ns=t.first_ns, last_device_ns=t.last_ns,
        )

    def _pairs(self, sightings: list[Sighting], here: Here) -> tuple[dict[int, int], set[int]]:
        """Track id -> index of its sighting, nearest first within the gate, ties by age of the track; and the ids of
        those whose sighting went to another track."""
        costs = sorted(
            (cost, track.id, i)
            for track in self._tracks
            for i, s in enumerate(sightings)
            if (cost := _cost(track, s, here)) < GATE
        )
        pairs: dict[int, int] = {}
        taken: set[int] = set()
        for _, track_id, i in costs:
            if track_id not in pairs and i not in taken:
                pairs[track_id] = i
                taken.add(i)
        return pairs, {track_id for _, track_id, _ in costs if track_id not in pairs}

    def _see(
        self, t: _Track, s: Sighting, here: Here, now_ns: int,
        *, bottom_seen: bool, front_seen: bool, sides_seen: bool,
    ) -> None:
        at, R = _refined(t, s, here) if front_seen else (np.array([s.x_m, s.y_m]), _sighting_cov(s, here))
        innovation = at - t.at
        nearer = s.distance_m < math.hypot(t.at[0] - here.x_m, t.at[1] - here.y_m)
        if front_seen or nearer:  # else its near edge has left the view: what is remembered of it holds
            S = t.cov + R
            surprise = float(innovation @ np.linalg.solve(S, innovation))
            if surprise > 6.0:  # it moved, or another part of it is nearest now: follow
                t.cov = t.cov * (surprise / 3.0)
                S = t.cov + R
            gain = t.cov @ np.linalg.inv(S)
            t.at = t.at + gain @ innovation
            t.cov = (np.eye(2) - gain) @ t.cov
            t.cov = 0.5 * (t.cov + t.cov.T)
        if s.whole and sides_seen and _could_walk(s):
            t.motion.see(*_centre(s, here))
        else:
            t.motion.interrupt()
        lowest = s.bottom_m if bottom_seen else min(s.bottom_m, t.bottom_m)
        usual = t.bottom_m + 0.3 * (lowest - t.bottom_m)
        for band in t.bands:
            t.bands[band] *= 0.8
        # Near a border one look's noise would vote for the other band.
        t.bands[band_of(usual if abs(lowest - t.bottom_m) < SAME_BOTTOM_M else lowest)] += 1.0
        t.bottom_m = usual
        t.top_m += 0.3 * (s.top_m - t.top_m)
        t.width_m += 0.3 * (s.width_m - t.width_m)
        t.looks += 1
        t.last_ns = now_ns
        t.free = 0
        enough = t.looks >= (EDGE_LOOKS if s.thing is Thing.DROP_OFF else 2) and sum(t.recent) >= 2
        t.confirmed = t.confirmed or enough or _needs_no_second_look(s)

    def _start(self, s: Sighting, bars_m: F64, hints: F64, here: Here, now_ns: int) -> None:
        R = _sighting_cov(s, here)
        centre, centre_cov = _centre(s, here)
        bands = dict.fromkeys(Band, 0.0)
        bands[s.band] = 1.0
        track = _Track(
            id=self._next_id, thing=s.thing, at=np.array([s.x_m, s.y_m]), cov=R,
            motion=Motion(centre, centre_cov), first_ns=now_ns, last_ns=now_ns,
            width_m=s.width_m, top_m=s.top_m, bottom_m=s.bottom_m, bands=bands, front=s.front,
            confirmed=_needs_no_second_look(s) or _sighted_on(s, bars_m, here) or _sighted_on(s, hints, here),
        )
        self._next_id += 1
        self._tracks.append(track)

    def _hinted_lately(self, now_ns: int) -> F64:
        """[N, 3] where the looks before had some evidence."""
        self._hints = [(ns, places) for ns, places in self._hints if now_ns - ns <= HINT_S * NS_PER_S]
        return np.concatenate([np.zeros((0, 3)), *(places for _, places in self._hints)])

    def _keep(self, t: _Track, state: str | None, here: Here, now_ns: int, walking: bool) -> bool:
        if t.last_ns == now_ns:
            return True
        unseen_s = (now_ns - t.last_ns) / NS_PER_S
        t.free = t.free + 1 if state == "through" else t.free if state is None else 0
        if t.free >= max(1, min(FREE_LOOKS, t.looks // 2)):
            return False
        if not t.confirmed:
            return unseen_s < FORGET_UNCONFIRMED_S
        if t.motion.moving:
            return unseen_s < FORGET_MOVING_S
        if t.doubled >= DOUBLED_LOOKS:
            return False
        if state == "there" and unseen_s > (0.35 if self._covered(t, now_ns) else 1.5):
            return False  # what is there is told as another thing, or too little to be told
        ahead, _ = here.from_level(*t.at)
        if walking and ahead < -1.5:
            return False
        longest_s = FORGET_S if state != "unknown" else FORGET_UNKNOWN_S
        return unseen_s < min(longest_s, REMEMBER_LOOK_S * max(t.looks - 1, 1))

    def _covered(self, t: _Track, now_ns: int) -> bool:
        """Whether a track seen now has grown over this one."""
        return any(
            o.last_ns == now_ns and o.thing is t.thing
            and math.hypot(*(o.at - t.at)) < 0.5 * (o.width_m + t.width_m) + 0.3
            for o in self._tracks
        )


def _needs_no_second_look(s: Sighting) -> bool:
    return s.thing is Thing.OBSTACLE and s.points >= SOLID_POINTS * (1.0 if s.distance_m < NEAR_M else 2.0)


def _sighted_on(s: Sighting, places_m: F64, here: Here) -> bool:
    at = np.array([s.x_m, s.y_m])
    return s.thing is Thing.OBSTACLE and _lies_on(at, s.distance_sd_m, s.bottom_m, s.top_m, places_m, here)


def _lies_on(at: F64, sd_m: float, bottom_m: float, top_m: float, places_m: F64, here: Here) -> bool:
    """Whether an obstacle's nearest point [2], at its height, lies on these places [N, 3]: level x and y, height above
    the floor or NaN for any."""
    along, across = along_across(at, here)
    off, height_m = places_m[:, :2] - at, places_m[:, 2]
    near = (np.abs(off @ along) < ON_M + 2.0 * sd_m) & (np.abs(off @ across) < ON_M)
    near &= ~((height_m < bottom_m - ON_M) | (height_m > top_m + ON_M))
    return int(near.sum()) >= FEWEST_PLACES


def _could_walk(s: Sighting) -> bool:
    return s.thing is Thing.OBSTACLE and s.width_m < WIDEST_MOVER_M and s.top_m > LOWEST_MOVER_M


def _mm(value: float) -> float:
    return round(float(value), 3)


def _sighting_cov(s: Sighting, here: Here) -> F64:
    along, across = along_across(np.array([s.x_m, s.y_m]), here)
    sd_across = s.distance_m * s.bearing_sd_rad + 0.02
    return np.outer(along, along) * s.distance_sd_m**2 + np.outer(across, across) * sd_across**2


def _centre(s: Sighting, here: Here) -> tuple[F64, F64]:
    """The middle of what is seen of a thing, and its covariance: unlike the nearest point it doesn't slide."""
    at = np.array([s.centre_x_m, s.centre_y_m])
    along, across = along_across(at, here)
    return at, np.outer(along, along) * s.distance_sd_m**2 + np.outer(across, across) * CENTRE_SD_M**2


def _refined(t: _Track, s: Sighting, here: Here) -> tuple[F64, F64]:
    """Nearest point and covariance of a sighting, its front turned to the angle that all looks together give.

    One look's angle is good to a few degrees, and the foot of the perpendicular runs along the front with it.
    """
    if s.front is None:
        return np.array([s.x_m, s.y_m]), _sighting_cov(s, here)
    variance = s.front.angle_sd_rad**2
    if t.front is not None:
        before_var = t.front.angle_sd_rad**2 + TURN_SD_RAD**2
        off = math.remainder(s.front.angle_rad - t.front.angle_rad, math.pi)
        if off * off < 9.0 * (before_var + variance):
            share = before_var / (before_var + variance)
            # From the new one's angle: its ends lie along that, and half a turn would swap them.
            t.front = s.front.turned(s.front.angle_rad - (1.0 - share) * off, math.sqrt(before_var * (1.0 - share)))
        else:  # another side of it
            t.front = s.front
    else:
        t.front = s.front
    x, y, slide = t.front.nearest_to(here.x_m, here.y_m)
    distance = math.hypot(x - here.x_m, y - here.y_m)
    refined = replace(
        s, x_m=x, y_m=y, distance_m=distance,
        bearing_sd_rad=COLUMN_SD_RAD + slide / max(distance, 0.3),
    )
    return np.array([x, y]), _sighting_cov(refined, here)


def _cost(t: _Track, s: Sighting, here: Here) -> float:
    """Squared sigmas between a track and a sighting; across the line of sight their widths give slack."""
    if t.thing is not s.thing:
        return math.inf
    along, across = along_across(np.array([s.x_m, s.y_m]), here)
    d = np.array([s.x_m, s.y_m]) - t.at
    da, dc = abs(float(d @ along)), abs(float(d @ across))
    if da > 1.5 or dc > 3.0:
        return math.inf
    sd_along = math.sqrt(s.distance_sd_m**2 + float(along @ t.cov @ along)) + 0.08
    slack = 0.5 * min(t.width_m, s.width_m) + 0.1
    apart = s.bottom_m > t.top_m + 0.1 or s.top_m < t.bottom_m - 0.1
    across_cost = (max(0.0, dc - slack) / 0.15) ** 2 + (dc / (slack + 0.5)) ** 2
    return (da / sd_along) ** 2 + across_cost + (4.0 if apart else 0.0)
