"""Cylindrical rectification of the forward SLAM pair about its baseline; geometry and the frame: see ``depth``.

One tall pair of maps covers every elevation that both lenses see; aiming the view by gravity is picking rows of it.
Works from the extrinsics alone, so Gen 2 (axes 36 degrees apart) and Gen 1 (76 degrees apart, images on their side,
a central strip) need no special case. Knows no matching and no time. Radians, metres and pixels as named.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from handrail.streams.cameras import Camera, Rig
from handrail.streams.errors import SourceError

F64 = NDArray[np.float64]
U8 = NDArray[np.uint8]
Mask = NDArray[np.bool_]

# Aria's SLAM lenses have 241-246 px/rad at their centre: the same scale here neither loses nor invents detail.
FOCAL_PX = 245.0
ROWS_PER_RAD = 220.0  # a tenth coarser than native: rows cost time and carry no disparity
# The widest tangent kept. Gen 2's overlap is +-0.85 level ahead and +-1.1 towards the floor.
WIDEST_TAN = 1.0
# The level elevations that a view should cover: a bar at head height 1 m ahead, the floor 1 m ahead.
HIGHEST_LEVEL_RAD = math.radians(22.0)
LOWEST_LEVEL_RAD = math.radians(-60.0)
# Columns left of the view that only the right image needs: where near things on the left edge are found.
# Matched from -3 to 60 px, at 245 px/rad and 13.6 cm: depth from 0.56 m on.
DISPARITIES = 64
BRIGHT = 200.0  # where stretching brings the 95th percentile of grey
LARGEST_GAIN = 6.0
DARK_GAIN = 4.0  # real rooms by day 1 to 1.9, the simulated one 2.7, at dusk 7
DARK_BLUR_PX = 1.5


@dataclass(frozen=True, slots=True)
class RectifiedPair:
    """Both images on one canvas of [R, DISPARITIES + C]; the view proper is the last C columns.

    ``bright_*``: stretched to one brightness. The cameras expose on their own (1.6 against 0.95 ms in a real corridor),
    and matching's penalties expect a well-lit image at dusk, too. ``dark``: they were stretched so far that noise would
    win, and are smoothed (in simulated dusk twice as many pixels then show the same texture in both).
    """

    left: U8  # [R, D + C]
    bright_left: U8
    bright_right: U8
    dark: bool
    rows: slice  # of the tall map


class Rectifier:
    """Maps, masks and axes for one rig. Raises SourceError when the rig has no stereo pair or its views don't meet."""

    def __init__(self, rig: Rig) -> None:
        if rig.stereo_pair is None:
            raise SourceError("depth: expected calibrations of a left and a right forward SLAM camera, got "
                              f"{sorted(rig.cameras)}; record with both switched on")
        self.labels = rig.stereo_pair
        self._left, self._right = (rig.cameras[label] for label in self.labels)
        self.focal_px = FOCAL_PX
        self.T_device_rect, self.baseline_m = _rectified_frame(self._left, self._right)
        self._level_head_pitch_rad = math.asin(float(rig.T_device_cpf[:3, 1] @ self.T_device_rect[:3, 2]))
        self.bend_rad = np.zeros(3)  # [3] the right camera's rotation against its calibration, see ``alignment``
        self.phi_rad, self.tan_x = self._overlap()  # [H], [C]
        left_px, self.left_sees = self._look(self._left, self.phi_rad, self.canvas_tan)
        right_px, self.right_sees = self._look(self._right, self.phi_rad, self.canvas_tan)
        self._both: Mask = self.left_sees & self.right_sees  # [H, D + C]
        self.visible: Mask = self._both[:, DISPARITIES:]  # [H, C], inside both lenses at infinity
        self._left_maps = _fixed_point_maps(left_px)
        self._right_maps = _fixed_point_maps(right_px)

    @property
    def canvas_tan(self) -> F64:
        """[D + C] tangents of the columns that are matched: the view's, and those on its left."""
        return np.asarray(self.tan_x[0] + np.arange(-DISPARITIES, len(self.tan_x)) / self.focal_px)

    def bend(self, angles_rad: F64) -> None:
        """Rectify from now on as if the right camera were turned by these small angles about rectified X, Y, Z.

        A few milliseconds: the camera model is asked at every fourth pixel. The masks stay as calibrated; a hundredth
        of a radian moves them by less than the border that matching leaves.
        """
        self.bend_rad = np.array(angles_rad, dtype=np.float64)
        tan, phi = _every_fourth(self.canvas_tan), _every_fourth(self.phi_rad)
        coarse = self._look(self._right, phi, tan)[0].astype(np.float32)
        column, row = np.meshgrid(
            np.arange(len(self.canvas_tan), dtype=np.float32) / 4, np.arange(len(self.phi_rad), dtype=np.float32) / 4
        )
        self._right_maps = _fixed_point_maps(np.asarray(cv2.remap(coarse, column, row, cv2.INTER_LINEAR), np.float64))

    def aim(self, R_level_device: F64 | None) -> slice:
        """Rows that hold the level elevations wanted, as far as the lenses reach; None: as if the head were level.

        The number of rows is the same for every attitude, so that matching costs the same.
        """
        tall = len(self.phi_rad)
        count = min(tall, round((HIGHEST_LEVEL_RAD - LOWEST_LEVEL_RAD) * ROWS_PER_RAD))
        top_phi = HIGHEST_LEVEL_RAD - self._pitch(R_level_device)
        first = round((self.phi_rad[0] - top_phi) * ROWS_PER_RAD)
        first = min(max(first, 0), tall - count)
        return slice(first, first + count)

    def covered_rad(self, rows: slice, R_level_device: F64 | None) -> tuple[float, float]:
        """Level elevations (lowest, highest) straight ahead that these rows see with both lenses."""
        straight_ahead = int(np.argmin(np.abs(self.tan_x)))
        seen = self.phi_rad[rows][self.visible[rows, straight_ahead]]
        pitch = self._pitch(R_level_device)
        return float(seen.min()) + pitch, float(seen.max()) + pitch

    def rectify(self, left: U8, right: U8, rows: slice) -> RectifiedPair:
        """Native grey images [H, W] -> the pair. Raises SourceError when a frame doesn't fit its calibration."""
        for image, camera in ((left, self._left), (right, self._right)):
            if image.shape != (camera.height, camera.width):
                raise SourceError(
                    f"{camera.label}: expected a grey frame of {camera.width}x{camera.height} as calibrated, "
                    f"got shape {image.shape}"
                )
        left, right = _remap(left, self._left_maps, rows), _remap(right, self._right_maps, rows)
        both = self._both[rows][::4, ::4]
        shared_left, shared_right = left[::4, ::4][both], right[::4, ::4][both]
        gain = float(np.clip(BRIGHT / max(_quantile(shared_left, 0.95), 1.0), 1.0, LARGEST_GAIN))
        ratio = float(np.clip(_quantile(shared_left, 0.5) / max(_quantile(shared_right, 0.5), 1.0), 0.3, 3.0))
        dark = gain > DARK_GAIN
        smooth = DARK_BLUR_PX if dark else 0.0
        return RectifiedPair(left, _stretched(left, gain, smooth), _stretched(right, gain * ratio, smooth), dark, rows)

    def _pitch(self, R_level_device: F64 | None) -> float:
        """Elevation above the horizon of the row phi = 0, radians."""
        if R_level_device is None:
            return self._level_head_pitch_rad
        return math.asin(float(np.clip(R_level_device[2] @ self.T_device_rect[:3, 2], -1.0, 1.0)))

    def _overlap(self) -> tuple[F64, F64]:
        """Axes (phi [H] decreasing, tan [C] increasing) of the box around what both lenses see at infinity."""
        half = round(WIDEST_TAN * self.focal_px)
        tan = np.arange(-half, half + 1) / self.focal_px
        steep = round(math.radians(80.0) * ROWS_PER_RAD)
        phi = np.arange(steep, -steep - 1, -1) / ROWS_PER_RAD
        both = self._look(self._left, phi, tan)[1] & self._look(self._right, phi, tan)[1]
        rows = np.flatnonzero(both[:, half])
        columns = np.flatnonzero(both.mean(axis=0) > 0.05)
        if len(rows) < 32 or len(columns) < 32:
            raise SourceError(f"depth: expected {self.labels[0]} and {self.labels[1]} to see the same place, by their "
                              "calibration they don't; use the recording's own calibration")
        return phi[rows[0] : rows[-1] + 1], tan[columns[0] : columns[-1] + 1]

    def _look(self, camera: Camera, phi_rad: F64, tan_x: F64) -> tuple[F64, Mask]:
        """Where a camera sees each direction: native pixels [H, C, 2] and whether inside its lens circle [H, C]."""
        rays = np.empty((len(phi_rad), len(tan_x), 3))
        rays[..., 0] = tan_x
        rays[..., 1] = -np.sin(phi_rad)[:, None]
        rays[..., 2] = np.cos(phi_rad)[:, None]
        R_camera_rect = camera.T_device_camera[:3, :3].T @ self.T_device_rect[:3, :3]
        if camera is self._right:
            R_camera_rect = R_camera_rect @ np.asarray(cv2.Rodrigues(-self.bend_rad)[0], dtype=np.float64)
        rays = rays @ R_camera_rect.T
        px = camera.model.project(rays)
        # Far behind the lens the distortion polynomial folds back into the frame: not beyond 100 degrees.
        ahead = rays[..., 2] > math.cos(math.radians(100.0)) * np.linalg.norm(rays, axis=-1)
        return px, camera.sees(px) & ahead


def _rectified_frame(left: Camera, right: Camera) -> tuple[F64, float]:
    """T_device_rect and the baseline in metres: X along the baseline, Z the mean optical axis made square to it."""
    baseline = right.T_device_camera[:3, 3] - left.T_device_camera[:3, 3]
    length = float(np.linalg.norm(baseline))
    x = baseline / length
    z = left.T_device_camera[:3, 2] + right.T_device_camera[:3, 2]
    z = z - x * (x @ z)
    z /= np.linalg.norm(z)
    T = np.eye(4)
    T[:3, :3] = np.stack([x, np.cross(z, x), z], axis=1)
    T[:3, 3] = left.T_device_camera[:3, 3]
    return T, length


def _every_fourth(axis: F64) -> F64:
    """The axis at every fourth index, from 0 to at least its end."""
    step = axis[1] - axis[0]
    return np.asarray(axis[0] + 4 * step * np.arange((len(axis) + 2) // 4 + 1))


def _fixed_point_maps(px: F64) -> tuple[NDArray[np.int16], NDArray[np.uint16]]:
    clipped = np.clip(px, -1000.0, 10_000.0).astype(np.float32)
    coordinates, fractions = cv2.convertMaps(clipped[..., 0], clipped[..., 1], cv2.CV_16SC2)
    return np.asarray(coordinates, dtype=np.int16), np.asarray(fractions, dtype=np.uint16)


def _remap(image: U8, maps: tuple[NDArray[np.int16], NDArray[np.uint16]], rows: slice) -> U8:
    return np.asarray(cv2.remap(image, maps[0][rows], maps[1][rows], cv2.INTER_LINEAR), dtype=np.uint8)


def _quantile(grey: U8, share: float) -> float:
    """A whole grey level, by counting: a tenth of the time that sorting takes. Fractions would give the two pictures of
    a pair gains that differ by less than a level, and their rounding would no longer be alike."""
    below = np.cumsum(np.bincount(grey.ravel(), minlength=256))
    return float(np.searchsorted(below, share * below[-1]))


def _stretched(image: U8, gain: float, blur_px: float) -> U8:
    bright = cv2.convertScaleAbs(image, alpha=gain)
    return np.asarray(cv2.GaussianBlur(bright, (0, 0), blur_px) if blur_px else bright, dtype=np.uint8)
