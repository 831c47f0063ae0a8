"""Which face each pixel of a picture sees, by few rays: one in sixteen where a face fills what is around it.

Faces are flat and convex, so a cell of pixels whose corners all see one face sees nothing else, unless the outline
of another face runs through it. Cells with an outline in them, or with corners that differ, are traced pixel by pixel.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from handrail.streams.world.cast import F32, Caster
from handrail.streams.world.eye import CELL_PX, Eye, Grid, turned
from handrail.streams.world.solids import F64, Face

I16 = NDArray[np.int16]
I64 = NDArray[np.int64]

NOTHING = -1  # a ray may slip through the seam of two faces
STEP_PX = 1.5  # between points on an outline at the middle of the picture; up to half as much again at its rim
REACH_PX = 1.25  # around each point: more than half of the longest step, less than half of a cell


class Outlines:
    """The edges of all faces."""

    def __init__(self, faces: tuple[Face, ...]) -> None:
        edges = []
        for face in faces:
            points = face.points(face.corners_uv)
            both = np.round(np.stack([points, np.roll(points, -1, axis=0)], axis=1), 6)
            edges += [sorted(map(tuple, ends)) for ends in both]
        self._ends: F64 = np.unique(np.array(edges), axis=0)  # [E, 2, 3]; most are shared by two faces
        self._normals = np.array([face.normal for face in faces])
        self._origins = np.array([face.origin for face in faces])

    def crossing(self, eye: Eye, grid: Grid, T_world_eye: F64, filled: I16) -> NDArray[np.bool_]:
        """[rows, columns]: the cells through which an edge may run that is not behind the face that seems to fill it.

        What is behind that face's plane is hidden there: the face is convex, all corners of the cell see it.
        """
        R, eye_at = T_world_eye[:3, :3], T_world_eye[:3, 3]
        ends = np.einsum("ekw,wc->ekc", self._ends - eye_at, R)
        far = np.maximum(np.linalg.norm(ends, axis=2), 1e-6)
        ends /= far[:, :, None]
        first, last = ends[:, 0], ends[:, 1]
        cosine = (first * last).sum(axis=1)
        across = last - cosine[:, None] * first
        sine = np.maximum(np.linalg.norm(across, axis=1), 1e-9)
        across /= sine[:, None]
        angle = np.arctan2(sine, cosine)
        # Points at equal angles along each edge, all edges in one array.
        steps = np.ceil(angle / (STEP_PX * eye.pixel_rad)).astype(np.int64) + 1
        edge = np.repeat(np.arange(len(steps)), steps)
        k = np.arange(len(edge)) - np.repeat(np.cumsum(steps) - steps, steps)
        at = k * (angle / np.maximum(steps - 1, 1))[edge]
        c, s = np.cos(at), np.sin(at)
        rays = c[:, None] * first[edge] + s[:, None] * across[edge]
        # One over the distance is what adds up along a straight line.
        nearness = c / far[edge, 0] + s * ((1.0 / far[:, 1] - cosine / far[:, 0]) / sine)[edge]
        ahead = rays[:, 2] > grid.rim - 0.02
        rays, nearness = rays[ahead], nearness[ahead]
        plane = ((self._origins - eye_at) * self._normals).sum(axis=1)
        plane = np.where(np.abs(plane) < 1e-9, 1e-9, plane)
        planes = np.einsum("fw,wc->fc", self._normals, R) / plane[:, None]
        pixels = eye.camera.model.project(rays)
        rows, columns = grid.shape
        found = np.zeros(grid.shape, dtype=bool)
        low, high = (np.floor((pixels + d) / CELL_PX).astype(np.int64) for d in (-REACH_PX, REACH_PX))
        for x in (low[:, 0], high[:, 0]):
            for y in (low[:, 1], high[:, 1]):
                there = np.flatnonzero((x >= 0) & (x < columns) & (y >= 0) & (y < rows))
                row, column = y[there], x[there]
                behind = (planes[filled[row, column]] * rays[there]).sum(axis=1)
                shows = nearness[there] > behind * (1.0 - 1e-5)
                found[row[shows], column[shows]] = True
        return found


def faces_met(caster: Caster, outlines: Outlines, eye: Eye, grid: Grid, T_world_eye: F64) -> tuple[I16, I64, I16]:
    """The face that each cell [cells] sees alone, or NOTHING; the other places that have a ray, and the face of each.

    A place is counted along all cells.
    """
    origin = T_world_eye[:3, 3].astype(np.float32)
    corners = np.full(grid.corners.shape, NOTHING, dtype=np.int16)
    first = grid.directions[grid.corners[:-1, :-1].ravel(), 0]
    corners[grid.corners] = traced(caster, origin, turned(first, T_world_eye))
    one = corners[:-1, :-1]
    alike = grid.whole & (one == corners[:-1, 1:]) & (one == corners[1:, :-1]) & (one == corners[1:, 1:])
    filled = np.where(alike, one, np.int16(NOTHING))
    filled[outlines.crossing(eye, grid, T_world_eye, filled)] = NOTHING
    filled = filled.ravel()
    rest = np.flatnonzero(grid.there & (filled == NOTHING)[:, None])
    directions = grid.directions.reshape(-1, 3).take(rest, axis=0)
    return filled, rest, traced(caster, origin, turned(directions, T_world_eye))


def traced(caster: Caster, origins: F32, directions: F32) -> I16:
    """[N] the face that each ray meets first, or NOTHING; ``origins`` [N, 3] or [3]."""
    hits = caster.first_hits(origins, directions)
    return np.where(hits.triangle < 0, NOTHING, caster.face_of[hits.triangle]).astype(np.int16)
