"""What light reaches each pixel of a camera on the head, in cd/m^2: one sample a pixel, at the sensor's own size.

Surfaces are diffuse; glass lets most light through and mirrors a little. Knows no exposure and no noise (``sensor``).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from handrail.streams.cameras import Camera, Rig
from handrail.streams.world.cast import F32, Caster
from handrail.streams.world.eye import I64, Eye
from handrail.streams.world.light import LightMap, bake
from handrail.streams.world.place import Place
from handrail.streams.world.solids import Face
from handrail.streams.world.texture import ROW, look_up, noise
from handrail.streams.world.visible import I16, Outlines, faces_met, traced
from handrail.streams.world.walk import F64, Walk

GLASS_MIRRORS = 0.08  # both surfaces of a pane, looked at straight
GLASS_PASSES = 0.96  # of the light that is not mirrored
OFF_PANE_M = 1e-3  # where a mirrored ray begins
FAR_M = 100.0  # beyond everything
EDGE_ON = 1e-6  # cosine below which a face has no distance worth the name
FLATTEST = 0.02  # cosine below which the pattern fades no further


@dataclass(frozen=True, slots=True)
class _Paint:
    """A face's material in plain numbers, and where its pattern and its light are looked up.

    Along each axis of the face, pattern coordinate = (metres + shift) / grain and light coordinate = start + metres *
    per_metre.
    """

    mean: float  # of albedo / pi
    deviation: float  # of the same, from the pattern
    least: float
    glow: float
    tint: tuple[float, float, float]
    grain: float
    shift: tuple[float, float]
    light_start: tuple[float, float]
    light_per_metre: tuple[float, float]


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
        self._axes = np.array([[f.normal, f.u_axis, f.v_axis] for f in place.faces])  # [F, 3, 3]
        self._origins = np.array([f.origin for f in place.faces])  # [F, 3]

    def T_world_camera(self, camera: Camera, t_s: float) -> F64:
        return np.asarray(self._walk.T_world_cpf(np.array([t_s]))[0] @ self._T_cpf_device @ camera.T_device_camera)

    def picture(self, eye: Eye, t_s: float, colour: bool = False) -> F32:
        """[H, W] or [H, W, 3] radiance in cd/m^2; 0 outside the lens circle."""
        picture = np.zeros((*eye.inside.shape, 3) if colour else eye.inside.shape, dtype=np.float32)
        picture[eye.inside] = self._look(eye, t_s, colour)
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
        depth[eye.inside] = self._caster.first_hits(T[:3, 3].astype(np.float32), eye.turned(T)).distance
        return depth

    def _look(self, eye: Eye, t_s: float, colour: bool) -> F32:
        """[N] or [N, 3] radiance along the rays of an eye, through glass."""
        T = self.T_world_camera(eye.camera, t_s)
        rays = eye.directions.T.copy()
        face = faces_met(self._caster, self._outlines, eye, T)
        distance = np.full(len(face), FAR_M, dtype=np.float32)
        radiance = self._shaded(rays, T, face, eye.pixel_rad, colour, distance if self._panes else None)
        for pane in self._panes:
            where, reach, cosine = _through(pane, T, rays, distance)
            if len(where) == 0:
                continue
            # A pane mirrors what an eye as far behind it would see, from the pane on.
            behind = _mirrored(pane, T)
            points = T[:3, 3].astype(np.float32) + reach[:, None] * eye.turned(T, where)
            onward = eye.turned(behind, where)
            face = traced(self._caster, points + np.float32(OFF_PANE_M) * onward, onward)
            start = reach + np.float32(OFF_PANE_M)
            mirror = self._shaded(rays.take(where, axis=1), behind, face, eye.pixel_rad, colour, start=start)
            share = GLASS_MIRRORS + (1 - GLASS_MIRRORS) * (1 - cosine) ** 5  # Schlick's approximation
            share = share[:, None] if colour else share
            radiance[where] = radiance[where] * ((1 - share) * np.float32(GLASS_PASSES)) + mirror * share
        return radiance

    def _shaded(
        self, rays: F32, T_world_eye: F64, face: I16, pixel_rad: float, colour: bool, distance: F32 | None = None,
        start: F32 | None = None,
    ) -> F32:
        """[N] or [N, 3] radiance along rays [3, N] of an eye's frame, each of which meets ``face`` [N].

        ``distance`` [N] is filled in for rays that meet one. Rays begin ``start`` [N] metres from the eye, or at it.
        """
        # Rays that meet one face are put together: what belongs to the face is then a number, not a look-up a ray.
        order = np.argsort(face, kind="stable")
        counts = np.bincount(face + 1, minlength=len(self._paints) + 1).tolist()
        order = order[counts[0] :]  # those that meet none stay black
        x, y, z = (ray.take(order) for ray in rays)
        starts = None if start is None else start.take(order)
        room = max(1, -(-len(order) // ROW)) * ROW  # whole rows for ``look_up``
        away, slope, u, v, light_x, light_y = (_room(len(order), room) for _ in range(6))
        spare = np.empty(room, dtype=np.float32)
        # Each face's normal and axes as the eye has them, and how far its plane and its origin lie along them.
        axes = np.einsum("faw,wc->fac", self._axes, T_world_eye[:3, :3]).tolist()
        offsets = np.einsum("faw,fw->fa", self._axes, self._origins - T_world_eye[:3, 3]).tolist()
        parts: list[tuple[_Paint, slice]] = []
        end = 0
        for paint, n, (normal, *across), (plane, *origin) in zip(self._paints, counts[1:], axes, offsets, strict=True):
            if n == 0:
                continue
            part = slice(end, end := end + n)
            parts.append((paint, part))
            one, rest = (x[part], y[part], z[part]), spare[part]
            facing = _along(one, normal, 1.0, slope[part], rest)
            np.abs(facing, out=facing)
            np.maximum(facing, EDGE_ON, out=facing)
            t = np.divide(abs(plane), facing, out=away[part])
            np.minimum(t, FAR_M, out=t)
            for k, (pattern, light) in enumerate(((u, light_x), (v, light_y))):
                at = _along(one, across[k], 1.0 / paint.grain, pattern[part], rest)
                at *= t
                at += (paint.shift[k] - origin[k]) / paint.grain
                np.multiply(at, paint.grain * paint.light_per_metre[k], out=light[part])
                light[part] += paint.light_start[k] - paint.shift[k] * paint.light_per_metre[k]
            if starts is not None:
                t -= starts[part]
            # A pixel covers distance * angle across the line of sight and 1 / cosine as much along it: take the mean.
            np.multiply(t, pixel_rad / paint.grain, out=rest)
            np.maximum(facing, FLATTEST, out=facing)
            np.sqrt(facing, out=facing)
            np.divide(rest, facing, out=facing)
        if distance is not None:
            distance[order] = away[: len(order)]
        albedo, lux = noise(u, v, slope), look_up(self._light, light_x, light_y)
        painted = np.empty((len(order), 3), dtype=np.float32) if colour else albedo
        for paint, part in parts:
            seen = albedo[part]
            seen *= paint.deviation
            seen += paint.mean
            np.maximum(seen, paint.least, out=seen)
            seen *= lux[part]
            seen += paint.glow
            if colour:
                np.multiply(seen[:, None], np.array(paint.tint, dtype=np.float32), out=painted[part])
        radiance = np.zeros((len(face), 3) if colour else len(face), dtype=np.float32)
        radiance[order] = painted[: len(order)]
        return radiance


def _paint(face: Face, light: LightMap, index: int) -> _Paint:
    material = face.material
    mean = material.mean / math.pi
    # Faces of different things show different parts of the pattern; pieces of one wall go on where the last ended.
    part = 1.37 * (material.mean * 1000.0 % 7.0)
    shift = (float(face.origin @ face.u_axis) + part, float(face.origin @ face.v_axis) + part)
    start, per_metre = ((float(a[index, 0]), float(a[index, 1])) for a in (light.start, light.per_metre))
    return _Paint(
        mean=mean, deviation=material.contrast * mean, least=0.04 * mean, glow=material.glow, tint=material.tint,
        grain=material.grain, shift=shift, light_start=start, light_per_metre=per_metre,
    )  # fmt: skip


def _room(used: int, room: int) -> F32:
    values = np.empty(room, dtype=np.float32)
    values[used:] = 0.0
    return values


def _along(vectors: tuple[F32, F32, F32], axis: list[float], scale: float, out: F32, spare: F32) -> F32:
    """``cast.dot`` into ``out``, times ``scale``."""
    np.multiply(vectors[0], axis[0] * scale, out=out)
    for i in (1, 2):
        out += np.multiply(vectors[i], axis[i] * scale, out=spare)
    return out


def _through(pane: Face, T_world_eye: F64, rays: F32, distance: F32) -> tuple[I64, F32, F32]:
    """Which of the rays meet the pane before ``distance`` [N]; how far away, and the cosine at which."""
    axes = np.einsum("aw,wc->ac", np.array([pane.normal, pane.u_axis, pane.v_axis]), T_world_eye[:3, :3]).tolist()
    off = pane.origin - T_world_eye[:3, 3]
    room = np.empty((3, rays.shape[1]), dtype=np.float32)
    ray, spare = (rays[0], rays[1], rays[2]), np.empty(rays.shape[1], dtype=np.float32)
    slope = _along(ray, axes[0], 1.0, room[0], spare)
    with np.errstate(divide="ignore", invalid="ignore"):
        reach = np.divide(float(off @ pane.normal), slope, out=room[1])
        met = (reach > 0) & (reach < distance)
        for i, axis in enumerate((pane.u_axis, pane.v_axis)):
            at = _along(ray, axes[1 + i], 1.0, room[2], spare)
            at *= reach
            at -= float(off @ axis)
            met &= at > 0
            met &= at < float(pane.corners_uv[:, i].max())
    where = np.flatnonzero(met)
    return where, reach[where], np.abs(slope[where])


def _mirrored(pane: Face, T_world_eye: F64) -> F64:
    """The pose of the eye's mirror image; it is left-handed."""
    n = pane.normal
    T = T_world_eye.copy()
    T[:3, 3] -= 2.0 * float((T[:3, 3] - pane.origin) @ n) * n
    T[:3, :3] -= 2.0 * np.outer(n, (n[:, None] * T_world_eye[:3, :3]).sum(axis=0))
    return T
