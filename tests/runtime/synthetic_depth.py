"""Depth views cast exactly from boxes, then spoilt as stereo spoils them: patchy noise, fat edges, holes, blobs.

For tests alone. The device frame here is the rectified frame (x right, y down, z forward) and the eyes are in the
middle of the baseline. Level frame, metres, degrees where a name says so.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import cv2
import numpy as np
from numpy.typing import NDArray

from handrail.runtime.reflex.depth import DepthView, Pose

F64 = NDArray[np.float64]

FOCAL_PX = 245.0
ROWS_PER_RAD = 220.0
BASELINE_M = 0.136
EYE_IN_DEVICE_M = np.array([BASELINE_M / 2, 0.0, 0.0])
NS_PER_S = 1_000_000_000


@dataclass(frozen=True)
class Box:
    low: tuple[float, float, float]
    high: tuple[float, float, float]
    textured: bool = True


@dataclass(frozen=True)
class Eye:
    """Where the wearer's eyes are and look, as truth."""

    x_m: float = 0.0
    y_m: float = 0.0
    z_m: float = 1.6
    heading_deg: float = 0.0  # counter-clockwise from x
    pitch_deg: float = -10.0  # up positive
    roll_deg: float = 0.0

    @property
    def rotation(self) -> F64:
        """R_level_rect."""
        h, p, r = (math.radians(a) for a in (self.heading_deg, self.pitch_deg, self.roll_deg))
        forward = np.array([math.cos(h) * math.cos(p), math.sin(h) * math.cos(p), math.sin(p)])
        right = np.array([math.sin(h), -math.cos(h), 0.0])
        down = np.cross(forward, right)
        right, down = right * math.cos(r) + down * math.sin(r), down * math.cos(r) - right * math.sin(r)
        return np.stack([right, down, forward], axis=1)


def floor_to(x_m: float = 30.0, z_m: float = 0.0, from_x_m: float = -5.0, textured: bool = True) -> Box:
    return Box((from_x_m, -20.0, z_m - 1.0), (x_m, 20.0, z_m), textured)


@dataclass
class Stereo:
    """Casts views; ``random`` carries on from one to the next, so that noise differs from frame to frame."""

    seed: int = 0
    disparity_sd_px: float = 0.35
    holes: float = 0.1  # share of the view without depth
    outliers: float = 0.003  # share of the view with a wrong depth
    half_tan: float = 0.9
    up_deg: float = 22.0  # of the view, level
    down_deg: float = -60.0
    random: np.random.Generator = field(init=False)

    def __post_init__(self) -> None:
        self.random = np.random.default_rng(self.seed)

    def look(self, boxes: list[Box], eye: Eye, t_s: float = 0.0) -> DepthView:
        phi = np.radians(np.array([self.up_deg, self.down_deg])) - math.radians(eye.pitch_deg)
        phi_rad = np.arange(phi[0], phi[1], -1.0 / ROWS_PER_RAD)
        tan_x = np.arange(-self.half_tan, self.half_tan, 1.0 / FOCAL_PX)
        rays = np.stack(
            np.broadcast_arrays(tan_x[None, :], -np.sin(phi_rad)[:, None], np.cos(phi_rad)[:, None]), axis=-1
        )
        R = eye.rotation
        origin = np.array([eye.x_m, eye.y_m, eye.z_m]) - R @ EYE_IN_DEVICE_M
        rho, textured = _cast(boxes, origin, (rays @ R.T).astype(np.float32))
        disparity = self._spoil(FOCAL_PX * BASELINE_M / rho)
        missing = ~textured | (disparity < 1.0) | (disparity > 80.0) | self._blobs(rho.shape, self.holes, 14)
        depth = np.where(missing, np.nan, FOCAL_PX * BASELINE_M / np.maximum(disparity, 1e-3)).astype(np.float32)
        return DepthView(
            device_ns=round(t_s * NS_PER_S), image=np.zeros(rho.shape, np.uint8), rho_m=depth,
            visible=np.ones(rho.shape, bool), by_ends=np.zeros(rho.shape, bool), phi_rad=phi_rad, tan_x=tan_x,
            focal_px=FOCAL_PX, baseline_m=BASELINE_M, disparity_sd_px=self.disparity_sd_px, T_device_rect=np.eye(4),
        )

    def _spoil(self, disparity: F64) -> F64:
        if not self.disparity_sd_px:
            return disparity
        rows, columns = disparity.shape
        disparity = cv2.dilate(disparity, np.ones((3, 5)))  # matching windows fatten what is in front
        coarse = self.random.normal(size=(rows // 6 + 1, columns // 6 + 1))
        patchy = cv2.resize(coarse, (columns, rows), interpolation=cv2.INTER_LINEAR)
        fine = self.random.normal(size=disparity.shape)
        noisy = disparity + self.disparity_sd_px * (0.9 * patchy / patchy.std() + 0.44 * fine)
        wrong = self._blobs(disparity.shape, self.outliers, 6)
        value: F64 = np.where(wrong, self.random.uniform(4.0, 60.0), noisy)
        return value

    def _blobs(self, shape: tuple[int, int], share: float, size_px: int) -> NDArray[np.bool_]:
        if not share:
            return np.zeros(shape, bool)
        rows, columns = shape
        coarse = self.random.normal(size=(rows // size_px + 2, columns // size_px + 2))
        smooth = cv2.resize(coarse, (columns, rows), interpolation=cv2.INTER_CUBIC)
        return np.asarray(smooth > np.quantile(smooth, 1.0 - share))


def pose_of(eye: Eye, t_s: float = 0.0, velocity_msec: tuple[float, float, float] = (0.0, 0.0, 0.0),
            tilt_error_deg: tuple[float, float] = (0.0, 0.0), source: str = "vio") -> Pose:
    """The pose of a truthful odometry, its gravity off by (about x, about y) degrees if wanted."""
    R = _tilted(tilt_error_deg) @ eye.rotation
    at = np.array([eye.x_m, eye.y_m, eye.z_m - 1.6])  # the level frame's origin is where the eyes were at first
    return Pose(
        device_ns=round(t_s * NS_PER_S), R_level_device=R, device_in_level_m=at - R @ EYE_IN_DEVICE_M,
        velocity_msec=np.array(velocity_msec), velocity_cov=np.eye(3) * 0.05**2, position_cov=np.eye(3) * 0.02**2,
        angular_velocity_radsec=np.zeros(3), tilt_sd_rad=math.radians(0.7), source=source,
    )


def _tilted(about_deg: tuple[float, float]) -> F64:
    rotation, _ = cv2.Rodrigues(np.radians([about_deg[0], about_deg[1], 0.0]))
    return np.asarray(rotation, dtype=np.float64)


def _cast(boxes: list[Box], origin: F64, rays: F64) -> tuple[F64, NDArray[np.bool_]]:
    """First hit along each ray [R, C, 3]: distance in ray lengths (inf: none) and whether its surface has texture."""
    nearest = np.full(rays.shape[:2], np.inf)
    textured = np.zeros(rays.shape[:2], bool)
    inverse = 1.0 / np.where(np.abs(rays) < 1e-6, np.float32(1e-6), rays)
    for box in boxes:
        a = (np.array(box.low) - origin).astype(np.float32) * inverse
        b = (np.array(box.high) - origin).astype(np.float32) * inverse
        enter = np.minimum(a, b).max(axis=-1)
        leave = np.maximum(a, b).min(axis=-1)
        hit = (enter < leave) & (enter > 0.05) & (enter < nearest)
        nearest[hit] = enter[hit]
        textured[hit] = box.textured
    return nearest, textured
