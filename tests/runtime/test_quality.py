from __future__ import annotations

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray
from world_looks import corridor, walked

from handrail.runtime.reflex.quality import CHECK_EVERY, REMEMBERED, PairWatch, fingerprint, judge_frame
from handrail.runtime.reflex.rectify import Rectifier
from handrail.runtime.scene import FrameQuality
from handrail.streams.cameras import Rig

U8 = NDArray[np.uint8]
RNG = np.random.default_rng(4)


def pair(kind: str = "textured", seed: int = 1, gen: int = 2) -> tuple[U8, U8]:
    _, left, right = walked(seed, kind, 2.0, gen, stereo_hz=5.0).pairs[1]
    return left, right


def judge(left: U8, right: U8) -> FrameQuality:
    return judge_frame(left, right, left.shape, ())


def blurred(image: U8, sigma_px: float) -> U8:
    return np.asarray(cv2.GaussianBlur(image, (0, 0), sigma_px), dtype=np.uint8)


def scaled(image: U8, gain: float, offset: float = 0.0) -> U8:
    return np.clip(image * gain + offset, 0, 255).astype(np.uint8)


def thumb(image: U8) -> U8:
    """A finger on the lens: a glow without detail, and noise."""
    return np.clip(blurred(image, 60) * 0.5 + RNG.normal(0, 2, image.shape), 0, 255).astype(np.uint8)


@pytest.mark.parametrize(("kind", "seed", "gen"), [("textured", 1, 2), ("textured", 1, 1), ("dusk", 3, 2)])
def test_ordinary_frames_and_dusk_are_usable(kind: str, seed: int, gen: int) -> None:
    quality = judge(*pair(kind, seed, gen))
    assert quality.usable and quality.reason is None
    assert quality.mean > 5 and quality.contrast > 2 and quality.sharpness > 0.1


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda x: np.zeros_like(x), "dark"),
        (lambda x: scaled(x, 0.1), "dark"),
        (lambda x: np.full_like(x, 255), "saturated"),
        (lambda x: scaled(x, 4.0, 120), "saturated"),
        (lambda x: blurred(x, 8), "blurred"),
        (thumb, "covered"),
    ],
    ids=["black", "nearly black", "white", "glare", "blurred", "covered"],
)
def test_spoilt_frames_are_named(spoil: object, reason: str) -> None:
    assert callable(spoil)
    left, right = pair()
    quality = judge(spoil(left), spoil(right))
    assert not quality.usable
    assert quality.reason == reason


@pytest.mark.parametrize("side", ["left", "right"])
def test_one_covered_lens_is_enough(side: str) -> None:
    left, right = pair()
    quality = judge(thumb(left), right) if side == "left" else judge(left, thumb(right))
    assert quality.reason == "covered"
    dark = judge(np.zeros_like(left), right) if side == "left" else judge(left, np.zeros_like(right))
    assert dark.reason == "covered"


def renewed(image: U8) -> U8:
    changed = image.copy()
    changed[200, 200] ^= 1
    return changed


def test_the_same_pair_twice_is_a_frozen_camera_and_a_new_one_is_not() -> None:
    left, right = pair()
    before = [fingerprint(left, right)]
    assert judge_frame(left, right, left.shape, before).reason == "frozen"
    assert judge_frame(renewed(left), renewed(right), left.shape, before).usable


def test_one_frozen_camera_is_enough() -> None:
    left, right = pair()
    before = [fingerprint(left, right)]
    assert judge_frame(left, renewed(right), left.shape, before).reason == "frozen"
    assert judge_frame(renewed(left), right, left.shape, before).reason == "frozen"


def test_a_driver_that_hands_out_its_few_buffers_in_turn_is_frozen() -> None:
    left, right = pair()
    others = [fingerprint(renewed(left), renewed(right))] * (REMEMBERED - 1)
    assert judge_frame(left, right, left.shape, [fingerprint(left, right), *others]).reason == "frozen"


def test_the_fingerprint_tells_left_from_right() -> None:
    left, right = pair()
    assert fingerprint(left, right) != fingerprint(right, left)


@pytest.mark.parametrize(
    "other",
    [
        np.zeros((480, 640), np.uint8), np.zeros((512, 512, 3), np.uint8),
        np.zeros((512, 512), np.float32), np.zeros((0, 0), np.uint8),
    ],
    ids=["size", "colour", "float", "empty"],
)
def test_frames_of_the_wrong_shape_or_type_are_mismatched(other: U8) -> None:
    left, _ = pair()
    for quality in (judge_frame(left, other, left.shape, ()), judge_frame(other, left, left.shape, ())):
        assert quality.reason == "mismatched" and not quality.usable


def test_real_frames_are_usable_and_the_same_spoilt_are_not() -> None:
    for _, left, right in corridor().pairs:
        assert judge(left, right).usable
        assert judge(blurred(left, 6), blurred(right, 6)).reason == "blurred"
        assert judge(left, thumb(right)).reason == "covered"
        assert judge(scaled(left, 0.08), scaled(right, 0.08)).reason == "dark"


def rig_of(kind: str = "textured", seed: int = 1, gen: int = 2) -> Rig:
    return walked(seed, kind, 2.0, gen, stereo_hz=5.0).rig


def watch(rig: Rig) -> PairWatch:
    return PairWatch(rig, Rectifier(rig))


def half(image: U8, other: U8, side: str) -> U8:
    """One half of ``image`` replaced by that of ``other``, with a soft edge as a finger near a lens has."""
    height, width = image.shape
    share = np.zeros((height, width), np.float32)
    match side:
        case "left":
            share[:, : width // 2] = 1
        case "right":
            share[:, width // 2 :] = 1
        case "top":
            share[: height // 2] = 1
        case "bottom":
            share[height // 2 :] = 1
    share = np.asarray(cv2.GaussianBlur(share, (0, 0), 8), dtype=np.float32)
    return (image * (1 - share) + other * share).astype(np.uint8)


@pytest.mark.parametrize(("kind", "seed", "gen"), [("textured", 1, 2), ("textured", 1, 1), ("dusk", 3, 2)])
def test_left_and_right_streams_that_were_swapped_without_their_calibration_are_unmasked(
    kind: str, seed: int, gen: int
) -> None:
    left, right = pair(kind, seed, gen)
    swapped, as_is = watch(rig_of(kind, seed, gen)), watch(rig_of(kind, seed, gen))
    assert [swapped.judge(right, left) for _ in range(12)] == ["swapped"] * 12
    assert [as_is.judge(left, right) for _ in range(12)] == [None] * 12


def test_what_cannot_be_told_apart_leaves_the_sides_as_they_were() -> None:
    left, right = pair()
    wall = np.full_like(left, 90)
    pairs = watch(rig_of())
    assert pairs.judge(wall, wall) is None and pairs.judge(wall, wall) is None
    for _ in range(2 * CHECK_EVERY):
        pairs.judge(right, left)
    assert [pairs.judge(wall, wall) for _ in range(12)] == ["swapped"] * 12
    for _ in range(2 * CHECK_EVERY):
        pairs.judge(left, right)
    assert pairs.judge(left, right) is None


@pytest.mark.parametrize("cover", [thumb, np.zeros_like], ids=["thumb", "strap"])
@pytest.mark.parametrize("side", ["right", "top", "bottom"])
def test_a_lens_that_is_half_covered_is_named_whichever_it_is(cover: object, side: str) -> None:
    assert callable(cover)
    left, right = pair()
    other = {"right": "left"}.get(side, side)  # the inner half: the outer one sees what the other lens doesn't
    for a, b in ((half(left, cover(left), side), right), (left, half(right, cover(right), other))):
        assert judge(a, b).usable
        pairs = watch(rig_of())
        assert [pairs.judge(a, b) for _ in range(4)] == ["covered"] * 4
        for _ in range(2 * CHECK_EVERY):
            pairs.judge(left, right)
        assert pairs.judge(left, right) is None


def test_one_odd_look_is_not_used_and_changes_no_answer() -> None:
    left, right = pair()
    wall = np.full_like(left, 90)
    for after in ((left, right), (wall, wall)):
        pairs = watch(rig_of())
        assert pairs.judge(right, left) == "swapped"
        assert [pairs.judge(*after) for _ in range(12)] == [None] * 12


def test_a_seam_forgets_what_was_wrong_before_it() -> None:
    left, right = pair()
    pairs = watch(rig_of())
    assert [pairs.judge(right, left) for _ in range(3)] == ["swapped"] * 3
    pairs.reset()
    assert pairs.judge(left, right) is None


def test_a_real_pair_is_told_from_the_same_swapped_or_half_covered() -> None:
    rig = corridor().rig
    for _, left, right in corridor().pairs:
        as_is, swapped, covered = watch(rig), watch(rig), watch(rig)
        for _ in range(3):
            found = (as_is.judge(left, right), swapped.judge(right, left),
                     covered.judge(left, half(right, thumb(right), "left")))  # fmt: skip
        assert found == (None, "swapped", "covered")
