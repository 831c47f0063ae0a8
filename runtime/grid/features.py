"""Readings of the other sensors -> rows of features. A row is made of its own reading and of earlier ones.

What one reading can't tell (a hand out of sight, no depth) is NaN. Places and directions are in cpf axes (x left, y up,
z forward: see ``handrail.streams``), so that they mean the same on either generation of glasses and in any odometry
frame. Batches have strictly increasing times. Knows no bins and no masks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from handrail.runtime.grid.bins import F64, I64, Rows
from handrail.streams.cameras import Rig
from handrail.streams.samples import BaroBatch, Gaze, Hand, Hands, MagBatch, PoseBatch

LOOK_BACK_NS = 1_000_000_000  # for the rate of pressure: between neighbours it is noise
LONGEST_LOOK_BACK_NS = 1_500_000_000
SEA_LEVEL_PA, SCALE_M, EXPONENT = 101_325.0, 44_330.77, 0.190263  # ICAO standard atmosphere
GAZE_GAP_NS = 500_000_000  # over a longer one the eye may have been anywhere
GAZE_DEPTH_M = 1.0  # where a gaze of unknown depth is put in the picture; what Aria's own tools take
NEAREST_GAZE_M = 0.1
RGB = "camera-rgb"
WIDEST_RAD = math.radians(75)  # off the camera's axis; its polynomial folds back into the picture beyond 80 degrees


def magnetometer(batch: MagBatch, calibration: Mapping[str, Any] | None, T_device_cpf: F64) -> Rows:
    """[N, 9]: field xyz and its size (microtesla), sine and cosine of the heading; the barometer's three are NaN.

    ``calibration`` as in ``Rig.magnetometer``; None: nothing is known, for the raw field of a pair of glasses is mostly
    its own. Heading is clockwise from magnetic north, by the field in the plane of the cpf's x and z: right for an
    upright head, off by what tilt mixes in of the vertical field otherwise.
    """
    values = np.full((len(batch.device_ns), 9), np.nan)
    if calibration is None:
        return batch.device_ns, values
    R_cpf_mag = T_device_cpf[:3, :3].T @ np.array(calibration["T_device_mag"])[:3, :3]
    rectified = (batch.field_tesla - calibration["bias"]) @ np.array(calibration["rectification"]).T
    field = rectified @ R_cpf_mag.T * 1e6
    level = np.hypot(field[:, 0], field[:, 2])
    level = np.where(level > 0, level, np.nan)
    values[:, :3] = field
    values[:, 3] = np.linalg.norm(field, axis=1)
    values[:, 4] = field[:, 0] / level
    values[:, 5] = field[:, 2] / level
    return batch.device_ns, values


def barometer(batch: BaroBatch, start_ns: int) -> Rows:
    """[N, 9]: the magnetometer's six are NaN; climb since the first reading of the interval (m, standard atmosphere),
    rate of the pressure over the last second (Pa/s, NaN before), temperature of the sensor (deg C; 0 is what Gen 2
    writes for none)."""
    t_ns, values = batch.device_ns, np.full((len(batch.device_ns), 9), np.nan)
    first = int(np.searchsorted(t_ns, start_ns))
    if first == len(t_ns):
        return t_ns, values
    pressure = np.where(batch.pressure_pa > 0, batch.pressure_pa, np.nan)
    altitude = -SCALE_M * (pressure / SEA_LEVEL_PA) ** EXPONENT
    back = np.searchsorted(t_ns, t_ns - LOOK_BACK_NS, side="right") - 1
    before = np.maximum(back, 0)
    apart_ns = np.where((back >= 0) & (t_ns - t_ns[before] <= LONGEST_LOOK_BACK_NS), t_ns - t_ns[before], np.nan)
    values[:, 6] = altitude - altitude[first]
    values[:, 7] = (pressure - pressure[before]) / apart_ns * 1e9
    values[:, 8] = np.where(batch.temperature_c != 0, batch.temperature_c, np.nan)
    return t_ns, values


def gaze(t_ns: I64, looks: Sequence[Gaze], rig: Rig) -> Rows:
    """[N, 8]: yaw, pitch (rad), 1/depth (1/m), u, v (where it meets the upright RGB picture: 0..1 from the left and
    from the top), widths of the confidence intervals of yaw and pitch (rad), turn since the look before (rad/s).

    NaN: 1/depth without a depth; u, v outside of the picture or without that camera; widths of 0, which is how
    on-device gaze says that it has none; speed over more than half a second. A gaze's direction is
    (tan yaw, tan pitch, 1), as MPS defines the angles.
    """
    angles = np.array([
        (g.yaw_rad, g.pitch_rad, np.nan if g.depth_m is None else g.depth_m,
         g.yaw_high_rad - g.yaw_low_rad, g.pitch_high_rad - g.pitch_low_rad)
        for g in looks
    ]).reshape(-1, 5)
    yaw, pitch = angles[:, 0], angles[:, 1]
    depth = np.where(angles[:, 2] > 0, np.maximum(angles[:, 2], NEAREST_GAZE_M), np.nan)
    ray = np.stack([np.tan(yaw), np.tan(pitch), np.ones_like(yaw)], axis=1)
    ray /= np.linalg.norm(ray, axis=1, keepdims=True)
    values = np.full((len(t_ns), 8), np.nan)
    values[:, :2] = angles[:, :2]
    values[:, 2] = 1 / depth
    values[:, 3:5] = _in_picture(ray * np.where(np.isfinite(depth), depth, GAZE_DEPTH_M)[:, None], rig)
    values[:, 5:7] = np.where(angles[:, 3:] > 0, angles[:, 3:], np.nan)
    if len(t_ns) > 1:
        turn = np.arctan2(np.linalg.norm(np.cross(ray[:-1], ray[1:]), axis=1), np.sum(ray[:-1] * ray[1:], axis=1))
        apart_ns = np.diff(t_ns)
        values[1:, 7] = turn / np.where(apart_ns <= GAZE_GAP_NS, apart_ns, np.nan) * 1e9
    return t_ns, values


def _in_picture(points: F64, rig: Rig) -> F64:
    """Points [N, 3] in cpf coordinates -> (u, v) [N, 2] of the upright RGB picture, NaN outside of it."""
    camera = rig.cameras.get(RGB)
    if camera is None:
        return np.full((len(points), 2), np.nan)
    in_device = points @ rig.T_device_cpf[:3, :3].T + rig.T_device_cpf[:3, 3]
    to_point = in_device - camera.T_device_camera[:3, 3]
    ahead = to_point @ camera.T_device_camera[:3, 2] > np.linalg.norm(to_point, axis=1) * math.cos(WIDEST_RAD)
    px, seen = camera.project(in_device)
    u, v = (px[:, 0] + 0.5) / camera.width, (px[:, 1] + 0.5) / camera.height
    if rig.generation == 1:  # it lies on its side: upright is a quarter turn clockwise
        u, v = 1 - v, u
    return np.where((seen & ahead)[:, None], np.stack([u, v], axis=1), np.nan)


def hands(t_ns: I64, seen: Sequence[Hands], T_device_cpf: F64) -> Rows:
    """[N, 20]: left then right, each confidence (0..1), wrist xyz, palm xyz (m), normal of the palm xyz.

    A hand that isn't seen has confidence 0, for that is known; where it is, isn't.
    """
    rows = np.array([[_hand(h.left), _hand(h.right)] for h in seen]).reshape(-1, 2, 10)
    R, shift = T_device_cpf[:3, :3], T_device_cpf[:3, 3]
    values = np.concatenate(
        [rows[..., :1], (rows[..., 1:4] - shift) @ R, (rows[..., 4:7] - shift) @ R, rows[..., 7:] @ R], axis=-1
    )
    return t_ns, values.reshape(-1, 20)


def _hand(hand: Hand | None) -> F64:
    """[10] in device coordinates."""
    if hand is None:
        return np.array([0.0] + [np.nan] * 9)
    normal = np.full(3, np.nan) if hand.palm_normal is None else hand.palm_normal
    return np.concatenate([[hand.confidence], hand.wrist_m, hand.palm_m, normal])


def trajectory(batch: PoseBatch, T_device_cpf: F64, start_ns: int) -> Rows:
    """[N, 18]: way of the eyes since the first good pose of the interval (m, in that pose's axes), rotation since then
    (first two columns of its matrix: Zhou et al. 2019), their velocity (m/s), angular velocity (rad/s) and gravity
    (m/s^2) in the axes of the head now. Poses of quality 0 are left out.
    """
    good = batch.quality > 0
    t_ns = batch.device_ns[good]
    first = int(np.searchsorted(t_ns, start_ns))
    if first == len(t_ns):
        return t_ns, np.full((len(t_ns), 18), np.nan)
    R_device, spin = _matrices(batch.quaternion_xyzw[good]), batch.angular_velocity_radsec[good]
    R, arm = R_device @ T_device_cpf[:3, :3], T_device_cpf[:3, 3]  # odometry <- cpf [N, 3, 3]; device origin to eyes
    position = batch.position_m[good] + R_device @ arm
    velocity = batch.velocity_msec[good] + _times(R_device, np.cross(spin, arm))
    turn = R[first].T @ R
    back = R.transpose(0, 2, 1)
    return t_ns, np.concatenate([
        (position - position[first]) @ R[first], turn[:, :, 0], turn[:, :, 1], _times(back, velocity),
        spin @ T_device_cpf[:3, :3], back @ batch.gravity_msec2,
    ], axis=1)


def _times(matrices: F64, vectors: F64) -> F64:
    """[N, 3, 3] and [N, 3] -> [N, 3]."""
    return np.asarray((matrices @ vectors[:, :, None])[:, :, 0])


def _matrices(quaternions: F64) -> F64:
    """xyzw [N, 4], of any length but 0 -> rotations [N, 3, 3]."""
    x, y, z, w = (quaternions / np.linalg.norm(quaternions, axis=1, keepdims=True)).T
    rows = [
        [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
        [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
        [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)],
    ]
    return np.array(rows).transpose(2, 0, 1)
