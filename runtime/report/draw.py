"""Where obstacles of a scene lie in the rectified picture they were seen in, and depth as a picture.

Pure geometry on ``DepthView`` (rows are elevations about the baseline, columns are tangents) and ``Pose``. Picture
coordinates are (x, y) in pixels of the view, x to the right, y down, integers at pixel centres. Metres, level frame.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from handrail.runtime.reflex.depth import DepthView, Pose
from handrail.runtime.scene import Obstacle, Thing, Wearer

F64 = NDArray[np.float64]

USUAL_EYE_HEIGHT_M = 1.6  # where no floor was seen
NEAREST_M, FARTHEST_M = 0.5, 6.0  # ends of the colour scale
UNKNOWN_GREY = 88  # depth was possible there but is not known
OUTSIDE_GREY = 24  # outside both lenses
WIDE_M = 1.2  # wider things (walls) are known by their nearest point: where they reach from there isn't in the scene
PART_M = 0.4  # so much of a wide thing is drawn, around its nearest point
_BEHIND_RAD = math.radians(85)  # elevations about the baseline past this are not in front
_DROP_DEPTH_M = 0.6  # of the patch of floor drawn for a drop-off
_SAMPLES = 6  # points along each edge: straight edges are curves in this picture


@dataclass(frozen=True, slots=True)
class Outline:
    """What is drawn for one obstacle: a closed line, and a mark at its nearest point."""

    points: list[tuple[float, float]]  # px; may reach beyond the picture
    mark: tuple[float, float]  # px


def project(view: DepthView, pose: Pose, points_m: F64) -> F64:
    """Points [N, 3] in the level frame -> [N, 2] px; NaN for points that are not in front of the cameras."""
    device = (points_m - pose.device_in_level_m) @ pose.R_level_device
    rect = (device - view.T_device_rect[:3, 3]) @ view.T_device_rect[:3, :3]
    phi = np.arctan2(-rect[:, 1], rect[:, 2])
    rho = np.hypot(rect[:, 1], rect[:, 2])
    x = _fractional_index(rect[:, 0] / np.maximum(rho, 1e-9), view.tan_x)
    y = _fractional_index(-phi, -view.phi_rad)
    px = np.stack([x, y], axis=-1)
    px[np.abs(phi) > _BEHIND_RAD] = np.nan
    return px


def floor_z_m(wearer: Wearer, pose: Pose, T_device_cpf: F64) -> float:
    """Height of the floor under the wearer in the level frame: the eyes' height less how far they are above it."""
    eyes = pose.device_in_level_m + pose.R_level_device @ T_device_cpf[:3, 3]
    return float(eyes[2]) - (USUAL_EYE_HEIGHT_M if wearer.eye_height_m is None else wearer.eye_height_m)


def outline(o: Obstacle, wearer: Wearer, view: DepthView, pose: Pose, T_device_cpf: F64) -> Outline | None:
    """The front of an obstacle, as high and (up to ``WIDE_M``) as wide as it was seen; a drop-off is a patch of floor.

    None when it isn't in the picture.
    """
    floor_m = floor_z_m(wearer, pose, T_device_cpf)
    away = np.array([o.x_m - wearer.x_m, o.y_m - wearer.y_m])
    away /= max(float(np.hypot(*away)), 1e-6)
    across = np.array([away[1], -away[0]]) * drawn_width_m(o) / 2
    near = np.array([o.x_m, o.y_m])
    if o.thing is Thing.DROP_OFF:
        far = near + away * _DROP_DEPTH_M
        corners = [(*(near - across), floor_m), (*(near + across), floor_m), (*(far + across), floor_m),
                   (*(far - across), floor_m)]
        middle_m = floor_m
    else:
        bottom, top = floor_m + o.bottom_m, floor_m + max(o.top_m, o.bottom_m + 0.05)
        corners = [(*(near - across), bottom), (*(near + across), bottom), (*(near + across), top),
                   (*(near - across), top)]
        middle_m = (bottom + top) / 2
    px = project(view, pose, _along_edges(np.array(corners)))
    mark = project(view, pose, np.array([[o.x_m, o.y_m, middle_m]]))[0]
    if np.isnan(px).any() or np.isnan(mark).any() or not _touches(px, view):
        return None
    return Outline([(round(float(x), 1), round(float(y), 1)) for x, y in px],
                   (round(float(mark[0]), 1), round(float(mark[1]), 1)))


def drawn_width_m(o: Obstacle) -> float:
    return PART_M if o.width_m > WIDE_M and o.thing is not Thing.DROP_OFF else max(o.width_m, 0.1)


def reduced(view: DepthView, most_px: int) -> DepthView:
    """A view of at most ``most_px`` rows and columns with its own memory; geometry stays right."""
    step = max(1, math.ceil(max(view.rho_m.shape) / most_px))
    rows, columns = (n // step * step for n in view.rho_m.shape)
    image = view.image[:rows, :columns]
    if step > 1:
        image = cv2.resize(image, (columns // step, rows // step), interpolation=cv2.INTER_AREA).astype(np.uint8)
    return DepthView(
        device_ns=view.device_ns, image=image.copy(),
        rho_m=view.rho_m[:rows:step, :columns:step].copy(), visible=view.visible[:rows:step, :columns:step].copy(),
        by_ends=view.by_ends[:rows:step, :columns:step].copy(),
        phi_rad=view.phi_rad[:rows].reshape(-1, step).mean(axis=1),
        tan_x=view.tan_x[:columns].reshape(-1, step).mean(axis=1),
        focal_px=view.focal_px / step, baseline_m=view.baseline_m, disparity_sd_px=view.disparity_sd_px / step,
        T_device_rect=view.T_device_rect,
    )


def depth_picture(view: DepthView) -> NDArray[np.uint8]:
    """[R, C, 3] RGB: near is bright yellow, far is dark blue, grey where depth is not known."""
    known = np.isfinite(view.rho_m)
    near = np.log(FARTHEST_M / np.clip(np.where(known, view.rho_m, FARTHEST_M), NEAREST_M, FARTHEST_M))
    grey = np.round(near * (255 / math.log(FARTHEST_M / NEAREST_M))).astype(np.uint8)
    colours = cv2.applyColorMap(grey, cv2.COLORMAP_VIRIDIS)[:, :, ::-1].copy()
    colours[~known & view.visible] = UNKNOWN_GREY
    colours[~known & ~view.visible] = OUTSIDE_GREY
    return colours.astype(np.uint8)


def _fractional_index(values: F64, grid: F64) -> F64:
    """Where ``values`` lie on an increasing grid, carried on past its ends with the step there."""
    index = np.interp(values, grid, np.arange(len(grid), dtype=np.float64))
    below = (values - grid[0]) / (grid[1] - grid[0])
    above = (values - grid[-1]) / (grid[-1] - grid[-2]) + len(grid) - 1
    return np.where(values < grid[0], below, np.where(values > grid[-1], above, index))


def _along_edges(corners: F64) -> F64:
    steps = np.linspace(0.0, 1.0, _SAMPLES, endpoint=False)[:, None]
    following = np.roll(corners, -1, axis=0)
    return np.concatenate([a + (b - a) * steps for a, b in zip(corners, following, strict=True)])


def _touches(px: F64, view: DepthView) -> bool:
    rows, columns = view.rho_m.shape
    (left, top), (right, bottom) = px.min(axis=0), px.max(axis=0)
    return bool(right >= 0 and left <= columns - 1 and bottom >= 0 and top <= rows - 1)
