"""What light reaches each pixel of a camera on the head, in cd/m^2: one ray a pixel, at the sensor's own size.

Surfaces are diffuse; glass lets most light through and mirrors a little. Knows no exposure and no noise (``sensor``).
"""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from handrail.streams.cameras import Camera, Rig
from handrail.streams.world.cast import F32, Caster, dot
from handrail.streams.world.light import bake
from handrail.streams.world.place import Place
from handrail.streams.world.solids import Face
from handrail.streams.world.texture import look_up, noise
from handrail.streams.world.walk import F64, Walk

GLASS_MIRRORS = 0.08  # both surfaces of a pane, looked at straight


@dataclass(frozen=True, slots=True)
class Eye:
    """The rays of one camera, inside its lens circle."""

    camera: Camera
    inside: NDArray[np.bool_]  # [H, W]
    directions: F32  # [N, 3] unit, camera frame
    pixel_rad: float  # angle between neighbouring rays


def eye(camera: Camera) -> Eye:
    x, y = np.meshgrid(np.arange(camera.width, dtype=np.float64), np.arange(camera.height, dtype=np.float64))
    pixels = np.stack([x, y], axis=-1)
    inside = camera.sees(pixels)
    directions = camera.model.unproject(pixels[inside]).astype(np.float32)
    return Eye(camera, inside, directions, 1.0 / camera.model.focal_px[0])


class Renderer:
    """Draws one walk. Every picture depends on the camera and the time only, whatever was drawn before."""

    def __init__(self, place: Place, walk: Walk, rig: Rig) -> None:
        self._walk = walk
        self._T_cpf_device = np.linalg.inv(rig.T_device_cpf)
        self._caster = Caster(place.faces)
        self._panes = place.panes
        light = bake(self._caster, place)
        self._light = light.irradiance_lux
        face = self._caster.face_of
        uv = self._caster.corners_uv
        grain = np.array([f.material.grain for f in place.faces], dtype=np.float32)[face]
        anchor = np.array([[f.origin @ f.u_axis, f.origin @ f.v_axis] for f in place.faces], dtype=np.float32)[face]
        kind = np.array([_pattern_offset(f) for f in place.faces], dtype=np.float32)[face]
        self._texture_uv = _affine((uv + anchor[:, None] + kind[:, None, None]) / grain[:, None, None])
        self._light_xy = _affine(uv * light.per_metre[face][:, None] + light.start[face][:, None])
        self._normal = np.array([f.normal for f in place.faces], dtype=np.float32)[face].T.copy()  # [3, T]
        self._grain = grain
        self._mean = np.array([f.material.mean for f in place.faces], dtype=np.float32)[face] / np.float32(np.pi)
        self._contrast = np.array([f.material.contrast for f in place.faces], dtype=np.float32)[face]
        self._glow = np.array([f.material.glow for f in place.faces], dtype=np.float32)[face]
        self._tint = np.array([f.material.tint for f in place.faces], dtype=np.float32)[face]  # [T, 3]

    def T_world_camera(self, camera: Camera, t_s: float) -> F64:
        return np.asarray(self._walk.T_world_cpf(np.array([t_s]))[0] @ self._T_cpf_device @ camera.T_device_camera)

    def picture(self, eye: Eye, t_s: float, colour: bool = False) -> F32:
        """[H, W] or [H, W, 3] radiance in cd/m^2; 0 outside the lens circle."""
        T = self.T_world_camera(eye.camera, t_s)
        seen = self._look(*self._rays(eye, T), eye.pixel_rad, colour)
        picture = np.zeros((*eye.inside.shape, 3) if colour else eye.inside.shape, dtype=np.float32)
        picture[eye.inside] = seen
        return picture

    def mean_radiance(self, eye: Eye, t_s: float) -> float:
        """As a light meter sees it: over a few hundred rays, in cd/m^2; lamps count as bright white."""
        few = Eye(eye.camera, eye.inside, eye.directions[:: max(1, len(eye.directions) // 600)], eye.pixel_rad)
        seen = self._look(*self._rays(few, self.T_world_camera(eye.camera, t_s)), 16 * eye.pixel_rad, False)
        return float(np.minimum(seen, 6.0 * np.median(seen)).mean())

    def depth(self, eye: Eye, t_s: float) -> F32:
        """[H, W] distance in metres along each ray to the first opaque face; NaN outside the lens circle."""
        origin, directions = self._rays(eye, self.T_world_camera(eye.camera, t_s))
        depth = np.full(eye.inside.shape, np.nan, dtype=np.float32)
        depth[eye.inside] = self._caster.first_hits(origin, directions).distance
        return depth

    @staticmethod
    def _rays(eye: Eye, T_world_camera: F64) -> tuple[F32, F32]:
        # Not by ``@``: BLAS would start threads for it, which wait busily and add in an order of their own.
        turned = cv2.transform(eye.directions[:, None, :], T_world_camera[:3, :3])
        return T_world_camera[:3, 3].astype(np.float32), np.asarray(turned, dtype=np.float32)[:, 0, :]

    def _look(self, origins: F32, directions: F32, pixel_rad: float, colour: bool) -> F32:
        """[N] or [N, 3] radiance along rays from ``origins`` ([3] or [N, 3]), through glass."""
        radiance, distance = self._opaque(origins, directions, pixel_rad, colour)
        for pane in self._panes:
            n = pane.normal.astype(np.float32)
            slope = dot(directions, n)
            with np.errstate(divide="ignore", invalid="ignore"):
                reach = dot(pane.origin.astype(np.float32) - origins, n) / slope
                point = origins + reach[:, None] * directions
                off = point - pane.origin.astype(np.float32)
                u, v = dot(off, pane.u_axis.astype(np.float32)), dot(off, pane.v_axis.astype(np.float32))
                extent = pane.corners_uv.max(axis=0)
                met = (reach > 0) & (reach < distance) & (u > 0) & (v > 0) & (u < extent[0]) & (v < extent[1])
            where = np.flatnonzero(met)
            if len(where) == 0:
                continue
            d, cosine = directions[where], np.abs(slope[where])
            mirrored = d - 2 * slope[where, None] * n
            mirror, _ = self._opaque((point[where] + 1e-3 * mirrored).astype(np.float32), mirrored, pixel_rad, colour)
            share = GLASS_MIRRORS + (1 - GLASS_MIRRORS) * (1 - cosine) ** 5  # Schlick's approximation
            share = share[:, None] if colour else share
            radiance[where] = radiance[where] * (1 - share) * np.float32(0.96) + mirror * share
        return radiance

    def _opaque(self, origins: F32, directions: F32, pixel_rad: float, colour: bool) -> tuple[F32, F32]:
        """Radiance and distance of the first opaque face along each ray."""
        hits = self._caster.first_hits(origins, directions)
        missed = hits.triangle < 0  # a ray may slip through the seam of two faces
        t = np.where(missed, 0, hits.triangle)
        distance = np.where(missed, np.float32(100.0), hits.distance)
        n = self._normal
        facing = np.abs(n[0][t] * directions[:, 0] + n[1][t] * directions[:, 1] + n[2][t] * directions[:, 2])
        # A pixel covers distance * angle across the line of sight and 1 / cosine as much along it: take the mean.
        footprint = distance * np.float32(pixel_rad) / np.sqrt(np.maximum(facing, 0.02)) / self._grain[t]
        pattern = noise(*_at(self._texture_uv, t, hits.u, hits.v), footprint)
        lux = look_up(self._light, *_at(self._light_xy, t, hits.u, hits.v))
        albedo = self._mean[t] * np.maximum(1.0 + self._contrast[t] * pattern, 0.04)
        radiance = np.where(missed, 0.0, albedo * lux + self._glow[t]).astype(np.float32)
        if colour:
            return radiance[:, None] * self._tint[t], distance
        return radiance, distance


def _pattern_offset(face: Face) -> float:
    """Faces of different things show different parts of the pattern; pieces of one wall go on where the last ended."""
    return 1.37 * (face.material.mean * 1000.0 % 7.0)


def _affine(corners: F32) -> F32:
    """[T, 3, 2] values at the corners -> [6, T]: value at the first corner and its change towards the others."""
    first, second, third = corners[:, 0], corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]
    return np.concatenate([first, second, third], axis=1).T.astype(np.float32).copy()


def _at(affine: F32, t: NDArray[np.int32], u: F32, v: F32) -> tuple[F32, F32]:
    """The values at barycentric (u, v) in triangles ``t``; two of [N]."""
    return (
        affine[0][t] + affine[2][t] * u + affine[4][t] * v,
        affine[1][t] + affine[3][t] * u + affine[5][t] * v,
    )
