"""Upright prisms and the flat faces they are drawn with. Metres, world frame. Knows no place, light or camera."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

F64 = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Material:
    """Diffuse. Albedo is ``mean * (1 + contrast * noise)``, noise of unit deviation; contrast 0 is uniform (plain)."""

    mean: float  # 0..1
    contrast: float
    grain: float = 1.0  # size of the pattern, 1: 3 mm to 0.8 m
    tint: tuple[float, float, float] = (1.0, 1.0, 1.0)  # red, green, blue, relative to the grey albedo
    glow: float = 0.0  # radiance of its own, cd/m^2 (lamps)


@dataclass(frozen=True, slots=True)
class Face:
    """A convex flat polygon: ``origin + u * u_axis + v * v_axis``; its normal is ``u_axis x v_axis``."""

    origin: F64  # [3]
    u_axis: F64  # [3] unit
    v_axis: F64  # [3] unit
    corners_uv: F64  # [K, 2] metres, counter-clockwise seen from the normal's side
    material: Material

    @property
    def normal(self) -> F64:
        return np.cross(self.u_axis, self.v_axis)

    def points(self, uv: F64) -> F64:
        """[..., 2] -> [..., 3]."""
        return self.origin + uv[..., :1] * self.u_axis + uv[..., 1:] * self.v_axis


@dataclass(frozen=True, slots=True)
class Prism:
    """What stands (or hangs) upright: a convex footprint between two heights."""

    footprint: F64  # [K, 2] metres, counter-clockwise seen from above
    bottom_m: float
    top_m: float

    def faces(self, material: Material) -> list[Face]:
        """Sides, top, and the underside where it does not stand on the floor."""
        up = np.array([0.0, 0.0, 1.0])
        height = self.top_m - self.bottom_m
        faces = []
        for a, b in zip(self.footprint, np.roll(self.footprint, -1, axis=0), strict=True):
            length = float(np.hypot(*(b - a)))
            along = np.array([*(b - a) / length, 0.0])
            corners = np.array([[0.0, 0.0], [length, 0.0], [length, height], [0.0, height]])
            faces.append(Face(np.array([*a, self.bottom_m]), along, up, corners, material))
        east, north = np.array([1.0, 0.0, 0.0]), np.array([0.0, 1.0, 0.0])
        start = self.footprint[0]
        faces.append(Face(np.array([*start, self.top_m]), east, north, self.footprint - start, material))
        if self.bottom_m > 0.0:
            flipped = (self.footprint - start)[::-1] * [1.0, -1.0]
            faces.append(Face(np.array([*start, self.bottom_m]), east, -north, flipped, material))
        return faces

    def surface_points(self, spacing_m: float) -> F64:
        """[N, 3]: a grid over the sides and top, at most ``spacing_m`` apart."""
        return np.concatenate([_grid(face, spacing_m) for face in self.faces(Material(0.5, 0.0))])


def _grid(face: Face, spacing_m: float) -> F64:
    low, high = face.corners_uv.min(axis=0), face.corners_uv.max(axis=0)
    n = np.maximum(2, np.ceil((high - low) / spacing_m).astype(int) + 1)
    u, v = np.meshgrid(np.linspace(low[0], high[0], n[0]), np.linspace(low[1], high[1], n[1]))
    uv = np.stack([u.ravel(), v.ravel()], axis=-1)
    return face.points(uv[_inside_convex(face.corners_uv, uv)])


def _inside_convex(polygon: F64, points: F64) -> NDArray[np.bool_]:
    edge = np.roll(polygon, -1, axis=0) - polygon
    off = points[:, None, :] - polygon[None, :, :]
    return np.asarray(((edge[:, 0] * off[..., 1] - edge[:, 1] * off[..., 0]) >= -1e-9).all(axis=1))


def box(centre: tuple[float, float], length: float, width: float, turn_rad: float, bottom: float, top: float) -> Prism:
    """A cuboid whose length lies along ``turn_rad`` (counter-clockwise from x)."""
    c, s = math.cos(turn_rad), math.sin(turn_rad)
    half = np.array([[-1, -1], [1, -1], [1, 1], [-1, 1]]) * [length / 2, width / 2]
    return Prism(half @ np.array([[c, s], [-s, c]]) + centre, bottom, top)


def pole(centre: tuple[float, float], radius: float, bottom: float, top: float, sides: int = 10) -> Prism:
    angle = 2 * math.pi * np.arange(sides) / sides
    return Prism(np.stack([np.cos(angle), np.sin(angle)], axis=-1) * radius + centre, bottom, top)


def clip_strip(polygon: F64, axis: int, low: float, high: float) -> F64:
    """The part of a convex polygon [K, 2] with ``low <= coordinate[axis] <= high``; [0, 2] when nothing is left."""
    for sign, limit in ((1.0, high), (-1.0, -low)):
        kept: list[F64] = []
        for a, b in zip(polygon, np.roll(polygon, -1, axis=0), strict=True):
            da, db = limit - sign * a[axis], limit - sign * b[axis]
            if da >= 0:
                kept.append(a)
            if (da >= 0) != (db >= 0):
                kept.append(a + (b - a) * (da / (da - db)))
        polygon = np.array(kept).reshape(-1, 2)
        if len(polygon) == 0:
            break
    return polygon


def nearest_point(polygon: F64, point: F64) -> F64:
    """Of a convex polygon [K, 2] (or a segment, or a point) the point nearest to ``point`` [2]; itself when inside."""
    if len(polygon) >= 3 and _inside_convex(polygon, point[None])[0]:
        return point
    a, b = polygon, np.roll(polygon, -1, axis=0)
    edge = b - a
    share = np.clip(((point - a) * edge).sum(axis=1) / np.maximum((edge * edge).sum(axis=1), 1e-12), 0.0, 1.0)
    on_edge = a + share[:, None] * edge
    return np.asarray(on_edge[np.argmin(((on_edge - point) ** 2).sum(axis=1))])
