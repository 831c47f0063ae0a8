"""The truth is right about what is there, and out of reach of what runs on the glasses."""

from __future__ import annotations

import ast
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from handrail.streams.world.options import KINDS
from handrail.streams.world.place import BODY_FRONT_M
from handrail.streams.world.scenario import device_ns
from handrail.streams.world.truth import CORRIDOR_HALF_WIDTH_M, Truth, truth_of

ROOT = Path(__file__).parents[2]
SEEDS = st.integers(0, 10_000).map(str)


def _module_file(root: Path, module: str) -> Path | None:
    base = root.joinpath(*module.split(".")[1:])
    for file in (base.with_suffix(".py"), base / "__init__.py"):
        if file.is_file():
            return file
    return None


def _imports(file: Path) -> set[str]:
    """All modules of ours that a file may import, wherever in it; ``from a import b`` counts as a and a.b."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        match node:
            case ast.Import(names=names):
                found |= {alias.name for alias in names}
            case ast.ImportFrom(module=str(module), names=names, level=0):
                found |= {module} | {f"{module}.{alias.name}" for alias in names}
            case ast.ImportFrom(level=level) if level > 0:
                raise AssertionError(f"{file}: a relative import hides what is imported")
    # A module named in a string may be started as a process or imported by name.
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("handrail."):
            found.add(node.value.partition(":")[0])
    return {name for name in found if name.startswith("handrail.")}


def _reachable(root: Path, rooms: tuple[str, ...]) -> set[str]:
    waiting = [file for room in rooms for file in sorted((root / room).rglob("*.py"))]
    seen: set[str] = set()
    while waiting:
        for name in _imports(waiting.pop()):
            file = _module_file(root, name)
            if name not in seen and file is not None:
                seen.add(name)
                waiting.append(file)
    return seen


def test_nothing_that_runs_on_the_glasses_can_import_the_truth() -> None:
    reachable = _reachable(ROOT, ("runtime", "device"))
    assert "handrail.streams.world.source" in reachable  # the world is found through open_source ...
    assert "handrail.streams.world.truth" not in reachable  # ... and the truth is not


def test_an_import_of_the_truth_would_be_found(tmp_path: Path) -> None:
    for name, text in {
        "runtime/session.py": "def run():\n    from handrail.streams import helper\n",
        "streams/helper.py": "import handrail.streams.world.truth as t\n",
        "streams/world/truth.py": "",
        "streams/__init__.py": "",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert "handrail.streams.world.truth" in _reachable(tmp_path, ("runtime",))


@settings(max_examples=40, deadline=None)
@given(SEEDS, st.sampled_from(KINDS))
def test_every_walk_holds_what_its_kind_says(seed: str, kind: str) -> None:
    truth = truth_of(seed, {"kind": kind})
    met = [o for o in truth.obstacles if o.contact_ns is not None]
    special = {"plain-wall", "pole", "glass", "head-bar", "step-down"}
    match kind:
        case "free":
            assert not met
        case "mixed":
            assert sum(o.kind in special for o in met) <= 1 and len(met) >= 1
        case "step-down":
            assert met[-1].drop_off and sum(o.drop_off for o in met) == 1
        case k if k in special:
            assert met and {o.kind for o in met} == {kind}
        case _:
            assert met and all(o.textured for o in met) and not {o.kind for o in met} & special
    # Nothing that is met begins before there was time to see it.
    assert all(o.contact_ns is None or o.contact_ns - truth.first_device_ns > 2.5e9 for o in truth.obstacles)


@settings(max_examples=40, deadline=None)
@given(SEEDS, st.sampled_from(KINDS))
def test_things_are_in_the_way_or_well_aside_of_it(seed: str, kind: str) -> None:
    truth = truth_of(seed, {"kind": kind})
    for at in np.linspace(truth.first_device_ns, truth.last_device_ns, 6):
        for o in truth.obstacles:
            seen = truth.seen_from(o, int(at))
            if o.kind == "aside":
                assert not seen.in_corridor
                assert seen.distance_m > 0.5
            elif o.contact_ns is not None and at < o.contact_ns - 1e9:
                assert seen.in_corridor


@settings(max_examples=25, deadline=None)
@given(SEEDS, st.sampled_from(KINDS))
def test_contact_is_when_the_body_s_front_reaches_it(seed: str, kind: str) -> None:
    """Seen from the eyes, which are about 0.1 m ahead of the body's axis, less when the head is turned aside; the
    nearest point of a box that stands askew is a little further along than its foremost one."""
    truth = truth_of(seed, {"kind": kind})
    for o in truth.obstacles:
        if o.contact_ns is None:
            continue
        gap = truth.seen_from(o, o.contact_ns)
        along = gap.distance_m * math.cos(math.radians(gap.bearing_deg))
        assert BODY_FRONT_M - 0.15 < along < BODY_FRONT_M + 0.2
        before = truth.seen_from(o, o.contact_ns - 1_000_000_000)
        speed = truth.pose_at(o.contact_ns - 500_000_000).speed_msec
        assert before.distance_m * math.cos(math.radians(before.bearing_deg)) == pytest.approx(along + speed, abs=0.3)


@settings(max_examples=25, deadline=None)
@given(SEEDS, st.sampled_from(["mixed", "head-turn", "head-bar"]))
def test_bearings_are_clockwise_from_travel_and_don_t_follow_the_head(seed: str, kind: str) -> None:
    truth = truth_of(seed, {"kind": kind})
    for at in np.linspace(truth.first_device_ns, truth.last_device_ns, 7):
        pose = truth.pose_at(int(at))
        for o in truth.obstacles:
            seen = truth.seen_from(o, int(at))
            off = seen.point_m - pose.T_world_cpf[:2, 3]
            left = -math.sin(pose.travel_rad) * off[0] + math.cos(pose.travel_rad) * off[1]
            if abs(left) > 0.01:
                assert (seen.bearing_deg < 0) == (left > 0)
            by_nose = truth.seen_from(o, int(at), reference_rad=pose.nose_rad)
            turned = math.degrees(pose.nose_rad - pose.travel_rad)
            assert (by_nose.bearing_deg - seen.bearing_deg - turned + 180) % 360 == pytest.approx(180, abs=1e-6)


def test_bands_are_those_the_solid_reaches_into() -> None:
    wanted = {
        "ground": ("ground",), "knee": ("ground", "knee"), "head": ("head",), "head-bar": ("head",),
        "plain-wall": ("ground", "knee", "waist"), "glass": ("ground", "knee", "waist"),
        "pole": ("ground", "knee", "waist"), "step-down": (),
    }  # fmt: skip
    seen = set()
    for seed in range(6):
        for kind in ("textured", "plain-wall", "glass", "pole", "head-bar", "step-down"):
            for o in truth_of(str(seed), {"kind": kind}).obstacles:
                if o.kind in wanted:
                    assert o.bands == wanted[o.kind]
                elif o.kind == "waist":
                    assert o.bands in (("ground", "knee", "waist"), ("waist",))
                seen.add(o.kind)
    assert seen > set(wanted)


@settings(max_examples=30, deadline=None)
@given(SEEDS)
def test_a_walk_to_stairs_ends_just_after_the_edge(seed: str) -> None:
    truth = truth_of(seed, {"kind": "step-down"})
    (edge,) = (o for o in truth.obstacles if o.drop_off)
    assert edge.contact_ns is not None
    assert truth.last_device_ns - edge.contact_ns == pytest.approx(0.3e9, abs=1e7)
    assert truth.pose_at(truth.first_device_ns).floor_m == 0.0
    last = truth.pose_at(truth.last_device_ns)
    assert last.floor_m <= 0.0
    assert last.T_world_cpf[2, 3] > 1.4  # it goes on at its height: the fall is not simulated


def _met(truth: Truth) -> list[int]:
    return [o.index for o in truth.obstacles if o.contact_ns is not None]


def test_what_is_ahead_is_visible_and_what_is_behind_or_hidden_is_not() -> None:
    truth = truth_of("1", {"kind": "plain-wall"})
    first, second, *_ = (truth.obstacles[i] for i in _met(truth))
    assert first.contact_ns is not None and second.contact_ns is not None
    ahead = first.contact_ns - 2_000_000_000
    assert truth.visible_to_pair(first, ahead)
    assert not truth.visible_to_pair(second, first.contact_ns - 700_000_000)  # the first wall fills the view
    assert truth.visible_to_pair(second, second.contact_ns - 2_000_000_000)
    assert not truth.visible_to_pair(first, first.contact_ns + 1_500_000_000)  # behind


def test_glass_hides_nothing() -> None:
    truth = truth_of("3", {"kind": "glass"})
    first, second, *_ = (truth.obstacles[i] for i in _met(truth))
    assert first.contact_ns is not None
    assert truth.visible_to_pair(second, first.contact_ns - 700_000_000)


def test_a_head_turned_far_aside_loses_what_is_ahead() -> None:
    """The same obstacle goes out of the pair's view though it stays in the way."""
    truth = truth_of("6", {"kind": "head-turn"})
    for index in _met(truth)[1:]:
        obstacle = truth.obstacles[index]
        assert obstacle.contact_ns is not None
        times = range(obstacle.contact_ns - 4_000_000_000, obstacle.contact_ns - 1_000_000_000, 100_000_000)
        views = [truth.visible_to_pair(obstacle, t) for t in times]
        if True in views and False in views[views.index(True) :]:
            return
    raise AssertionError("no obstacle was lost from view in a walk with the head turning by 60 degrees")


def test_the_pose_agrees_with_itself() -> None:
    truth = truth_of("3", {})
    a, b = truth.pose_at(device_ns(5.0)), truth.pose_at(device_ns(5.01))
    moved = (b.T_world_cpf[:3, 3] - a.T_world_cpf[:3, 3]) / 0.01
    assert np.allclose(moved, (a.velocity_msec + b.velocity_msec) / 2, atol=0.01)
    assert a.eye_height_m == pytest.approx(a.T_world_cpf[2, 3] - a.floor_m)
    assert math.hypot(*a.velocity_msec[:2]) == pytest.approx(a.speed_msec, abs=0.35)
    assert CORRIDOR_HALF_WIDTH_M == 0.45
