"""Plain bars before a textured wall, drawn into both images: filled where they are in front, left alone where not."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

from handrail.runtime.reflex.bars import fill_bars

U8 = NDArray[np.uint8]
F32 = NDArray[np.float32]
Mask = NDArray[np.bool_]

ROWS, COLUMNS = 100, 400
WALL_PX = 4
BASELINE_M = 0.136


def texture(seed: int) -> U8:
    grey = np.random.default_rng(seed).uniform(0.0, 255.0, (ROWS, COLUMNS + 100)).astype(np.uint8)
    return np.asarray(cv2.normalize(cv2.GaussianBlur(grey, (0, 0), 1.2), None, 30, 170, cv2.NORM_MINMAX), np.uint8)


def seen(things: list[tuple[slice, slice, int, U8 | int]], noise: int = 0) -> tuple[U8, U8, F32, Mask]:
    """Left and right image, and the wall's disparity everywhere, of things (rows, columns, disparity, grey)."""
    wall = texture(1)
    left, right = wall[:, :COLUMNS].copy(), wall[:, WALL_PX : COLUMNS + WALL_PX].copy()
    disparity = np.full((ROWS, COLUMNS), float(WALL_PX), np.float32)
    for rows, columns, px, grey in things:
        left[rows, columns] = grey if isinstance(grey, int) else grey[rows, columns]
        right[rows, columns.start - px : columns.stop - px] = grey if isinstance(grey, int) else grey[rows, columns]
        if not isinstance(grey, int):
            disparity[rows, columns] = px
    random = np.random.default_rng(noise)
    left, right = (
        np.clip(image + random.normal(0.0, 2.0, image.shape), 0, 255).astype(np.uint8) for image in (left, right)
    )
    return left, right, disparity, np.ones(disparity.shape, bool)


@pytest.mark.parametrize(("px", "thick"), [(9, 5), (14, 8), (20, 12)])
def test_a_plain_bar_before_a_wall_gets_the_disparity_of_its_ends(px: int, thick: int) -> None:
    rows, columns = slice(50, 50 + thick), slice(140, 270)
    left, right, disparity, known = seen([(rows, columns, px, 220)])
    fill_bars(left, right, disparity, known, ROWS, BASELINE_M)
    assert np.median(disparity[rows, columns]) == pytest.approx(px, abs=0.6)
    assert np.mean(np.abs(disparity[rows, columns] - px) < 1.5) > 0.8
    disparity[48 : 52 + thick, 138:272] = WALL_PX
    assert (disparity == WALL_PX).all(), "nothing else is touched"


@pytest.mark.parametrize("columns_cut", [0, 1], ids=["even", "odd"])
def test_a_bar_with_one_end_out_of_view_is_filled_from_the_other(columns_cut: int) -> None:
    rows, columns = slice(50, 58), slice(250, COLUMNS)
    whole = seen([(rows, columns, 14, 220)])
    left, right, disparity, known = (np.ascontiguousarray(x[:, : COLUMNS - columns_cut]) for x in whole)
    fill_bars(left, right, disparity, known, ROWS, BASELINE_M)
    assert np.median(disparity[rows, 255:390]) == pytest.approx(14, abs=1.5)


def test_a_plain_gap_between_two_near_things_does_not_come_forward() -> None:
    """Its ends are theirs: it would be told as a bar across the way between them."""
    near = texture(2)
    gap = (slice(50, 56), slice(150, 260), WALL_PX, 220)
    things = [(slice(30, 80), slice(90, 150), 15, near), (slice(30, 80), slice(260, 330), 15, near)]
    left, right, disparity, known = seen([gap, *things])
    fill_bars(left, right, disparity, known, ROWS, BASELINE_M)
    assert (disparity[50:56, 155:255] < 8).all()


def test_a_wall_without_bars_stays_as_it_was_measured() -> None:
    left, right, disparity, known = seen([])
    assert not fill_bars(left, right, disparity, known, ROWS, BASELINE_M).any()
    assert (disparity == WALL_PX).all()


def test_a_bar_where_nothing_was_measured_becomes_known() -> None:
    rows, columns = slice(50, 58), slice(140, 270)
    left, right, disparity, known = seen([(rows, columns, 14, 220)])
    known[rows, columns] = False
    filled = fill_bars(left, right, disparity, known, ROWS, BASELINE_M)
    assert known[rows, columns].mean() > 0.8
    assert (filled == (disparity != WALL_PX)).all(), "it tells which pixels it gave a disparity"


def test_what_was_measured_nearer_than_the_bar_stays() -> None:
    rows, columns, before = slice(50, 58), slice(140, 270), slice(190, 200)
    left, right, disparity, known = seen([(rows, columns, 14, 220)])
    disparity[rows, before] = 25.0
    fill_bars(left, right, disparity, known, ROWS, BASELINE_M)
    assert (disparity[rows, before] == 25.0).all()
    assert np.median(disparity[rows, columns]) == pytest.approx(14, abs=0.6)


def test_a_stripe_whose_ends_are_at_different_depths_is_not_one_bar() -> None:
    rows = slice(50, 58)
    left, right, disparity, known = seen([(rows, slice(140, 270), 10, 220)])
    other = seen([(rows, slice(140, 270), 24, 220)])[1]
    right[:, 190:] = other[:, 190:]
    fill_bars(left, right, disparity, known, ROWS, BASELINE_M)
    assert (disparity == WALL_PX).all()
