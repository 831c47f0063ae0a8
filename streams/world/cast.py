"""Rays against flat faces, through Embree; the one place that touches ``embreex``. Knows no light and no camera."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from embreex import mesh_construction, rtcore_scene
from numpy.typing import NDArray

from handrail.streams.world.solids import Face

F32 = NDArray[np.float32]
I32 = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Hits:
    """Where rays met a face; one entry a ray. Rays that met nothing have ``triangle`` -1."""

    triangle: I32  # [N]
    distance: F32  # [N] in lengths of the ray's direction
    u: F32  # [N] barycentric weight of the triangle's second corner
    v: F32  # [N] of the third


class Caster:
    """A static scene of triangles. ``face_of`` and ``corners_uv`` tell where on which face a hit lies."""

    def __init__(self, faces: tuple[Face, ...]) -> None:
        triangles, corners, owner = [], [], []
        for i, face in enumerate(faces):
            points = face.points(face.corners_uv)
            for k in range(1, len(points) - 1):
                triangles.append(points[[0, k, k + 1]])
                corners.append(face.corners_uv[[0, k, k + 1]])
                owner.append(i)
        self.face_of: I32 = np.array(owner, dtype=np.int32)  # [T]
        self.corners_uv: F32 = np.array(corners, dtype=np.float32)  # [T, 3, 2]
        self._scene = rtcore_scene.EmbreeScene(robust=True)
        mesh_construction.TriangleMesh(self._scene, np.array(triangles, dtype=np.float32))

    def first_hits(self, origins: F32, directions: F32) -> Hits:
        """``origins`` [N, 3] or [3], ``directions`` [N, 3]."""
        out = self._scene.run(_rows(origins, len(directions)), _contiguous(directions), query="INTERSECT", output=True)
        return Hits(out["primID"], out["tfar"], out["u"], out["v"])

    def blocked(self, origins: F32, directions: F32, distance: F32) -> NDArray[np.bool_]:
        """Whether something lies on each ray within ``distance`` [N] (in lengths of its direction)."""
        found = self._scene.run(
            _rows(origins, len(directions)), _contiguous(directions), dists=_contiguous(distance), query="OCCLUDED"
        )
        return np.asarray(found == 0)


def dot(vectors: F32, axis: F32) -> F32:
    """[..., 3] along one axis [3] -> [...]; always added in the same order, unlike BLAS."""
    return np.asarray(vectors[..., 0] * axis[0] + vectors[..., 1] * axis[1] + vectors[..., 2] * axis[2])


def _rows(origins: F32, n: int) -> F32:
    return np.ascontiguousarray(np.broadcast_to(np.asarray(origins, dtype=np.float32), (n, 3)))


def _contiguous(values: F32) -> F32:
    return np.ascontiguousarray(values, dtype=np.float32)
