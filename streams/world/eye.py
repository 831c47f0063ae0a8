"""The rays of one camera, and the grid of cells by which ``visible`` spares most of them. Knows no place."""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from handrail.streams.cameras import Camera
from handrail.streams.world.cast import F32
from handrail.streams.world.solids import F64

CELL_PX = 4

I64 = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Grid:
    """Square cells over a picture. A cell is whole if the pixels at all its corners have rays: then all in it have."""

    shape: tuple[int, int]  # rows and columns of cells
    corner: I64  # [K] rays at corners of whole cells
    corner_at: I64  # [K] where they belong among the (rows + 1) x (columns + 1) corners, counted along the rows
    whole: NDArray[np.bool_]  # [rows, columns]
    cell_of: I64  # [N] the cell of each ray, counted along the rows
    rim: float  # cosine of the widest ray off the axis


@dataclass(frozen=True, slots=True)
class Eye:
    """The rays of one camera, inside its lens circle."""

    camera: Camera
    inside: NDArray[np.bool_]  # [H, W]
    directions: F32  # [N, 3] unit, camera frame
    pixel_rad: float  # angle between neighbouring rays
    grid: Grid | None  # None: the rays are no whole picture, or each is to be traced

    def turned(self, T_world_eye: F64, which: I64 | None = None) -> F32:
        """The directions (of some rays) in the world."""
        directions = self.directions if which is None else self.directions.take(which, axis=0)
        # Not by ``@``: BLAS would start threads for it, which wait busily and add in an order of their own.
        return np.asarray(cv2.transform(directions[:, None, :], T_world_eye[:3, :3]), dtype=np.float32)[:, 0, :]


def eye(camera: Camera) -> Eye:
    x, y = np.meshgrid(np.arange(camera.width, dtype=np.float64), np.arange(camera.height, dtype=np.float64))
    pixels = np.stack([x, y], axis=-1)
    inside = camera.sees(pixels)
    directions = camera.model.unproject(pixels[inside]).astype(np.float32)
    return Eye(camera, inside, directions, 1.0 / camera.model.focal_px[0], _grid(inside, float(directions[:, 2].min())))


def _grid(inside: NDArray[np.bool_], rim: float) -> Grid:
    rows, columns = (-(-n // CELL_PX) for n in inside.shape)
    y, x = np.nonzero(inside)
    there = np.zeros((rows + 1, columns + 1), dtype=bool)
    at_corners = inside[::CELL_PX, ::CELL_PX]
    there[: at_corners.shape[0], : at_corners.shape[1]] = at_corners
    whole = there[:-1, :-1] & there[:-1, 1:] & there[1:, :-1] & there[1:, 1:]
    used = np.zeros_like(there)
    for i in (0, 1):
        for k in (0, 1):
            used[i : i + rows, k : k + columns] |= whole
    corner_of = y // CELL_PX * (columns + 1) + x // CELL_PX
    corner = np.flatnonzero((y % CELL_PX == 0) & (x % CELL_PX == 0) & used.ravel()[corner_of])
    return Grid((rows, columns), corner, corner_of[corner], whole, y // CELL_PX * columns + x // CELL_PX, rim)
