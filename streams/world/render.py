"""What light reaches each pixel of a camera on the head, in cd/m^2: one sample a pixel, at the sensor's own size.

Surfaces are diffuse; glass lets most light through and mirrors a little. Knows no exposure and no noise (``sensor``).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import cv2
import numpy as np

from handrail.streams.cameras import Camera, Rig
from handrail.streams.world.cast import F32, Caster
from handrail.streams.world.eye import Eye, turned
from handrail.streams.world.light import LightMap, bake
from handrail.streams.world.place import Place
from handrail.streams.world.solids import Face
from handrail.streams.world.texture import ROW, look_up, noise
from handrail.streams.world.visible import I16, I64, Outlines, faces_met, traced
from handrail.streams.world.walk import F64, Walk

GLASS_MIRRORS = 0.08  # both surfaces of a pane, looked at straight
GLASS_PASSES = 0.96  # of the light that is not mirrored
OFF_PANE_M = 1e-3  # where a mirrored ray begins
FAR_M = 100.0  # beyond everything
EDGE_ON = 1e-6  # cosine below which the distance of a face means nothing
FLATTEST = 0.02  # cosine below which the pattern fades no further
BLOCK = 32 * ROW  # rays shaded at a time: what is worked out for them stays in the processor's cache


@dataclass(frozen=True, slots=True)
class _Paint:
    """A face's material in plain numbers, and where its light is looked up, by its coordinates in the pattern.

    Those are metres along its axes, shifted, in grains.
    """

    mean: float  # of albedo / pi
    deviation: float  # of the same, from the pattern
    least: float
    glow: float
    tint: tuple[float, float, float]
    grain: float
    shift: tuple[float, float]  # grains
    light_start: tuple[float, float]
    light_per_grain: tuple[float, float]


@dataclass(frozen=True, slots=True)
class _Part:
    """Rays that meet one face, and where that lies for the eye."""

    rays: slice
    paint: _Paint
    axes: F64  # [3, 3] normal, u and v axis of the face; the latter per grain
    offset: list[float]  # of its origin from the eye, along each


class Renderer:
    """Draws one walk. Every picture depends on the camera and the time only, whatever was drawn before."""

    def __init__(self, place: Place, walk: Walk, rig: Rig) -> None:
        self._walk = walk
        self._T_cpf_device = np.linalg.inv(rig.T_device_cpf)
        self._caster = Caster(place.faces)
        self._outlines = Outlines(place.faces)
        self._panes = place.panes
        light = bake(self._caster, place)
        self._light = light.irradiance_lux
        self._paints = [_paint(face, light, i) for i, face in enumerate(place.faces)]
        grains = [f.material.grain for f in place.faces]
        self._axes = np.array([  # [F, 3, 3] as in _Part
            [f.normal, f.u_axis / grain, f.v_axis / grain] for f, grain in zip(place.faces, grains, strict=True)
        ])  # fmt: skip
        self._origins = np.array([f.origin for f in place.faces])  # [F, 3]

    def T_world_camera(self, camera: Camera, t_s: float) -> F64:
        return np.asarray(self._walk.T_world_cpf(np.array([t_s]))[0] @ self._T_cpf_device @ camera.T_device_camera)

    def picture(self, eye: Eye, t_s: float, colour: bool = False) -> F32:
        """[H, W] or [H, W, 3] radiance in cd/m^2; 0 outside the lens circle."""
        seen = self._look(eye, t_s, colour)
        if eye.grid is not None:
            return eye.grid.picture(seen, eye.inside)
        picture = np.zeros((*eye.inside.shape, 3) if colour else eye.inside.shape, dtype=np.float32)
        picture[eye.inside] = seen
        return picture

    def mean_radiance(self, eye: Eye, t_s: float) -> float:
        """As a light meter sees it: over a few hundred rays, in cd/m^2; lamps count as bright white."""
        few = eye.directions[:: max(1, len(eye.directions) // 600)]
        seen = self._look(replace(eye, directions=few, pixel_rad=16 * eye.pixel_rad, grid=None), t_s, False)
        return float(np.minimum(seen, 6.0 * np.median(seen)).mean())

    def depth(self, eye: Eye, t_s: float) -> F32:
        """[H, W] distance in metres along each ray to the first opaque face; NaN outside the lens circle."""
        T = self.T_world_camera(eye.camera, t_s)
        depth = np.full(eye.inside.shape, np.nan, dtype=np.float32)
        depth[eye.inside] = self._caster.first_hits(T[:3, 3].astype(np.float32), turned(eye.directions, T)).distance
        return depth

    def _look(self, eye: Eye, t_s: float, colour: bool) -> F32:
        """[N] or [N, 3] radiance along the rays of an eye, or at the places of its grid, through glass."""
        T = self.T_world_camera(eye.camera, t_s)
        grid = eye.grid
        directions = eye.directions if grid is None else grid.directions.reshape(-1, 3)
        radiance = np.zeros((len(directions), 3) if colour else len(directions), dtype=np.float32)
        distance = np.full(len(directions), FAR_M, dtype=np.float32) if self._panes else None
        if grid is None:
            face = traced(self._caster, T[:3, 3].astype(np.float32), turned(directions, T))
            self._shade(directions[:, None], T, face, eye.pixel_rad, radiance, distance)
        else:
            filled, rest, face = faces_met(self._caster, self._outlines, eye, grid, T)
            self._shade(grid.directions, T, filled, eye.pixel_rad, radiance, distance)
            self._shade(directions[:, None], T, face, eye.pixel_rad, radiance, distance, rest)
        for pane in self._panes:
            assert distance is not None
            where, reach, cosine = _through(pane, T, directions, distance)
            if len(where) == 0:
                continue
            # A pane mirrors what an eye as far behind it would see, from the pane on.
            behind = _mirrored(pane, T)
            rays = directions.take(where, axis=0)
            points = T[:3, 3].astype(np.float32) + reach[:, None] * turned(rays, T)
            onward = turned(rays, behind)
            face = traced(self._caster, points + np.float32(OFF_PANE_M) * onward, onward)
            mirror = np.zeros((len(rays), 3) if colour else len(rays), dtype=np.float32)
            self._shade(rays[:, None], behind, face, eye.pixel_rad, mirror, start=reach + np.float32(OFF_PANE_M))
            share = GLASS_MIRRORS + (1 - GLASS_MIRRORS) * (1 - cosine) ** 5  # Schlick's approximation
            share = share[:, None] if colour else share
            radiance[where] = radiance[where] * ((1 - share) * np.float32(GLASS_PASSES)) + mirror * share
        return radiance

    def _shade(
        self, directions: F32, T_world_eye: F64, face: I16, pixel_rad: float, radiance: F32,
        distance: F32 | None = None, which: I64 | None = None, start: F32 | None = None,
    ) -> None:
        """Fill in the ``radiance`` [G * K] or [G * K, 3] and ``distance`` [G * K] of rays that meet a face.

        ``directions`` [G, K, 3], in the eye's frame, are groups of rays that each meet one ``face`` [G]; with ``which``
        given, the faces are those of these groups. Rays begin ``start`` [G] metres from the eye, or at it.
        """
        # Rays that meet one face are put together: what belongs to the face is then a number, not a look-up a ray.
        size = directions.shape[1]
        order = np.argsort(face, kind="stable")
        counts = np.bincount(face + 1, minlength=len(self._paints) + 1)
        order = order[counts[0] :]  # those that meet none stay black
        ends = np.cumsum(counts[1:]).tolist()
        # Each face's normal and axes as the eye has them, and how far its plane and its origin lie along them.
        axes = np.einsum("faw,wc->fac", self._axes, T_world_eye[:3, :3])
        offsets = np.einsum("faw,fw->fa", self._axes, self._origins - T_world_eye[:3, 3])
        for begin in range(0, len(order), BLOCK // size):
            groups = order[begin : begin + BLOCK // size]
            parts: list[_Part] = []
            done = 0
            for i in range(face[groups[0]], face[groups[-1]] + 1):
                end = min(ends[i] - begin, len(groups))
                if end > done:
                    rays = slice(done * size, end * size)
                    parts.append(_Part(rays, self._paints[i], axes[i], offsets[i].tolist()))
                    done = end
            from_m = None if start is None else start.take(groups)
            groups = groups if which is None else which.take(groups)
            painted, away = self._painted(directions.take(groups, axis=0).reshape(-1, 3), parts, pixel_rad, from_m)
            if radiance.ndim == 2:
                tints = np.repeat([p.paint.tint for p in parts], [p.rays.stop - p.rays.start for p in parts], axis=0)
                painted = painted[:, None] * tints.astype(np.float32)
            radiance.reshape(-1, size, *radiance.shape[1:])[groups] = painted.reshape(-1, size, *painted.shape[1:])
            if distance is not None:
                distance.reshape(-1, size)[groups] = away.reshape(-1, size)

    def _painted(
        self, directions: F32, parts: list[_Part], pixel_rad: float, start: F32 | None
    ) -> tuple[F32, F32]:
        """Radiance and distance from the eye where rays meet faces, each part of them one."""
        used = len(directions)
        room = -(-used // ROW) * ROW  # whole rows for ``look_up``
        away, footprint, u, v, light_x, light_y = np.zeros((6, room), dtype=np.float32)
        along = np.empty((used, 1, 3), dtype=np.float32)  # each face's axes
        for part in parts:
            cv2.transform(directions[part.rays, None], part.axes, along[part.rays])
        facing = np.abs(along[:, 0, 0])
        np.maximum(facing, EDGE_ON, out=facing)
        for part in parts:
            paint, rays = part.paint, part.rays
            plane, *origin = part.offset
            t = np.divide(abs(plane), facing[rays], out=away[rays])
            for k, (pattern, light) in enumerate(((u, light_x), (v, light_y))):
                at = np.multiply(along[rays, 0, 1 + k], t, out=pattern[rays])
                at += paint.shift[k] - origin[k]
                lit = np.multiply(at, paint.light_per_grain[k], out=light[rays])
                lit += paint.light_start[k]
            np.multiply(t if start is None else t - start[rays], pixel_rad / paint.grain, out=footprint[rays])
        # A pixel covers distance * angle across the line of sight and 1 / cosine as much along it: take the mean.
        np.maximum(facing, FLATTEST, out=facing)
        footprint[:used] /= np.sqrt(facing, out=facing)
        seen = noise(u, v, footprint)
        for part in parts:
            albedo = seen[part.rays]
            albedo *= part.paint.deviation
            albedo += part.paint.mean
            np.maximum(albedo, part.paint.least, out=albedo)
        seen *= look_up(self._light, light_x, light_y)
        for part in parts:
            if part.paint.glow > 0.0:
                seen[part.rays] += part.paint.glow
        return seen[:used], away[:used]


def _paint(face: Face, light: LightMap, index: int) -> _Paint:
    material = face.material
    mean, grain = material.mean / math.pi, material.grain
    # Faces of different things show different parts of the pattern; pieces of one wall go on where the last ended.
    part = 1.37 * (material.mean * 1000.0 % 7.0)
    shift = [float(face.origin @ axis) + part for axis in (face.u_axis, face.v_axis)]
    per_metre = light.per_metre[index].tolist()
    start = [float(light.start[index, k]) - shift[k] * per_metre[k] for k in (0, 1)]
    return _Paint(
        mean=mean, deviation=material.contrast * mean, least=0.04 * mean, glow=material.glow, tint=material.tint,
        grain=grain, shift=(shift[0] / grain, shift[1] / grain), light_start=(start[0], start[1]),
        light_per_grain=(per_metre[0] * grain, per_metre[1] * grain),
    )  # fmt: skip


def _through(pane: Face, T_world_eye: F64, directions: F32, distance: F32) -> tuple[I64, F32, F32]:
    """Which of the rays meet the pane before ``distance`` [N]; how far away, and the cosine at which."""
    axes = np.array([pane.normal, pane.u_axis, pane.v_axis])
    off = pane.origin - T_world_eye[:3, 3]
    turn = np.einsum("aw,wc->ac", axes, T_world_eye[:3, :3])
    along = np.asarray(cv2.transform(directions[:, None], turn), dtype=np.float32)[:, 0]
    with np.errstate(divide="ignore", invalid="ignore"):
        reach = np.float32(off @ pane.normal) / along[:, 0]
        met = (reach > 0) & (reach < distance)
        for k, axis in ((1, pane.u_axis), (2, pane.v_axis)):
            at = along[:, k] * reach
            at -= float(off @ axis)
            met &= at > 0
            met &= at < float(pane.corners_uv[:, k - 1].max())
    where = np.flatnonzero(met)
    return where, reach.take(where), np.abs(along[:, 0].take(where))


def _mirrored(pane: Face, T_world_eye: F64) -> F64:
    """The pose of the eye's mirror image; it is left-handed."""
    n = pane.normal
    T = T_world_eye.copy()
    T[:3, 3] -= 2.0 * float((T[:3, 3] - pane.origin) @ n) * n
    T[:3, :3] -= 2.0 * np.outer(n, (n[:, None] * T_world_eye[:3, :3]).sum(axis=0))
    return T
