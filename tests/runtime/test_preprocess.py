"""What a model is given: pixels as Pillow and the processors make them, positions, masks, prompts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from handrail.runtime.preprocess import ImagePlan, pixels
from handrail.runtime.preprocess.positions import MASKED, frame_of, mask, positions

HALF = (0.5, 0.5, 0.5)


def test_patches_hold_every_pixel_once_a_repeat_in_blocks_of_merged_patches() -> None:
    plan = ImagePlan(16, 24, "bicubic", (0.0, 0.0, 0.0), (1 / 255,) * 3, "patches", patch=4)
    row, column = np.mgrid[:16, :24]
    frame = np.stack([row, column, row * 0], axis=-1).astype(np.uint8)
    (patches,) = pixels(frame[None], plan)
    values = patches.reshape(24, 3, 2, 4, 4)
    assert np.array_equal(values[:, :, 0], values[:, :, 1]), "a still frame is taken twice in time"
    assert [tuple(v[:2, 0, 0, 0].round()) for v in values[:5]] == [(0, 0), (0, 4), (4, 0), (4, 4), (0, 8)]
    assert sorted(values[:, 0, 0].ravel().round()) == sorted(row.ravel())


def ids_of(text: str) -> np.ndarray:
    """i: an image token, anything else: text."""
    return np.array([7 if c == "i" else 1 for c in text])


def test_positions_count_tokens_where_a_model_counts_in_one_axis() -> None:
    place = positions(ids_of("ttiiiitt"), 7, None)
    assert place.axes.tolist() == [list(range(8))] and place.next == 8


def test_positions_of_frames_count_down_and_across_and_the_text_goes_on_after_the_larger() -> None:
    place = positions(ids_of("ttiiiiiit" + "iiiiii"), 7, (2, 3))
    assert place.axes[:, 2:8].tolist() == [[2] * 6, [2, 2, 2, 3, 3, 3], [2, 3, 4, 2, 3, 4]]
    assert place.axes[:, 8].tolist() == [5] * 3
    assert place.axes[:, 9].tolist() == [6] * 3 and place.next == 9


@pytest.mark.parametrize("text", ["tii", "iitii"])
def test_half_a_frame_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"frames? of 4|4 image tokens"):
        positions(ids_of(text), 7, (2, 2))


@given(text=st.text("ti", min_size=1, max_size=30), new=st.integers(1, 30), window=st.integers(1, 8))
def test_no_token_looks_ahead_but_within_its_own_frame(text: str, new: int, window: int) -> None:
    ids = ids_of(text)
    new = min(new, len(ids))
    frames = frame_of(ids, 7)
    causal, both = mask(frames, new), mask(frames, new, both_ways=True)
    near = mask(frames, new, both_ways=True, window=window)
    for row, query in enumerate(range(len(ids) - new, len(ids))):
        for key in range(len(ids)):
            same = frames[key] == frames[query] >= 0
            assert (causal[row, key] == 0) == (key <= query)
            assert (both[row, key] == 0) == (key <= query or same)
            assert (near[row, key] == 0) == ((key <= query or same) and key > query - window)
    assert set(np.unique(near)) <= {0.0, np.float32(MASKED)}


def test_frames_are_told_apart_by_what_stands_between_them() -> None:
    assert frame_of(ids_of("tiitiii"), 7).tolist() == [-1, 0, 0, -1, 1, 1, 1]
