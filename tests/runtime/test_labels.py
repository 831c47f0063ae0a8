"""Boxes become names of obstacles only where geometry, score and repetition agree; left never names right."""

from __future__ import annotations

import functools
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from labelled_walk import RGB, labelled_walk, turned, upright_pixels
from scenes import look, thing, walker

from handrail.runtime.labels.detector import (
    BINS,
    LEAST_SCORE,
    MOST_OVERLAP,
    SIDE_PX,
    STRIDES_PX,
    Box,
    _overlap,
    decoded,
    squared,
)
from handrail.runtime.labels.fakes import FakeDetector
from handrail.runtime.labels.labeller import Change, Labeller
from handrail.runtime.labels.matching import Looked, Named, match
from handrail.runtime.labels.names import COCO, SAID
from handrail.runtime.labels.opening import nanodet_path, open_detector
from handrail.runtime.labels.view import View
from handrail.runtime.labels.votes import ENOUGH, LOOKS, SURE_SCORE, Votes
from handrail.runtime.scene import Obstacle, Scene, Wearer
from handrail.runtime.speech.phrases import speakable
from handrail.streams.cameras import Rig
from handrail.streams.clock import run_virtual
from handrail.streams.errors import SourceError
from handrail.streams.source import DecodePlan, open_source
from handrail.streams.upright import upright

S = 1_000_000_000
FRAMES = Path(__file__).resolve().parents[3] / "shared" / "data" / "egoblind_ra" / "frames"
CELLS = sum((SIDE_PX // stride) ** 2 for stride in STRIDES_PX)


# ---- boxes out of the network's numbers ------------------------------------------------------------------------------


def made_up(boxes: list[tuple[int, int, str, float, tuple[int, int, int, int]]]) -> tuple[Any, Any]:
    """Outputs that say: at this (stride, cell of it), this class with this score, so many strides to each side."""
    scores, bins = np.zeros((CELLS, 80), np.float32), np.zeros((CELLS, 4 * BINS), np.float32)
    for stride, cell, name, score, reach in boxes:
        row = sum((SIDE_PX // s) ** 2 for s in STRIDES_PX if s < stride) + cell
        scores[row, COCO.index(name)] = score
        logits = np.full((4, BINS), -50.0)
        logits[range(4), reach] = 50.0
        bins[row] = logits.ravel()
    return scores, bins


@pytest.mark.parametrize("stride", STRIDES_PX)
def test_a_box_reaches_as_far_from_its_cell_as_its_bins_say(stride: int) -> None:
    across = SIDE_PX // stride
    column, row = 5, 7
    (box,) = decoded(*made_up([(stride, row * across + column, "dog", 0.8, (1, 2, 3, 4))]), SIDE_PX, SIDE_PX)
    x, y = (column + 0.5) * stride, (row + 0.5) * stride
    corners = np.clip([x - stride, y - 2 * stride, x + 3 * stride, y + 4 * stride], 0, SIDE_PX) - 0.5
    assert box.label == "dog" and box.score == pytest.approx(0.8)
    assert [box.left, box.top, box.right, box.bottom] == pytest.approx(corners)


def test_between_two_bins_a_side_lies_at_their_average() -> None:
    scores, bins = made_up([(16, 300, "dog", 0.8, (2, 2, 2, 2))])
    bins[bins > 0] = 0.0
    bins.reshape(-1, 4, BINS)[2704 + 300, :, 3:6] = 50.0
    bins.reshape(-1, 4, BINS)[2704 + 300, :, 4] = -50.0
    (box,) = decoded(scores, bins, SIDE_PX, SIDE_PX)
    assert box.right - box.left == pytest.approx(2 * 4 * 16)


@settings(max_examples=40, deadline=None)
@given(width=st.integers(40, 2016), height=st.integers(40, 2016), x=st.floats(0.2, 0.8), y=st.floats(0.2, 0.8))
def test_a_box_lies_where_the_picture_has_it_whatever_the_picture_s_shape(
    width: int, height: int, x: float, y: float
) -> None:
    """A white spot on black, found again in the square by its brightness, decoded back into the picture."""
    assume(max(width, height) / min(width, height) < 3)
    picture = np.zeros((height, width, 3), np.uint8)
    spot = max(3, round(0.1 * min(width, height)))
    left, top = int(x * (width - spot)), int(y * (height - spot))
    picture[top : top + spot, left : left + spot] = 255
    down, across = np.nonzero(squared(picture)[..., 0] > 100)
    column, row = int(across.mean()) // 8, int(down.mean()) // 8
    (box,) = decoded(*made_up([(8, row * 52 + column, "dog", 0.8, (1, 1, 1, 1))]), width, height)
    pixel = max(width, height) / SIDE_PX  # of the square
    assert abs(0.5 * (box.left + box.right) - (left + 0.5 * (spot - 1))) < 7 * pixel + 1
    assert abs(0.5 * (box.top + box.bottom) - (top + 0.5 * (spot - 1))) < 7 * pixel + 1
    assert -0.5 <= box.left <= box.right <= width - 0.5 and -0.5 <= box.top <= box.bottom <= height - 0.5


outputs = st.lists(
    st.tuples(st.just(16), st.integers(0, 675), st.sampled_from(["dog", "person"]), st.floats(0.1, 1.0),
              st.tuples(*[st.integers(1, 6)] * 4)), min_size=1, max_size=25, unique_by=lambda box: box[1],
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(outputs)
def test_of_boxes_of_one_class_that_overlap_the_best_is_kept(
    boxes: list[tuple[int, int, str, float, tuple[int, int, int, int]]]
) -> None:
    kept = decoded(*made_up(boxes), SIDE_PX, SIDE_PX)
    every = [decoded(*made_up([box]), SIDE_PX, SIDE_PX) for box in boxes]
    singles = [box[0] for box in every if box]
    assert [b.score for b in kept] == sorted((b.score for b in kept), reverse=True)
    assert all(any(_same(k, one) for one in singles) for k in kept)
    for one in singles:  # what was dropped has a better one over it; what was kept overlaps no other
        over = [k for k in kept if k.label == one.label and _shared(k, one) > MOST_OVERLAP - 1e-9]
        assert any(k.score >= one.score - 1e-6 for k in over)
    for i, a in enumerate(kept):
        assert all(a.label != b.label or _shared(a, b) <= MOST_OVERLAP for b in kept[i + 1 :])
    assert sum(score >= LEAST_SCORE for *_, score, _ in boxes) >= len(kept)


def _corners(box: Box) -> Any:
    return np.array([box.left, box.top, box.right, box.bottom])


def _shared(a: Box, b: Box) -> float:
    return float(_overlap(_corners(a), _corners(b)[None])[0])


def _same(a: Box, b: Box) -> bool:
    return a.label == b.label and np.allclose([a.score, *_corners(a)], [b.score, *_corners(b)], atol=1e-3)


def test_every_word_that_may_be_said_can_be_said() -> None:
    assert set(SAID) <= set(COCO) and len(COCO) == len(set(COCO)) == 80
    for said in SAID.values():
        assert speakable(said.name) == said.name.capitalize() != "Obstacle"
        assert 0 < said.least_m < said.most_m and said.widest_m > 0


# ---- geometry --------------------------------------------------------------------------------------------------------


@functools.cache
def rig_of(generation: int) -> Rig:
    async def read() -> Rig:
        async with open_source(f"world:1?gen={generation}&seconds=2", DecodePlan()) as source:
            return source.info.rig

    return run_virtual(read())


def size_of(rig: Rig, camera: str = RGB) -> tuple[int, int]:
    c = rig.cameras[camera]
    return (c.height, c.width) if rig.generation == 1 else (c.width, c.height)


def standing(nose_deg: float = 0.0, pitch_deg: float = -8.0, x_m: float = 0.0, y_m: float = 0.0) -> Wearer:
    w = walker(x_m=x_m, y_m=y_m, nose_deg=nose_deg, travel_deg=None)
    return msgspec.structs.replace(w, pitch_rad=math.radians(pitch_deg))


def body(bearing_deg: float, distance_m: float, w: Wearer, id: int = 1, tall_m: float = 1.7) -> Obstacle:
    """Something like a person, clockwise from the nose, as stereo would see it."""
    to = w.nose_rad - math.radians(bearing_deg)
    x, y = w.x_m + distance_m * math.cos(to), w.y_m + distance_m * math.sin(to)
    return msgspec.structs.replace(thing(x, y, id=id, width_m=0.5), bottom_m=0.2, top_m=tall_m)


def T_level_device(rig: Rig, w: Wearer) -> Any:
    """The test's own way: columns are where cpf's left, up and forward point in the level frame."""
    n, p = w.nose_rad, w.pitch_rad
    forward = np.array([math.cos(n) * math.cos(p), math.sin(n) * math.cos(p), math.sin(p)])
    left = np.array([-math.sin(n), math.cos(n), 0.0])
    T = np.eye(4)
    T[:3, :3] = np.stack([left, np.cross(forward, left), forward], axis=1)
    T[:3, 3] = [w.x_m, w.y_m, w.eye_height_m or 0.0]
    return T @ np.linalg.inv(rig.T_device_cpf)


def box_around(rig: Rig, o: Obstacle, w: Wearer, label: str = "person", camera: str = RGB) -> Box | None:
    """Of a cylinder of the obstacle's size, standing on the floor just behind its nearest point; None: not in view."""
    away = np.array([o.x_m - w.x_m, o.y_m - w.y_m])
    middle = np.array([o.x_m, o.y_m]) + 0.5 * o.width_m * away / np.linalg.norm(away) * 0.5
    turn, height = np.meshgrid(np.linspace(0, 2 * math.pi, 24), np.linspace(0.0, o.top_m, 12))
    points = np.stack([middle[0] + 0.25 * np.cos(turn), middle[1] + 0.25 * np.sin(turn), height], axis=-1)
    px = upright_pixels(rig, points.reshape(-1, 3), T_level_device(rig, w), camera)
    if len(px) < 30:
        return None
    return Box(label, 0.6, *(float(v) for v in (*px.min(axis=0), *px.max(axis=0))))


def matched(rig: Rig, boxes: list[Box], scene: Scene, camera: str = RGB) -> Looked:
    return match(boxes, View(rig, camera, *size_of(rig, camera)), scene, scene.device_ns)


bearings = st.floats(-38.0, 38.0)
poses = st.builds(standing, st.floats(-180.0, 180.0), st.floats(-20.0, 5.0), st.floats(-5, 5), st.floats(-5, 5))


@pytest.mark.parametrize("generation", [1, 2])
@settings(max_examples=60, deadline=None)
@given(bearing=bearings, distance_m=st.floats(1.5, 5.0), w=poses)
def test_a_box_names_what_it_is_around(generation: int, bearing: float, distance_m: float, w: Wearer) -> None:
    rig = rig_of(generation)
    o = body(bearing, distance_m, w)
    box = box_around(rig, o, w)
    assert box is not None
    looked = matched(rig, [box], look(0.0, w, o))
    assert looked.named == {1: Named("person", 0.6)} and looked.seen == {1}


@pytest.mark.parametrize("generation", [1, 2])
@settings(max_examples=80, deadline=None)
@given(bearing=bearings, distance_m=st.floats(1.5, 5.0), w=poses, first=st.booleans())
def test_what_is_on_one_side_never_names_what_is_on_the_other(
    generation: int, bearing: float, distance_m: float, w: Wearer, first: bool
) -> None:
    """Two alike, mirrored about the nose, and a box around one of them: alone, and in the company of the right one."""
    apart_m = 2 * distance_m * abs(math.sin(math.radians(bearing)))
    assume(apart_m > 1.0)
    rig = rig_of(generation)
    here, mirrored = body(bearing, distance_m, w, 1), body(-bearing, distance_m, w, 2)
    box = box_around(rig, here, w)
    assert box is not None
    both = (here, mirrored) if first else (mirrored, here)
    assert set(matched(rig, [box], look(0.0, w, *both)).named) == {1}
    assert matched(rig, [box], look(0.0, w, mirrored)).named == {}


@pytest.mark.parametrize(("generation", "camera"), [
    (1, "camera-slam-left"), (1, "camera-slam-right"), (2, "slam-front-left"), (2, "slam-front-right"),
    (2, "slam-side-left"), (2, "slam-side-right"),
])  # fmt: skip
@pytest.mark.parametrize("side", [-1, 1])
def test_grey_pictures_of_every_camera_are_mapped_to_the_right_side(generation: int, camera: str, side: int) -> None:
    rig, w = rig_of(generation), standing(40.0, -5.0)
    found = 0
    for bearing in (15.0, 30.0, 45.0, 60.0, 75.0):
        here, mirrored = body(side * bearing, 2.5, w, 1), body(-side * bearing, 2.5, w, 2)
        box = box_around(rig, here, w, camera=camera)
        if box is None:
            continue
        named = set(matched(rig, [box], look(0.0, w, here, mirrored), camera).named)
        assert named <= {1}
        found += named == {1}
    toward = "left" in camera if side < 0 else "right" in camera
    assert found >= 2 or not toward


@pytest.mark.parametrize("generation", [1, 2])
def test_the_upright_picture_is_the_sensor_s_turned(generation: int) -> None:
    """Pixel by pixel against numpy's own quarter turn: each upright pixel looks where the sensor's own one does."""
    rig = rig_of(generation)
    camera = rig.cameras["camera-slam-left" if generation == 1 else "slam-front-left"]
    native = np.random.default_rng(0).integers(0, 255, (camera.height, camera.width), dtype=np.uint8)
    picture = upright(native, generation)
    view = View(rig, camera.label, picture.shape[1], picture.shape[0])
    around = np.array([[240.0, 300.0], [250.0, 100.0], [120.0, 222.0]])  # native
    rays = camera.model.unproject(around)
    points_device = camera.T_device_camera[:3, 3] + 3.0 * rays @ camera.T_device_camera[:3, :3].T
    T_cpf_device = np.linalg.inv(rig.T_device_cpf)
    in_cpf = points_device @ T_cpf_device[:3, :3].T + T_cpf_device[:3, 3]
    in_nose = np.stack([in_cpf[:, 2], in_cpf[:, 0], in_cpf[:, 1]], axis=1)  # level head: forward, left, up
    px, seen = view.place(in_nose, 0.0)
    assert seen.all()
    x, y = np.round(px).astype(int).T
    assert np.array_equal(picture[y, x, 0], native[around[:, 1].astype(int), around[:, 0].astype(int)])
    azimuth, elevation = view.look(px, 0.0)
    expected_azimuth, expected_elevation, _ = view.towards(in_nose, 0.0)
    assert np.allclose(azimuth, expected_azimuth, atol=1e-6) and np.allclose(elevation, expected_elevation, atol=1e-6)


def test_a_camera_that_is_not_there_or_of_another_shape_is_refused() -> None:
    with pytest.raises(SourceError, match="its calibration is missing"):
        View(rig_of(2), "camera-back", 100, 100)
    with pytest.raises(SourceError, match="not a scale"):
        View(rig_of(2), RGB, 300, 352)


def scene_of(*obstacles: Obstacle, w: Wearer | None = None) -> Scene:
    return look(0.0, w or standing(), *obstacles)


def named_by(box_of: Obstacle, *others: Obstacle, label: str = "person") -> dict[int, str]:
    """What a box around the first names when only the others are in the scene."""
    rig, w = rig_of(2), standing()
    box = box_around(rig, box_of, w, label)
    assert box is not None
    return {id: n.name for id, n in matched(rig, [box], scene_of(*others)).named.items()}


def test_what_is_too_near_too_far_too_wide_or_too_low_for_a_box_gets_no_name() -> None:
    w = standing()
    here = body(5.0, 3.0, w)
    assert named_by(here, here) == {1: "person"}
    assert named_by(here, body(5.0, 1.2, w)) == {} == named_by(here, body(5.0, 5.5, w))
    assert named_by(here, msgspec.structs.replace(here, width_m=2.5)) == {}
    assert named_by(here, msgspec.structs.replace(here, top_m=0.3)) == {}  # a bag before a person
    assert named_by(here, msgspec.structs.replace(here, bottom_m=1.85, top_m=2.0)) == {}  # a bar above one
    assert named_by(here, msgspec.structs.replace(here, last_device_ns=-S)) == {}  # stereo hasn't seen it for long


def test_a_word_is_not_given_to_a_thing_of_an_impossible_size() -> None:
    here = body(5.0, 3.0, standing(), tall_m=1.4)
    assert named_by(here, here, label="cat") == {} == named_by(here, here, label="bus")
    assert named_by(here, here, label="potted plant") == {1: "plant"}
    assert named_by(here, here, label="fork") == {} == named_by(here, here, label="refrigerator")


def test_of_several_that_fit_the_nearest_is_named_and_a_box_is_used_once() -> None:
    w = standing()
    near, behind = body(5.0, 2.9, w, 1), body(6.0, 3.2, w, 2)
    assert named_by(near, behind, near) == {1: "person"}


def test_of_several_boxes_that_fit_one_thing_the_surest_counts() -> None:
    rig, w = rig_of(2), standing()
    here = body(5.0, 3.0, w)
    box = box_around(rig, here, w)
    assert box is not None
    boxes = [replace(box, label="potted plant", score=0.5), box]
    assert matched(rig, boxes, scene_of(here)).named == {1: Named("person", 0.6)}


def test_without_a_known_floor_nothing_is_named() -> None:
    rig, w = rig_of(2), standing()
    here = body(5.0, 3.0, w)
    box = box_around(rig, here, w)
    assert box is not None
    looked = matched(rig, [box], scene_of(here, w=msgspec.structs.replace(w, eye_height_m=None)))
    assert looked == Looked(frozenset(), {})


def test_the_nose_is_turned_on_from_the_scene_to_the_picture() -> None:
    """At 120 degrees a second and 0.1 s apart, a box of the picture's moment fits only so."""
    rig = rig_of(2)
    w = msgspec.structs.replace(standing(), turn_rate_radsec=math.radians(120.0))
    then = msgspec.structs.replace(w, nose_rad=w.nose_rad + math.radians(12.0))
    here = body(5.0, 3.0, w)
    box = box_around(rig, here, then)
    assert box is not None
    view = View(rig, RGB, *size_of(rig))
    assert set(match([box], view, scene_of(here, w=w), S // 10).named) == {1}
    assert set(match([box], view, scene_of(here, w=w), 0).named) == set()


@pytest.mark.parametrize("generation", [1, 2])
def test_on_a_simulated_walk_boxes_of_what_is_in_the_way_find_what_stereo_sees(generation: int) -> None:
    walk = labelled_walk(72, "textured", 4.5, generation)
    view, right, wrong, due = View(walk.rig, RGB, *walk.size()), 0, 0, 0
    for scene in walk.scenes[::2]:
        boxes = walk.boxes(scene.device_ns)
        pose = walk.truth.pose_at(scene.device_ns)
        due += any(walk.truth.obstacles[i].kind == "knee" for i in boxes)
        obstacles = {o.id: o for o in scene.obstacles}
        for id, named in match(list(boxes.values()), view, scene, scene.device_ns).named.items():
            truth = walk.truth.obstacles[round(1000 * (named.score - 0.5))]
            sight = walk.truth.seen_from(truth, scene.device_ns, pose.nose_rad)
            o, w = obstacles[id], scene.wearer
            bearing = math.degrees(w.nose_rad - math.atan2(o.y_m - w.y_m, o.x_m - w.x_m))
            near = abs(math.hypot(o.x_m - w.x_m, o.y_m - w.y_m) - sight.distance_m) < 0.6
            fits = near and abs(bearing - sight.bearing_deg) < 15.0
            right += fits and truth.kind == "knee"
            wrong += not fits
    assert due >= 6 and right >= 0.7 * due and wrong <= 0.1 * right, (due, right, wrong)


# ---- over time -------------------------------------------------------------------------------------------------------

words = st.sampled_from([None, "person", "chair"])


@settings(max_examples=200)
@given(st.lists(words, max_size=12))
def test_a_word_holds_exactly_while_it_held_in_three_of_the_last_five_looks(heard: list[str | None]) -> None:
    votes = Votes()
    for i, word in enumerate(heard):
        votes.look(Looked(frozenset({4}), {} if word is None else {4: Named(word, 0.7)}))
        recent = heard[max(0, i + 1 - LOOKS) : i + 1]
        expected = [w for w in ("person", "chair") if recent.count(w) >= ENOUGH]
        assert list(votes.labels().values()) == expected


def test_looks_in_which_it_was_out_of_the_picture_do_not_count() -> None:
    votes = Votes()
    for _ in range(3):
        votes.look(Looked(frozenset({4}), {4: Named("person", 0.7)}))
    for _ in range(9):
        votes.look(Looked(frozenset({5}), {}))
    assert votes.labels() == {4: "person"}
    for _ in range(3):
        votes.look(Looked(frozenset({4}), {}))
    assert votes.labels() == {}


def test_a_word_that_holds_by_low_scores_alone_is_not_said() -> None:
    for score, said in ((SURE_SCORE - 0.02, {}), (SURE_SCORE + 0.02, {4: "person"})):
        votes = Votes()
        for _ in range(LOOKS):
            votes.look(Looked(frozenset({4}), {4: Named("person", score)}))
        assert votes.labels() == said


class Walk:
    """A labeller with scenes at 10 Hz of one person who stays ahead, and looks when due."""

    def __init__(self) -> None:
        self.rig, self.wearer = rig_of(2), standing()
        self.labeller = Labeller(self.rig)
        self.person = body(5.0, 3.0, self.wearer, 7)
        box = box_around(self.rig, self.person, self.wearer)
        assert box is not None
        self.detector = FakeDetector([box])
        self.changes: list[Change] = []
        self.ns = 0

    def scene(self, *obstacles: Obstacle) -> Scene:
        seen = (msgspec.structs.replace(o, last_device_ns=self.ns) for o in obstacles)
        return msgspec.structs.replace(look(0.0, self.wearer, *seen), device_ns=self.ns)

    def go(self, seconds: float, *obstacles: Obstacle) -> None:
        width, height = size_of(self.rig)
        for _ in range(round(10 * seconds)):
            self.ns += S // 10
            self.labeller.saw(self.scene(*obstacles))
            if self.labeller.due(self.ns):
                ticket = self.labeller.begin(RGB, self.ns, width, height)
                boxes = self.detector.detect(np.zeros((height, width, 3), np.uint8))
                self.changes += self.labeller.take(ticket, boxes)

    def labels(self, *obstacles: Obstacle) -> list[str | None]:
        return [o.label for o in self.labeller.applied(self.scene(*obstacles)).obstacles]


def test_the_third_look_names_it_and_an_event_says_so_once() -> None:
    walk = Walk()
    walk.go(2.0, walk.person)
    assert walk.labels(walk.person) == [None] and walk.changes == []
    walk.go(5.0, walk.person)
    assert walk.labels(walk.person) == ["person"] and len(walk.detector.shown) == 7
    assert walk.changes == [Change(7, "person", S // 10 + 2 * S)]


def test_a_name_that_no_longer_holds_is_taken_back() -> None:
    walk = Walk()
    walk.go(4.0, walk.person)
    walk.detector = FakeDetector()
    walk.go(4.0, walk.person)
    assert walk.labels(walk.person) == [None]
    assert [(c.obstacle_id, c.label) for c in walk.changes] == [(7, "person"), (7, None)]


def test_a_label_never_outlives_its_obstacle() -> None:
    """Gone for one scene between two looks, whatever comes after has to be looked at anew, even under the old id."""
    walk = Walk()
    other = msgspec.structs.replace(walk.person, id=8)
    walk.go(4.2, walk.person)
    assert walk.labels(walk.person, other) == ["person", None]
    walk.go(0.1, other)
    assert walk.labels(other) == [None]  # a new track in the old place
    walk.go(0.1, walk.person)
    assert walk.labels(walk.person) == [None]
    walk.go(2.0, walk.person)
    assert walk.labels(walk.person) == [None]
    walk.go(1.0, walk.person)
    assert walk.labels(walk.person) == ["person"]


def test_a_seam_forgets_everything_and_a_look_from_before_it_changes_nothing() -> None:
    walk = Walk()
    walk.go(4.0, walk.person)
    ticket = walk.labeller.begin(RGB, walk.ns, *size_of(walk.rig))
    walk.labeller.seam()
    assert walk.labels(walk.person) == [None] and not walk.labeller.due(walk.ns)
    walk.labeller.saw(walk.scene(walk.person))
    assert walk.labeller.take(ticket, walk.detector.detect(np.zeros((1, 1, 3), np.uint8))) == ()
    walk.go(2.0, walk.person)
    assert walk.labels(walk.person) == [None]
    walk.go(2.0, walk.person)
    assert walk.labels(walk.person) == ["person"]


def test_the_scene_of_the_picture_s_moment_is_used_however_long_detection_takes() -> None:
    """Two seconds later the wearer looks elsewhere, and the scenes of then are long dropped."""
    walk = Walk()
    for _ in range(3):
        walk.go(1.1, walk.person)
        ticket = walk.labeller.begin(RGB, walk.ns, *size_of(walk.rig))
        straight, walk.wearer = walk.wearer, standing(nose_deg=30.0)
        for _ in range(20):
            walk.ns += S // 10
            walk.labeller.saw(walk.scene(walk.person))
            assert not walk.labeller.due(walk.ns)
        walk.wearer = straight
        walk.labeller.take(ticket, walk.detector.detect(np.zeros((1, 1, 3), np.uint8)))
    assert walk.labels(walk.person) == ["person"]


def test_a_picture_without_a_scene_near_it_names_nothing() -> None:
    walk = Walk()
    for i in range(5):
        walk.ns = i * 2 * S
        walk.labeller.saw(walk.scene(walk.person))
        ticket = walk.labeller.begin(RGB, walk.ns + S // 2, *size_of(walk.rig))
        assert walk.labeller.take(ticket, walk.detector.detect(np.zeros((1, 1, 3), np.uint8))) == ()
    assert walk.labels(walk.person) == [None]


def test_a_look_that_nobody_brings_back_holds_up_the_next_for_five_seconds_and_then_counts_for_nothing() -> None:
    walk = Walk()
    walk.go(1.5, walk.person)  # two looks
    walk.ns += S
    walk.labeller.saw(walk.scene(walk.person))
    lost = walk.labeller.begin(RGB, walk.ns, *size_of(walk.rig))
    assert not walk.labeller.due(walk.ns + 4 * S) and walk.labeller.due(walk.ns + 5 * S)
    walk.ns += 5 * S
    walk.labeller.saw(walk.scene(walk.person))
    after = walk.labeller.begin(RGB, walk.ns, *size_of(walk.rig))
    boxes = walk.detector.detect(np.zeros((1, 1, 3), np.uint8))
    assert walk.labeller.take(lost, boxes) == () == walk.labeller.take(lost, boxes)
    assert walk.labels(walk.person) == [None]
    assert [change.label for change in walk.labeller.take(after, boxes)] == ["person"]


def test_a_look_that_failed_says_nothing_against_a_name() -> None:
    walk = Walk()
    walk.go(3.0, walk.person)
    for _ in range(5):
        walk.ns += S
        walk.labeller.saw(walk.scene(walk.person))
        assert walk.labeller.due(walk.ns)
        ticket = walk.labeller.begin(RGB, walk.ns, *size_of(walk.rig))
        walk.labeller.lost(ticket)
        assert walk.labeller.take(ticket, []) == ()
    assert walk.labels(walk.person) == ["person"]


def test_a_scene_without_names_is_passed_on_as_it_is() -> None:
    walk = Walk()
    scene = walk.scene(walk.person)
    assert walk.labeller.applied(scene) is scene


# ---- the detector of this machine ------------------------------------------------------------------------------------


def test_without_the_file_or_with_another_one_there_is_a_note_and_no_detector(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HANDRAIL_CACHE", str(tmp_path))
    opened = open_detector()
    assert opened.detector is None and "handrail models fetch nanodet" in (opened.note or "")
    nanodet_path().write_bytes(b"not the one")
    opened = open_detector()
    assert opened.detector is None and "not the pinned file" in (opened.note or "")
    monkeypatch.setenv("HANDRAIL_CACHE", str(tmp_path / "detectors" / "nanodet.onnx"))
    assert "can't be made" in (open_detector().note or "")


def test_persons_are_found_in_a_real_picture_in_both_of_its_mirrored_forms() -> None:
    import cv2

    opened = open_detector()
    path = FRAMES / "v_00931_1" / "frame_2.jpg"
    if opened.detector is None or not path.is_file():
        pytest.skip(opened.note or "real frames (../shared/data/egoblind_ra) aren't here")
    picture = np.asarray(cv2.imread(str(path)), np.uint8)[..., ::-1].copy()
    boxes = opened.detector.detect(picture)
    flipped = opened.detector.detect(picture[:, ::-1].copy())
    best, mirrored = boxes[0], flipped[0]
    assert best.label == mirrored.label == "person" and best.score > 0.5
    back = Box("person", 1.0, picture.shape[1] - 1 - mirrored.right, mirrored.top,
               picture.shape[1] - 1 - mirrored.left, mirrored.bottom)  # fmt: skip
    persons = [box for box in boxes if box.label == "person"]
    assert max(_shared(box, back) for box in persons) > 0.5
    assert opened.detector.detect(np.zeros((480, 640, 3), np.uint8)) == []


def test_turning_coordinates_is_what_turning_the_picture_does() -> None:
    """Of the tests' own helper: a bright pixel is where its coordinates say."""
    camera = rig_of(1).cameras[RGB]
    native = np.zeros((camera.height, camera.width), np.uint8)
    native[40, 300] = 255
    (y,), (x,) = np.nonzero(np.rot90(native, k=3))
    assert turned(camera, np.array([[300.0, 40.0]])).tolist() == [[float(x), float(y)]]
