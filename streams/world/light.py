"""Light on every face, worked out once per place: lamps with soft shadows, and ambient light shut out by corners.

Irradiance in lux on a grid over each face, packed into one image to be looked up bilinearly. Direct light and a
constant ambient only: no second bounce, no highlights. Knows no camera.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from handrail.streams.world.cast import F32, Caster, dot
from handrail.streams.world.place import Lamp, Place

GRID_M = 0.08
REACH_M = 9.0  # a lamp further away gives under 1 % of what the nearest one gives
CORNER_M = 1.5  # how far ambient light is shut out by what is near
ATLAS_WIDTH = 2048


@dataclass(frozen=True, slots=True)
class LightMap:
    irradiance_lux: F32  # [H, W] packed grids
    start: F32  # [faces, 2] pixel (x, y) of each face's (u, v) = 0
    per_metre: F32  # [faces, 2] pixels per metre along u and v


def bake(caster: Caster, place: Place) -> LightMap:
    starts, scales, cells, points, normals = [], [], [], [], []
    x = y = shelf = 0
    for face in place.faces:
        low, high = face.corners_uv.min(axis=0), face.corners_uv.max(axis=0)
        size = high - low
        n = np.maximum(2, np.ceil(size / GRID_M).astype(int) + 1)
        if x + n[0] > ATLAS_WIDTH:
            x, y, shelf = 0, y + shelf, 0
        shelf = max(shelf, int(n[1]))
        per_metre = (n - 1) / size
        starts.append([x, y] - low * per_metre)
        scales.append(per_metre)
        # Samples at the rim are drawn in by 5 mm, so that they don't lie in the neighbouring face.
        u = np.clip(np.linspace(low[0], high[0], n[0]), low[0] + 0.005, high[0] - 0.005)
        v = np.clip(np.linspace(low[1], high[1], n[1]), low[1] + 0.005, high[1] - 0.005)
        uu, vv = np.meshgrid(u, v)
        points.append(face.points(np.stack([uu.ravel(), vv.ravel()], axis=-1)) + 0.003 * face.normal)
        normals.append(np.broadcast_to(face.normal, (len(points[-1]), 3)))
        rows, columns = np.meshgrid(np.arange(y, y + n[1]), np.arange(x, x + n[0]), indexing="ij")
        cells.append(rows.ravel() * ATLAS_WIDTH + columns.ravel())
        x += int(n[0])
    p, n_ = np.concatenate(points).astype(np.float32), np.concatenate(normals).astype(np.float32)
    light = place.ambient_lux * _openness(caster, p, n_)
    for lamp in place.lamps:
        light += _direct(caster, lamp, p, n_)
    atlas = np.zeros((y + shelf) * ATLAS_WIDTH, dtype=np.float32)
    atlas[np.concatenate(cells)] = light
    return LightMap(
        atlas.reshape(-1, ATLAS_WIDTH), np.array(starts, dtype=np.float32), np.array(scales, dtype=np.float32)
    )


def _openness(caster: Caster, points: F32, normals: F32) -> F32:
    """[N] share of the half space above each point that is open to ``CORNER_M``, weighted by the cosine."""
    directions = np.random.default_rng(0).normal(size=(16, 3)).astype(np.float32)
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    total = np.zeros(len(points), dtype=np.float32)
    weight = np.zeros(len(points), dtype=np.float32)
    for direction in directions:
        cosine = dot(normals, direction)
        ray = np.where(cosine[:, None] < 0, -direction, direction).astype(np.float32)
        cosine = np.abs(cosine)
        near = np.full(len(points), CORNER_M, dtype=np.float32)
        total += cosine * ~caster.blocked(points, ray, near)
        weight += cosine
    return np.asarray(total / np.maximum(weight, 1e-6), dtype=np.float32)


def _direct(caster: Caster, lamp: Lamp, points: F32, normals: F32) -> F32:
    """[N] lux from one lamp that shines downward (as the cosine), from four points on it."""
    light = np.zeros(len(points), dtype=np.float32)
    near = np.flatnonzero(np.linalg.norm(points - lamp.centre.astype(np.float32), axis=1) < REACH_M)
    for corner in ((-1, -1), (-1, 1), (1, -1), (1, 1)):
        source = lamp.centre + 0.6 * lamp.half_m * np.array([*corner, 0.0]) - [0.0, 0.0, 0.005]
        to_lamp = source.astype(np.float32) - points[near]
        distance = np.linalg.norm(to_lamp, axis=1)
        cosine = (to_lamp * normals[near]).sum(axis=1) / distance
        down = to_lamp[:, 2] / distance
        lit = np.flatnonzero((cosine > 0) & (down > 0))
        whole = np.ones(len(lit), dtype=np.float32)
        lit = lit[~caster.blocked(points[near][lit], to_lamp[lit], whole)]
        light[near[lit]] += 0.25 * lamp.intensity_cd * cosine[lit] * down[lit] / distance[lit] ** 2
    return light
