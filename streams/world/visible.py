"""Which face each pixel of a picture sees, by few rays: one in sixteen where a face fills what is around it.

Faces are flat and convex, so a cell of pixels whose corners all see one face sees nothing else, unless the outline
of another face runs through it. Cells with an outline in them, or with corners that differ, are traced pixel by pixel.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from handrail.streams.world.cast import F32, Caster
from handrail.streams.world.eye import CELL_PX, Eye, Grid
from handrail.streams.world.solids import F64, Face

I16 = NDArray[np.int16]

NOTHING = -1  # a ray may slip through the seam of two faces
STEP_PX = 1.5  # between points on an outline at the middle of the picture; up to half as much again at its rim
REACH_PX = 1.25  # around each point: more than half of the longest step, less than half of a cell


class Outlines:
    """The edges of all faces."""

    def __init__(self, faces: tuple[Face, ...]) -> None:
        edges = []
        for face in faces:
            points = face.points(face.corners_uv)
            edges += [(a, b) for a, b in zip(points, np.roll(points, -1, axis=0), strict=True)]
        # Most are shared by two faces.
        ends = np.sort(np.round(np.array(edges), 6).view("f8,f8,f8"), axis=1).view(np.float64)
        self._ends: F64 = np.unique(ends.reshape(-1, 6), axis=0).reshape(-1, 2, 3)

    def cells(self, eye: Eye, grid: Grid, T_world_eye: F64) -> NDArray[np.bool_]:
        """[rows, columns]: the cells that an edge may run through, hidden or not."""
        rays = np.einsum("ekw,wc->ekc", self._ends - T_world_eye[:3, 3], T_world_eye[:3, :3])
        rays /= np.linalg.norm(rays, axis=2, keepdims=True)
        first, last = rays[:, 0], rays[:, 1]
        across = last - (first * last).sum(axis=1, keepdims=True) * first
        sine = np.linalg.norm(across, axis=1)
        angle = np.arctan2(sine, (first * last).sum(axis=1))
        across /= np.maximum(sine, 1e-12)[:, None]
        # Points at equal angles along each edge, all edges in one array.
        steps = np.ceil(angle / (STEP_PX * eye.pixel_rad)).astype(np.int64) + 1
        edge = np.repeat(np.arange(len(steps)), steps)
        k = np.arange(len(edge)) - np.repeat(np.cumsum(steps) - steps, steps)
        at = k * (angle / np.maximum(steps - 1, 1))[edge]
        points = np.cos(at)[:, None] * first[edge] + np.sin(at)[:, None] * across[edge]
        pixels = eye.camera.model.project(points[points[:, 2] > grid.rim - 0.02])
        rows, columns = grid.shape
        found = np.zeros(grid.shape, dtype=bool)
        low, high = (np.floor((pixels + d) / CELL_PX).astype(np.int64) for d in (-REACH_PX, REACH_PX))
        for x in (low[:, 0], high[:, 0]):
            for y in (low[:, 1], high[:, 1]):
                there = (x >= 0) & (x < columns) & (y >= 0) & (y < rows)
                found[y[there], x[there]] = True
        return found


def faces_met(caster: Caster, outlines: Outlines, eye: Eye, T_world_eye: F64) -> I16:
    """[N] the face that each ray of an eye meets first, or NOTHING."""
    origin = T_world_eye[:3, 3].astype(np.float32)
    grid = eye.grid
    if grid is None:
        return traced(caster, origin, eye.turned(T_world_eye))
    rows, columns = grid.shape
    corners = np.full((rows + 1, columns + 1), NOTHING, dtype=np.int16)
    corners.ravel()[grid.corner_at] = traced(caster, origin, eye.turned(T_world_eye, grid.corner))
    one = corners[:-1, :-1]
    filled = grid.whole & (one == corners[:-1, 1:]) & (one == corners[1:, :-1]) & (one == corners[1:, 1:])
    filled &= ~outlines.cells(eye, grid, T_world_eye)
    face = np.where(filled, one, np.int16(NOTHING)).ravel().take(grid.cell_of)
    rest = np.flatnonzero(face == NOTHING)
    face[rest] = traced(caster, origin, eye.turned(T_world_eye, rest))
    return face


def traced(caster: Caster, origins: F32, directions: F32) -> I16:
    """[N] the same for any rays; ``origins`` [N, 3] or [3]."""
    hits = caster.first_hits(origins, directions)
    return np.where(hits.triangle < 0, NOTHING, caster.face_of[hits.triangle]).astype(np.int16)
