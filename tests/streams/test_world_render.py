"""Pictures show what is there, where it is, alike in both cameras, through the sensor's noise."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import cv2
import numpy as np
import pytest

from handrail.streams.cameras import Camera
from handrail.streams.world import sensor
from handrail.streams.world.cast import F32, Caster, Hits
from handrail.streams.world.eye import Eye, eye
from handrail.streams.world.light import bake
from handrail.streams.world.render import Renderer
from handrail.streams.world.scenario import Scenario, load_rig, scenario, walk_s
from handrail.streams.world.solids import Material
from handrail.streams.world.texture import look_up, noise
from handrail.streams.world.truth import TrueObstacle, Truth
from handrail.streams.world.walk import F64


@cache
def _world(seed: str, kind: str, generation: str = "2") -> tuple[Scenario, Renderer, Truth]:
    world = scenario(seed, {"kind": kind, "gen": generation, "seconds": "8"})
    return world, Renderer(world.place, world.walk, world.rig), Truth(world)


@cache
def _eye(generation: int, label: str) -> Eye:
    return eye(load_rig(generation).cameras[label])


def _first_met(truth: Truth) -> tuple[TrueObstacle, float]:
    """The first obstacle that is met, and the time 2 s before."""
    obstacle = next(o for o in truth.obstacles if o.contact_ns is not None)
    assert obstacle.contact_ns is not None
    return obstacle, walk_s(obstacle.contact_ns) - 2.0


def _project(renderer: Renderer, camera: Camera, t_s: float, points: F64) -> tuple[F64, F64]:
    """World points -> pixels and distances."""
    T = renderer.T_world_camera(camera, t_s)
    rays = (points - T[:3, 3]) @ T[:3, :3]
    return camera.model.project(rays), np.linalg.norm(rays, axis=1)


def _sample(picture: np.ndarray[tuple[int, ...], np.dtype[np.float32]], pixels: F64) -> F64:
    x, y = (pixels[:, i].astype(np.float32) for i in (0, 1))
    return look_up(np.nan_to_num(picture), x, y).astype(np.float64)


@pytest.mark.parametrize(("generation", "label"), [
    ("2", "slam-front-left"), ("2", "slam-front-right"), ("2", "camera-rgb"), ("1", "camera-slam-right"),
])  # fmt: skip
def test_a_true_point_appears_where_the_calibration_puts_it(generation: str, label: str) -> None:
    """Points well inside the sides that face the camera: the ray through each one's pixel ends at its distance."""
    _, renderer, truth = _world("3", "textured", generation)
    obstacle, t = _first_met(truth)
    look = _eye(int(generation), label)
    eye_at = renderer.T_world_camera(look.camera, t)[:3, 3]
    inner = np.array([[u, v] for u in np.linspace(0.2, 0.8, 9) for v in np.linspace(0.2, 0.8, 9)])
    points = np.concatenate([
        face.points(inner * face.corners_uv.max(axis=0))
        for face in obstacle.prism.faces(Material(0.5, 0.0))[:4]
        if face.normal @ (eye_at - face.points(face.corners_uv).mean(axis=0)) > 0.3
    ])  # fmt: skip

    def off(points: F64) -> F64:
        pixels, distance = _project(renderer, look.camera, t, points)
        inside = look.camera.sees(pixels)
        assert inside.any()
        return np.abs(_sample(renderer.depth(look, t), pixels[inside]) - distance[inside])

    assert np.median(off(points)) < 0.003
    assert (off(points) < 0.02).mean() > 0.97
    above = np.array([0.0, 0.0, obstacle.prism.top_m - obstacle.prism.bottom_m])
    assert (off(points + above) < 0.02).mean() < 0.1  # and just over it is nothing


@pytest.mark.parametrize("generation", ["1", "2"])
def test_a_surface_looks_the_same_from_both_cameras_of_the_pair(generation: str) -> None:
    world, renderer, _ = _world("3", "textured", generation)
    pair = world.rig.stereo_pair
    assert pair is not None
    left, right = (_eye(int(generation), label) for label in pair)
    t = 2.0
    shot = [renderer.picture(look, t) for look in (left, right)]
    depth = renderer.depth(left, t)[left.inside]
    T = renderer.T_world_camera(left.camera, t)
    points = T[:3, 3] + (left.directions.astype(np.float64) * depth[:, None]) @ T[:3, :3].T
    here = shot[0][left.inside].astype(np.float64)

    def likeness(points: F64) -> float:
        pixels, distance = _project(renderer, right.camera, t, points)
        seen = right.camera.sees(pixels)
        seen[seen] &= np.abs(_sample(renderer.depth(right, t), pixels[seen]) - distance[seen]) < 0.05
        seen &= depth < 5.0
        there = _sample(shot[1], pixels[seen])
        dark = (here[seen] < 60) & (there < 60)  # lamps would decide everything
        return float(np.corrcoef(here[seen][dark], there[dark])[0, 1])

    assert likeness(points) > 0.93
    assert likeness(points + np.array([0.0, 0.02, 0.02])) < likeness(points) - 0.1  # 3 cm off, texture disagrees


@pytest.mark.parametrize("generation", ["1", "2"])
@pytest.mark.parametrize(
    "kind", ["textured", "plain-wall", "pole", "glass", "head-bar", "head-turn", "step-down", "dusk", "mixed"]
)
def test_a_picture_by_few_rays_is_the_picture_by_one_ray_a_pixel(kind: str, generation: str) -> None:
    """Poles, bars and rims of glass thinner than a cell included."""
    world, renderer, _ = _world("4", kind, generation)
    pair = world.rig.stereo_pair
    assert pair is not None
    differ = []
    for label, share in ((pair[0], 0.25), (pair[1], 0.65), (pair[0], 0.9)):
        look, t = _eye(int(generation), label), share * world.place.duration_s
        exposure, gain = sensor.metered(sensor.SLAM_SENSOR, renderer.mean_radiance(look, t))
        level = sensor.SLAM_SENSOR.levels_per_cd_s * exposure * gain
        few, all_of_them = (level * renderer.picture(e, t) for e in (look, replace(look, grid=None)))
        differ.append(np.abs(few - all_of_them) > 1.0)
    assert np.mean(differ) < 1e-5  # under three pixels of a picture


def test_a_colour_picture_by_few_rays_is_the_one_by_one_ray_a_pixel() -> None:
    _, renderer, _ = _world("4", "glass")
    look = _eye(2, "camera-rgb")
    few, all_of_them = (renderer.picture(e, 3.0, colour=True) for e in (look, replace(look, grid=None)))
    assert few.shape == (*look.inside.shape, 3)
    assert np.mean(np.abs(few - all_of_them) > 0.02 * all_of_them.mean()) < 1e-5


def test_few_rays_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    traced = []

    def count(caster: Caster, origins: F32, directions: F32) -> Hits:
        traced.append(len(directions))
        return first_hits(caster, origins, directions)

    first_hits = Caster.first_hits
    monkeypatch.setattr(Caster, "first_hits", count)
    for kind in ("textured", "pole", "step-down"):
        _, renderer, _ = _world("4", kind)
        look = _eye(2, "slam-front-left")
        traced.clear()
        renderer.picture(look, 2.0)
        assert sum(traced) < len(look.directions) / 3


def test_stereo_matching_finds_the_true_depth() -> None:
    world, renderer, _ = _world("3", "textured")
    rig, t, focal, size = world.rig, 2.0, 200.0, 400
    pair = rig.stereo_pair
    assert pair is not None
    cameras = [rig.cameras[label] for label in pair]
    across = cameras[1].T_device_camera[:3, 3] - cameras[0].T_device_camera[:3, 3]
    baseline = float(np.linalg.norm(across))
    x = across / baseline
    z = cameras[0].T_device_camera[:3, 2] + cameras[1].T_device_camera[:3, 2]
    z = z - x * (z @ x)
    z /= np.linalg.norm(z)
    R = np.stack([x, np.cross(z, x), z], axis=1)
    u, v = np.meshgrid(np.arange(size), np.arange(size))
    rays = np.stack([(u - size / 2) / focal, (v - size / 2) / focal, np.ones(u.shape)], axis=-1)
    views, seen = [], np.ones(u.shape, dtype=bool)
    for i, camera in enumerate(cameras):
        look = _eye(2, camera.label)
        exposure, gain = sensor.metered(sensor.SLAM_SENSOR, renderer.mean_radiance(look, t))
        dim = sensor.falloff(look.inside, np.arccos(look.directions[:, 2]))
        shot = sensor.expose(
            sensor.SLAM_SENSOR, renderer.picture(look, t), dim, exposure, gain, (0.0, 0.0), np.random.default_rng(i)
        )
        pixels = camera.model.project(rays @ R.T @ camera.T_device_camera[:3, :3])
        seen &= camera.sees(pixels)
        flat = pixels.reshape(-1, 2)
        views.append(_sample(shot.astype(np.float32), flat).reshape(u.shape).astype(np.uint8))
        if i == 0:
            depth = _sample(renderer.depth(look, t), flat).reshape(u.shape)
    matcher = cv2.StereoSGBM.create(0, 96, 5, 200, 800, 1, 31, 10, 100, 2, cv2.STEREO_SGBM_MODE_SGBM_3WAY)
    disparity = matcher.compute(views[0], views[1]).astype(np.float64) / 16
    true = focal * baseline / (depth / np.linalg.norm(rays, axis=-1)).clip(0.1)
    use = seen & (disparity > 0.5) & (true > focal * baseline / 8)
    error = disparity[use] - true[use]
    assert use.mean() > 0.3
    assert abs(np.median(error)) < 0.05  # no bias in depth
    assert np.median(np.abs(error)) < 0.25


def test_a_plain_wall_has_nothing_to_match_and_a_textured_box_has() -> None:
    def detail(kind: str, seed: str) -> float:
        """Relative variation from pixel to pixel in the middle of the obstacle's side, without noise."""
        _, renderer, truth = _world(seed, kind)
        obstacle, t = _first_met(truth)
        look = _eye(2, "slam-front-left")
        height = 0.5 * (obstacle.prism.bottom_m + obstacle.prism.top_m)
        middle = np.append(obstacle.prism.footprint.mean(axis=0), height)
        pixels, _ = _project(renderer, look.camera, t, middle[None])
        x, y = (int(p) for p in pixels[0])
        patch = renderer.picture(look, t)[y - 8 : y + 8, x - 8 : x + 8]
        fine = patch - cv2.GaussianBlur(patch, (0, 0), 3.0)
        return float(fine.std() / patch.mean())

    assert detail("plain-wall", "1") < 0.01
    assert detail("textured", "3") > 0.03


def test_glass_lets_the_world_through_and_mirrors_a_little() -> None:
    world, renderer, truth = _world("3", "glass")
    pane, t = _first_met(truth)
    bare = Renderer(replace(world.place, panes=()), world.walk, world.rig)
    look = _eye(2, "slam-front-left")
    middle = np.append(pane.prism.footprint.mean(axis=0), 1.0)
    x, y = (int(p) for p in _project(renderer, look.camera, t, middle[None])[0][0])
    with_pane, without = (r.picture(look, t)[y - 20 : y + 20, x - 20 : x + 20].ravel() for r in (renderer, bare))
    assert np.corrcoef(with_pane, without)[0, 1] > 0.9
    change = np.abs(with_pane / without - 1)
    assert 0.01 < np.median(change) < 0.2


def test_dusk_is_darker_and_noisier() -> None:
    ratio = {}
    for kind in ("textured", "dusk"):
        _, renderer, _ = _world("5", kind)
        look = _eye(2, "slam-front-left")
        exposure, gain = sensor.metered(sensor.SLAM_SENSOR, renderer.mean_radiance(look, 1.0))
        dim = sensor.falloff(look.inside, np.arccos(look.directions[:, 2]))
        light = renderer.picture(look, 1.0)
        shots = [
            sensor.expose(sensor.SLAM_SENSOR, light, dim, exposure, gain, (0.0, 0.0), np.random.default_rng(i))
            for i in (1, 2)
        ]
        a, b = (shot[look.inside].astype(np.float64) for shot in shots)
        ratio[kind] = (a.mean() - sensor.BLACK, np.std(a - b) / np.sqrt(2))
        assert exposure <= sensor.SLAM_SENSOR.longest_s and 1.0 <= gain <= sensor.SLAM_SENSOR.highest_gain
    assert 35 < ratio["textured"][0] < 65
    assert ratio["dusk"][0] < ratio["textured"][0]
    assert ratio["dusk"][1] / ratio["dusk"][0] > 2.5 * ratio["textured"][1] / ratio["textured"][0]


def test_noise_of_a_flat_picture_is_photon_and_read_noise() -> None:
    flat = np.full((256, 256), 20.0, dtype=np.float32)
    whole = np.ones((256, 256), dtype=np.float32)
    for gain in (1.0, 8.0):
        exposure = 0.004 / gain
        shot = sensor.expose(sensor.SLAM_SENSOR, flat, whole, exposure, gain, (0.0, 0.0), np.random.default_rng(1))
        level = 20.0 * sensor.SLAM_SENSOR.levels_per_cd_s * 0.004
        electron = gain * 255 / sensor.FULL_WELL
        expected = np.sqrt(level * electron + (sensor.READ_NOISE * electron) ** 2 + 1 / 12)
        assert shot.mean() == pytest.approx(level + sensor.BLACK, abs=0.2)
        assert shot.std() == pytest.approx(expected, rel=0.05)


def test_motion_blurs_along_the_motion_only_and_loses_no_light() -> None:
    point = np.zeros((41, 41), dtype=np.float32)
    point[20, 20] = 2000.0
    whole = np.ones_like(point)
    spots = []
    for motion in ((0.0, 0.0), (6.0, 0.0)):
        shots = [
            sensor.expose(sensor.SLAM_SENSOR, point, whole, 1e-4, 1.0, motion, np.random.default_rng(i))
            for i in range(30)
        ]
        spots.append(np.mean(shots, axis=0) - sensor.BLACK)
    still, moved = spots
    assert moved.sum() == pytest.approx(still.sum(), rel=0.2)
    assert (moved[20] > 5).sum() >= 6 > (still[20] > 5).sum()
    assert (moved[:, 20] > 5).sum() <= (still[:, 20] > 5).sum()


def test_texture_fades_with_the_size_of_what_a_pixel_covers() -> None:
    rng = np.random.default_rng(0)
    u, v = (rng.uniform(-30, 30, 20_000).astype(np.float32) for _ in range(2))

    def variation(footprint_m: float) -> float:
        return float(noise(u, v, np.full(20_000, footprint_m, dtype=np.float32)).std())

    assert variation(0.002) == pytest.approx(1.0, abs=0.1)
    assert variation(0.002) > variation(0.03) > variation(0.2) > 0.1


def test_walls_lit_by_lamps_are_brighter_near_them_and_darker_in_corners() -> None:

    world, _, _ = _world("3", "textured")
    light = bake(Caster(world.place.faces), world.place)
    assert np.isfinite(light.irradiance_lux).all() and (light.irradiance_lux >= 0).all()
    floors = [i for i, f in enumerate(world.place.faces) if f.normal[2] > 0.9 and f.origin[2] == 0.0]
    under: list[float] = []
    aside: list[float] = []
    for i in floors:
        face = world.place.faces[i]
        for share, values in ((0.5, under), (0.02, aside)):
            uv = face.corners_uv.max(axis=0) * [0.5, share]
            x, y = light.start[i] + uv * light.per_metre[i]
            values.append(float(light.irradiance_lux[round(float(y)), round(float(x))]))
    assert np.mean(under) > 1.3 * np.mean(aside)
