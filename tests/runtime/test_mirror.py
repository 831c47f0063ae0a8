"""Left and right through the whole path: a mirrored session finds and says everything on the opposite side.

Not to the letter: depth belongs to the left camera, so that in a mirror other things hide behind edges.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from mirror import MirroredSource, _matrices, _quaternions

from handrail.runtime.events import AnyEvent, SceneChanged
from handrail.runtime.replay import Hooks, replay
from handrail.runtime.scene import Scene, wrap_deg

CORRIDOR = Path(__file__).parents[3] / "shared" / "data" / "aria" / "gen2" / "corridor_profile8.vrs"


def events_of(uri: str, mirrored: bool) -> list[AnyEvent]:
    events: list[AnyEvent] = []
    wrap = MirroredSource if mirrored else lambda source: source
    replay(uri, hooks=Hooks(on_event=events.append, wrap=wrap))
    return events


def places(scene: Scene) -> list[tuple[float, float]]:
    """Distance and bearing of what is confirmed, within reach and beside the wearer's nose."""
    found = [o.seen_from(scene.wearer) for o in scene.obstacles if o.confirmed]
    return [(d, b) for d, b in found if d < 4.0]


def opposites(scene: Scene, mirrored: Scene) -> Iterator[tuple[tuple[float, float], float]]:
    """Each place, and how far from its mirror image (m) the nearest of the mirrored scene's places is."""
    others = places(mirrored)
    for d, b in places(scene):
        x, y = d * math.cos(math.radians(b)), d * math.sin(math.radians(b))
        off = [math.hypot(x - e * math.cos(math.radians(c)), y + e * math.sin(math.radians(c))) for e, c in others]
        yield (d, b), min(off, default=math.inf)


def scenes(events: list[AnyEvent]) -> list[Scene]:
    return [e.scene for e in events if isinstance(e, SceneChanged)]


def test_rotations_survive_quaternions() -> None:
    q = np.random.default_rng(1).normal(size=(50, 4))
    R = _matrices(q)
    np.testing.assert_allclose(_matrices(_quaternions(R)), R, atol=1e-12)


@pytest.mark.parametrize("seeds, generation, share", [((3, 7, 11), 2, 0.8), ((3,), 1, 0.6)])
def test_mirrored_walks_find_everything_on_the_opposite_side(
    seeds: tuple[int, ...], generation: int, share: float
) -> None:
    opposite, same = [], []
    for seed in seeds:
        uri = f"world:{seed}?kind=textured&seconds=5&gen={generation}"
        plain, mirrored = scenes(events_of(uri, False)), scenes(events_of(uri, True))
        for a, b in zip(plain, mirrored, strict=True):
            opposite += [off for (_, bearing), off in opposites(a, b) if abs(bearing) > 15]
            same += [off for (_, bearing), off in opposites(a, a) if abs(bearing) > 15]  # as if nothing were mirrored
    assert len(opposite) > 50
    assert np.mean(np.array(opposite) < 0.4) > share > 1.5 * np.mean(np.array(same) < 0.4)


@pytest.mark.skipif(not CORRIDOR.exists(), reason="the real recordings are not beside the repository")
def test_the_corridor_in_a_mirror_has_its_boxes_on_the_other_side() -> None:
    plain = scenes(events_of(f"vrs:{CORRIDOR}", False))
    mirrored = scenes(events_of(f"vrs:{CORRIDOR}", True))
    off = [o for _, o in opposites(plain[-1], mirrored[-1])]
    assert len(off) >= 3
    assert np.median(off) < 0.7  # three looks of a cluttered room: edges hide other things in each camera

    def nearest_aside(scene: Scene) -> float:
        return min((d, b) for d, b in places(scene) if abs(wrap_deg(b)) > 15)[1]

    assert nearest_aside(plain[-1]) < 0 < nearest_aside(mirrored[-1])
