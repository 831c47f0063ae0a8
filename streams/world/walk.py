"""How the wearer's head moves: a straight walk with gait, glances and nods, as smooth closed forms of time.

World frame: x along the corridor, y to the left, z up, metres, the upper floor at z = 0. Time in seconds since the
walk's start. All parts are at least three times differentiable, so that what the IMU feels follows by differencing
without kinks. The walker sees nothing and avoids nothing. Knows no corridor and no obstacles.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from handrail.streams.world.options import WorldOptions

F64 = NDArray[np.float64]

# From the neck joint, about which the head turns, to the cpf, in cpf axes (left, up, forward), metres.
NECK_TO_CPF_M = np.array([0.0, 0.09, 0.10])
# cpf axes (left, up, forward) of a head that looks along +x, as columns in the world.
UPRIGHT = np.array([[0.0, 0.0, 1.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])


def smooth_step(u: F64) -> F64:
    """0 below 0, 1 above 1, with three continuous derivatives in between."""
    u = np.clip(u, 0.0, 1.0)
    return u**4 * (35.0 + u * (-84.0 + u * (70.0 - 20.0 * u)))


def _smooth_step_integral(u: F64) -> F64:
    inside = np.clip(u, 0.0, 1.0)
    return inside**5 * (7.0 + inside * (-14.0 + inside * (10.0 - 2.5 * inside))) + np.maximum(u - 1.0, 0.0)


@dataclass(frozen=True, slots=True)
class Turn:
    """A move of the head to an angle and back."""

    start_s: float
    move_s: float
    hold_s: float
    angle_rad: float

    def at(self, t: F64) -> F64:
        back = self.start_s + self.move_s + self.hold_s
        return self.angle_rad * (
            smooth_step((t - self.start_s) / self.move_s) - smooth_step((t - back) / self.move_s)
        )


@dataclass(frozen=True, slots=True)
class Walk:
    """One walk. Angles in radians, lengths in metres; phases of the gait in radians."""

    start_y_m: float
    heading_rad: float  # of travel, constant; counter-clockwise from x
    speed_msec: float
    setting_off_s: float  # when the walker starts from rest; negative: already walking at t = 0
    eye_height_m: float
    step_hz: float
    bob_m: float  # half of the vertical excursion
    sway_m: float
    phase: tuple[float, float, float]
    pitch_limit_rad: float
    pitch_rest_rad: float
    yaws: tuple[Turn, ...]
    nods: tuple[Turn, ...]

    RAMP_S = 1.5  # from rest to walking speed

    def walking(self, t: F64) -> F64:
        """0 at rest, 1 at full speed."""
        return smooth_step((t - self.setting_off_s) / self.RAMP_S)

    def along_m(self, t: F64) -> F64:
        """Distance of the body's axis from the start, along the path, without the surge of each step."""

        def gone(at: F64) -> F64:
            return self.speed_msec * self.RAMP_S * _smooth_step_integral((at - self.setting_off_s) / self.RAMP_S)

        return gone(t) - gone(np.zeros(1))

    def body_xy_m(self, t: F64) -> F64:
        """[N] s -> [N, 2]: point on the floor below the body's axis, without sway and surge."""
        s = self.along_m(t)
        return np.stack([s * math.cos(self.heading_rad), self.start_y_m + s * math.sin(self.heading_rad)], axis=-1)

    def angles_rad(self, t: F64) -> tuple[F64, F64, F64]:
        """Yaw (counter-clockwise from x), pitch (nose up positive), roll of the head; each [N]."""
        go = self.walking(t)
        step, stride = 2 * math.pi * self.step_hz * t, math.pi * self.step_hz * t
        yaw = self.heading_rad + sum((turn.at(t) for turn in self.yaws), np.zeros_like(t))
        yaw = yaw + go * math.radians(0.9) * np.sin(stride + self.phase[0]) + math.radians(1.5) * np.sin(0.6 * t)
        raw = self.pitch_rest_rad + sum((nod.at(t) for nod in self.nods), np.zeros_like(t))
        raw = raw + go * math.radians(1.2) * np.sin(step + self.phase[1]) + math.radians(1.5) * np.sin(0.9 * t + 1.0)
        pitch = self.pitch_limit_rad * np.tanh(raw / self.pitch_limit_rad)
        roll = go * math.radians(1.2) * np.sin(stride + self.phase[2]) + math.radians(1.0) * np.sin(0.5 * t + 2.0)
        return yaw, pitch, roll

    def T_world_cpf(self, t: F64) -> F64:
        """[N] s -> [N, 4, 4]."""
        t = np.atleast_1d(np.asarray(t, dtype=np.float64))
        go = self.walking(t)
        step, stride = 2 * math.pi * self.step_hz * t, math.pi * self.step_hz * t
        T = np.zeros((len(t), 4, 4))
        T[:, 3, 3] = 1.0
        T[:, :3, :3] = _head_rotation(*self.angles_rad(t))
        surge = go * 0.008 * np.sin(step + 0.4)
        sway = go * self.sway_m * np.sin(stride)
        c, s = math.cos(self.heading_rad), math.sin(self.heading_rad)
        neck = np.empty((len(t), 3))
        neck[:, :2] = self.body_xy_m(t) + np.stack([surge * c - sway * s, surge * s + sway * c], axis=-1)
        # A second harmonic makes the landing of the foot sharper than the lift, as in a real gait.
        bob = go * self.bob_m * (np.cos(step) + 0.15 * np.cos(2 * step + 0.5))
        neck[:, 2] = self.eye_height_m - NECK_TO_CPF_M[1] + bob
        T[:, :3, 3] = neck + T[:, :3, :3] @ NECK_TO_CPF_M
        return T


def _head_rotation(yaw: F64, pitch: F64, roll: F64) -> F64:
    """[N] each -> R_world_cpf [N, 3, 3]: roll about the nose, then pitch, then yaw."""
    cy, sy, cp, sp, cr, sr = np.cos(yaw), np.sin(yaw), np.cos(pitch), np.sin(pitch), np.cos(roll), np.sin(roll)
    zero, one = np.zeros_like(yaw), np.ones_like(yaw)

    def stack(rows: list[list[F64]]) -> F64:
        return np.stack([np.stack(r, axis=-1) for r in rows], axis=-2)

    Rz = stack([[cy, -sy, zero], [sy, cy, zero], [zero, zero, one]])
    Ry = stack([[cp, zero, -sp], [zero, one, zero], [sp, zero, cp]])
    Rx = stack([[one, zero, zero], [zero, cr, -sr], [zero, sr, cr]])
    return np.asarray(Rz @ Ry @ Rx @ UPRIGHT)


def make_walk(options: WorldOptions) -> Walk:
    rng = options.random("walk")
    speed = rng.uniform(0.8, 1.4)
    return Walk(
        start_y_m=rng.uniform(-0.15, 0.15),
        heading_rad=math.radians(rng.uniform(-0.4, 0.4)),
        speed_msec=speed,
        setting_off_s=1.0 if rng.random() < 0.6 else -10.0,
        eye_height_m=rng.uniform(1.5, 1.75),
        step_hz=1.8 * math.sqrt(speed / 1.25),
        bob_m=rng.uniform(0.014, 0.019),
        sway_m=rng.uniform(0.012, 0.022),
        phase=(rng.uniform(0, 6.28), rng.uniform(0, 6.28), rng.uniform(0, 6.28)),
        pitch_limit_rad=math.radians(options.pitch_deg),
        pitch_rest_rad=math.radians(rng.uniform(-10.0, -3.0)),
        yaws=_sweeps(options) if options.kind == "head-turn" else _moves(rng, options.seconds, (2.5, 6.0), (-40, 40)),
        nods=_moves(rng, options.seconds, (3.0, 7.0), (-10, 4)),
    )


def _moves(
    rng: np.random.Generator, seconds: float, pause_s: tuple[float, float], angle_deg: tuple[float, float]
) -> tuple[Turn, ...]:
    """Now and then a look aside (or down), at 40 to 80 degrees a second on average, and back."""
    moves = []
    t = rng.uniform(*pause_s)
    while t < seconds:
        angle = rng.uniform(*angle_deg)
        move_s = max(0.35, abs(angle) / rng.uniform(40.0, 80.0))
        moves.append(Turn(t, move_s, rng.uniform(0.3, 1.2), math.radians(angle)))
        t += 2 * move_s + moves[-1].hold_s + rng.uniform(*pause_s)
    return tuple(moves)


def _sweeps(options: WorldOptions) -> tuple[Turn, ...]:
    """To 60 degrees on either side in turn, over and over, with short looks ahead."""
    rng = options.random("sweeps")
    side = rng.choice((-1.0, 1.0))
    turns = []
    t = 2.0
    while t < options.seconds:
        turns.append(Turn(t, 0.9, 0.6, math.radians(58.0) * side))
        side = -side
        t += 0.9 + 0.6 + 0.9 + rng.uniform(0.6, 1.2)
    return tuple(turns)
