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


@dataclass(frozen=True, slots=True)
class Grid:
    """Square cells over a picture, counted along the rows; their pixels likewise, as places of a cell.

    A cell is whole if the pixels at all its corners have rays: then all in it have.
    """

    directions: F32  # [cells, places, 3] as the eye's; 0 where there is no ray
    there: NDArray[np.bool_]  # [cells, places] whether there is a ray
    shape: tuple[int, int]  # rows and columns of cells
    whole: NDArray[np.bool_]  # [rows, columns]
    corners: NDArray[np.bool_]  # [rows + 1, columns + 1] those of whole cells, each the first pixel of a cell
    rim: float  # cosine of the widest ray off the axis

    def picture(self, values: F32, like: NDArray[np.bool_]) -> F32:
        """Values at the places, [cells * places, ...], as a picture of the size of another."""
        rows, columns = self.shape
        tiles = values.reshape(rows, columns, CELL_PX, CELL_PX, *values.shape[1:]).swapaxes(1, 2)
        whole = tiles.reshape(rows * CELL_PX, columns * CELL_PX, *values.shape[1:])
        return np.ascontiguousarray(whole[: like.shape[0], : like.shape[1]])


@dataclass(frozen=True, slots=True)
class Eye:
    """The rays of one camera, inside its lens circle."""

    camera: Camera
    inside: NDArray[np.bool_]  # [H, W]
    directions: F32  # [N, 3] unit, camera frame
    pixel_rad: float  # angle between neighbouring rays
    grid: Grid | None  # None: the rays are no whole picture, or each is to be traced


def eye(camera: Camera) -> Eye:
    x, y = np.meshgrid(np.arange(camera.width, dtype=np.float64), np.arange(camera.height, dtype=np.float64))
    pixels = np.stack([x, y], axis=-1)
    inside = camera.sees(pixels)
    directions = camera.model.unproject(pixels[inside]).astype(np.float32)
    return Eye(camera, inside, directions, 1.0 / camera.model.focal_px[0], _grid(inside, directions))


def turned(directions: F32, T_world_eye: F64) -> F32:
    """[N, 3] from an eye's frame to the world's."""
    # Not by ``@``: BLAS would start threads for it, which wait busily and add in an order of their own.
    return np.asarray(cv2.transform(directions[:, None, :], T_world_eye[:3, :3]), dtype=np.float32)[:, 0, :]


def _grid(inside: NDArray[np.bool_], directions: F32) -> Grid:
    rows, columns = (-(-n // CELL_PX) for n in inside.shape)
    there = np.zeros((rows * CELL_PX, columns * CELL_PX), dtype=bool)
    there[: inside.shape[0], : inside.shape[1]] = inside
    spread = np.zeros((*there.shape, 3), dtype=np.float32)
    spread[there] = directions
    first = np.zeros((rows + 1, columns + 1), dtype=bool)
    first[:-1, :-1] = there[::CELL_PX, ::CELL_PX]
    whole = first[:-1, :-1] & first[:-1, 1:] & first[1:, :-1] & first[1:, 1:]
    corners = np.zeros_like(first)
    for i in (0, 1):
        for k in (0, 1):
            corners[i : i + rows, k : k + columns] |= whole
    tiles = (rows, CELL_PX, columns, CELL_PX)
    return Grid(
        spread.reshape(*tiles, 3).swapaxes(1, 2).reshape(rows * columns, CELL_PX * CELL_PX, 3),
        there.reshape(tiles).swapaxes(1, 2).reshape(rows * columns, CELL_PX * CELL_PX),
        (rows, columns), whole, corners, float(directions[:, 2].min()),
    )  # fmt: skip
