"""Bars across the way, too plain and thin to be matched: their ends tell how near they are.

A level bar without texture (a beam, a barrier, the edge of a sign) is a stripe of one grey in both images. Matching has
nothing to hold on to along it, and fills it from what is seen above and below: it is measured as far as the wall behind
it. Its two ends are sharp in both images, though. So plain, thin, long stripes are looked for in the left image, their
ends are found again in the right one, and the stripe gets the disparity that leads from one end to the other. An end
counts only where the stripe stands before what is beyond it: of a gap between two things, the ends are theirs. What was
measured nearer stays. Knows one pair and no heights. Pixels of the canvas, see ``rectify``.

All stripes go through each step together, the largest ``MOST_STRIPES`` at most, so that a look's cost has a bound.
"""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]
I64 = NDArray[np.int64]
U8 = NDArray[np.uint8]
Mask = NDArray[np.bool_]

# Stripes are looked for in every second column.
PLAIN_GREY = 6  # between pixels two apart, on average over a run: noise gives 3, texture that can be matched 10
EDGE_GREY = 11
RUN_COLUMNS = 11
SHORTEST_COLUMNS = 8  # of what is plain: a run is shorter than its stripe by half a window at either end
THICKEST_PX = 24
LEAST_FILL = 0.6  # of the stripe's length that it covers
SLENDER = 5.0  # times as long as thick
STEEPEST = 0.25  # rows a column: a head is rolled by less
CROOKED = 2.5  # times the spread over its line that a straight stripe of its thickness has
MOST_STRIPES = 12
SHORTEST_M, THICKEST_M = 0.4, 0.2
END_PX = 16  # how far beyond a run its end is looked for
OUTSIDE_PX, INSIDE_PX = 4, 15  # of the profile by which an end is found again
LEAST_STEP_GREY = 15.0
FIRST_SHARE = 0.5  # of the greatest step: the first such is the end
SHIFTS = np.arange(4, 46)  # disparities: 0.75 to 7 m
LEAST_LIKENESS, LEAST_MARGIN = 0.85, 0.04
BOTH_LIKENESS, BOTH_MARGIN = 1.5, 0.08
# Of one end, when the other isn't as like something elsewhere: of such bars 1 in 100 lay a third of the way off.
SURE_LIKENESS, ELSEWHERE_LIKENESS = 0.9, 0.8
SLANT_COST = 1.0
USUAL_SLANT = 0.06  # one sigma of the difference of the ends, relative: 8 degrees of 1.2 m at 3 m
END_SD_PX = 0.4
PEAK_PX = 3  # other disparities this near belong to the same peak
BEFORE_PX, BEFORE_SHARE = 1.5, 0.1  # of disparity, more than what is beyond, above and below
MOST_SLANT = 0.25  # between the disparities of the ends
GREY_APART = 40.0
UNLIT_GREY = 4  # outside the lens

ACROSS = np.array([-1, 0, 1])  # lines along a stripe: at its middle and on either side
OUTWARD = np.arange(-4, END_PX + 1)
PROFILE = np.arange(-OUTSIDE_PX, INSIDE_PX)
SLANT = np.abs(SHIFTS[:, None] - SHIFTS[None, :]) / np.maximum(SHIFTS[:, None], SHIFTS[None, :])


@dataclass(frozen=True, slots=True)
class _Stripe:
    first: int  # columns of its ends
    last: int
    offset: float  # of its line: row = offset + slope * column
    slope: float
    thick: float  # rows, without its edges

    def middle(self, columns: I64) -> I64:
        return np.asarray(np.rint(self.offset + self.slope * columns), dtype=np.int64)

    def lines(self, columns: I64) -> I64:
        """Rows [3, N] along it at these columns."""
        half = max(int(0.5 * self.thick - 1.0), 0)
        return np.asarray(self.middle(columns)[None, :] + (half * ACROSS)[:, None])


@dataclass(frozen=True, slots=True)
class _Runs:
    """Plain runs [N] in the image, with lines through them."""

    first: I64
    last: I64
    offset: F64
    slope: F64
    thick: F64

    def __len__(self) -> int:
        return len(self.first)

    def lines(self, columns: I64) -> I64:
        """Rows [N, 3, K] along them at columns [N, K]."""
        middle = np.rint(self.offset[:, None] + self.slope[:, None] * columns).astype(np.int64)
        half = np.maximum(0.5 * self.thick - 1.0, 0.0).astype(np.int64)
        return np.asarray(middle[:, None, :] + half[:, None, None] * ACROSS[None, :, None])

    def where(self, chosen: Mask) -> _Runs:
        return _Runs(self.first[chosen], self.last[chosen], self.offset[chosen], self.slope[chosen], self.thick[chosen])


@dataclass(frozen=True, slots=True)
class _End:
    likeness: F64  # [SHIFTS] of what is there in the right image
    beyond_px: float | None  # disparity of what is next to it

    def before(self, disparity_px: float) -> bool:
        """Whether the stripe stands before what is beyond this end: else the end is that thing's."""
        return self.beyond_px is None or _before(disparity_px, self.beyond_px)

    @property
    def best(self) -> float:
        return float(self.likeness.max())

    @property
    def peak_px(self) -> float:
        return float(SHIFTS[int(np.argmax(self.likeness))])

    def fine(self, i: int) -> float | None:
        """Disparity of a peak; None at the border of what is searched."""
        if not 0 < i < len(SHIFTS) - 1:
            return None
        p, q, r = (float(v) for v in self.likeness[i - 1 : i + 2])
        bend = p - 2 * q + r
        return float(SHIFTS[i]) + (min(max(0.5 * (p - r) / bend, -0.5), 0.5) if bend < -1e-6 else 0.0)

    def alone(self) -> float | None:
        """Its disparity, where it is sure without the other end."""
        i = int(np.argmax(self.likeness))
        others = self.likeness[np.abs(SHIFTS - SHIFTS[i]) > PEAK_PX]
        if self.likeness[i] < LEAST_LIKENESS or self.likeness[i] - others.max() < LEAST_MARGIN:
            return None
        at = self.fine(i)
        return at if at is not None and self.before(at) else None


def fill_bars(left: U8, right: U8, disparity: F32, known: Mask, rows: int, baseline_m: float) -> Mask:
    """Give the bars in the first ``rows`` rows their disparity, in place; tells for which pixels it is sure."""
    sure = np.zeros(known.shape, bool)
    runs = _runs(left[:rows])
    if not len(runs):
        return sure
    first, first_seen = _edges(runs, left[:rows], runs.first, -1)
    last, last_seen = _edges(runs, left[:rows], runs.last, 1)
    runs = _Runs(first, last, runs.offset, runs.slope, runs.thick)
    chosen = (first_seen | last_seen) & (last - first >= SLENDER * (runs.thick + 2.0))
    runs, first_seen, last_seen = runs.where(chosen), first_seen[chosen], last_seen[chosen]
    if not len(runs):
        return sure
    at_first = _likeness(runs, left, right, runs.first, 1, first_seen)  # [N, SHIFTS], -1 where not seen
    at_last = _likeness(runs, left, right, runs.last, -1, last_seen)
    best_first, best_last = at_first.max(axis=1), at_last.max(axis=1)
    hopeful = (best_first + best_last >= BOTH_LIKENESS) | (np.maximum(best_first, best_last) >= LEAST_LIKENESS)
    for i in np.flatnonzero(hopeful):
        stripe = _Stripe(int(runs.first[i]), int(runs.last[i]), float(runs.offset[i]), float(runs.slope[i]),
                         float(runs.thick[i]))  # fmt: skip
        a = _End(at_first[i], _beyond(stripe, disparity, known, stripe.first, 1)) if best_first[i] > -1.0 else None
        b = _End(at_last[i], _beyond(stripe, disparity, known, stripe.last, -1)) if best_last[i] > -1.0 else None
        ends = _disparities(a, b)
        if ends is not None and _is_bar(stripe, baseline_m / max(ends.first, ends.last)):
            filled = _fill(stripe, disparity, known, ends.first, ends.last)
            if filled is not None:
                sure[filled] = ends.sure
    return sure


def _fill(stripe: _Stripe, disparity: F32, known: Mask, first: float, last: float) -> tuple[I64, I64] | None:
    """Rows and columns [N] that it got; None, and nothing is filled, if it is not before what is measured around it."""
    middle, slant = 0.5 * (first + last), last - first
    usual = (USUAL_SLANT * middle) ** 2
    slant *= usual / (usual + 2.0 * END_SD_PX**2)  # bars across the way are square to it, give or take
    columns = np.arange(stripe.first, stripe.last + 1)
    reach = round(0.5 * stripe.thick) + 1  # its edges are not plain, and its own
    across = np.arange(-reach - 5, reach + 6)  # and five rows above and below
    rows = stripe.middle(columns)[None, :] + across[:, None]
    ok = (rows >= 0) & (rows < len(disparity))
    rows = rows.clip(0, len(disparity) - 1)
    own = np.abs(across) <= reach
    measured, seen = disparity[rows, columns], known[rows, columns] & ok
    for beside in (across < -reach - 1, across > reach + 1, own):
        there = measured[beside][seen[beside]]
        if len(there) and not _before(middle, float(np.median(there))):
            return None
    own_px = np.broadcast_to(middle + ((columns - stripe.first) / max(len(columns) - 1, 1) - 0.5) * slant, rows.shape)
    at = own[:, None] & ok & ~(seen & (measured > own_px))
    r, c = rows[at], np.broadcast_to(columns, rows.shape)[at]
    disparity[r, c] = own_px[at]
    known[r, c] = True
    return r, c


@dataclass(frozen=True, slots=True)
class _Ends:
    first: float  # disparities
    last: float
    sure: bool  # both ends agree, or one is beyond doubt and the other doesn't contradict it


def _disparities(first: _End | None, last: _End | None) -> _Ends | None:
    """At its first and last column, None where it isn't found in the right image, or isn't before what is behind."""
    alone = [None if end is None else end.alone() for end in (first, last)]
    if first is not None and last is not None:
        together = _together(first, last)
        # What fits both ends half as well may fit neither: an end that is sure isn't overruled by one that isn't.
        if together is not None and all(
            at is None or abs(at - both) <= PEAK_PX for at, both in zip(alone, together, strict=True)
        ):
            return _Ends(*together, sure=True)
    # One end is enough, if it is sure: the other may be out of view, or hidden in one image.
    found = [at for at in alone if at is not None]
    if not found or max(found) > (1.0 + MOST_SLANT) * min(found):
        return None
    px = min(found)
    ends = [(end, at) for end, at in zip((first, last), alone, strict=True) if end is not None]
    agree = all(abs(end.peak_px - px) <= MOST_SLANT * px for end, _ in ends if end.best >= ELSEWHERE_LIKENESS)
    return _Ends(px, px, sure=agree and any(at is not None and end.best >= SURE_LIKENESS for end, at in ends))


def _together(first: _End, last: _End) -> tuple[float, float] | None:
    """The two disparities that fit both ends best."""
    both = first.likeness[:, None] + last.likeness[None, :] - SLANT_COST * SLANT
    both[SLANT > MOST_SLANT] = -2.0
    i, j = divmod(int(np.argmax(both)), len(SHIFTS))
    best = float(both[i, j])
    both[max(i - PEAK_PX, 0) : i + PEAK_PX + 1, max(j - PEAK_PX, 0) : j + PEAK_PX + 1] = -2.0
    if best < BOTH_LIKENESS or best - both.max() < BOTH_MARGIN:
        return None
    at_first, at_last = first.fine(i), last.fine(j)
    if at_first is None or at_last is None or not (first.before(at_first) and last.before(at_last)):
        return None
    return at_first, at_last


def _before(disparity_px: float, other_px: float) -> bool:
    return disparity_px >= other_px + max(BEFORE_PX, BEFORE_SHARE * other_px)


def _is_bar(stripe: _Stripe, m_per_px: float) -> bool:
    """Whether it is long and thin not only in pixels."""
    return (stripe.last - stripe.first) * m_per_px >= SHORTEST_M and stripe.thick * m_per_px <= THICKEST_M


def _runs(image: U8) -> _Runs:
    half = np.ascontiguousarray(image[:, ::2])
    step = np.zeros_like(half)
    step[:, :-1] = cv2.absdiff(half[:, 1:], half[:, :-1])
    plain = cv2.blur(step, (RUN_COLUMNS, 1)) <= PLAIN_GREY
    step[:-1] = cv2.absdiff(half[1:], half[:-1])  # its upper and lower edges part it from plain things beside it
    plain &= cv2.blur(step, (RUN_COLUMNS, 1)) <= EDGE_GREY
    plain &= half >= UNLIT_GREY
    _, labels, stats, _ = cv2.connectedComponentsWithStats(plain.view(np.uint8), connectivity=8, ltype=cv2.CV_16U)
    wide, high, area = (stats[:, i] for i in (cv2.CC_STAT_WIDTH, cv2.CC_STAT_HEIGHT, cv2.CC_STAT_AREA))
    bars = (wide >= SHORTEST_COLUMNS) & (area <= THICKEST_PX * wide) & (high <= THICKEST_PX + 2 * STEEPEST * wide)
    bars &= (area >= LEAST_FILL * wide) & (2 * (wide + RUN_COLUMNS) * wide >= SLENDER * area)
    bars[0] = False
    chosen = np.flatnonzero(bars)
    chosen = chosen[np.argsort(-wide[chosen], kind="stable")[:MOST_STRIPES]]
    n = len(chosen)
    number = np.full(len(stats), -1, np.int16)
    number[chosen] = np.arange(n)
    numbers = number[labels.ravel()]
    pixels = np.flatnonzero(numbers >= 0)
    which = numbers[pixels]
    y, x = np.divmod(pixels, half.shape[1])
    x = 2 * x + 1
    count = np.bincount(which, minlength=n)
    mean_x, mean_y = np.bincount(which, x, n) / count, np.bincount(which, y, n) / count
    dx, dy = x - mean_x[which], y - mean_y[which]
    xx, xy, yy = (np.bincount(which, v, n) / count for v in (dx * dx, dx * dy, dy * dy))
    slope = xy / np.maximum(xx, 1e-6)
    thick = np.asarray(area[chosen] / wide[chosen], dtype=np.float64)
    straight = (np.abs(slope) <= STEEPEST) & (yy - slope * xy <= CROOKED * (thick**2 / 12.0 + 0.1))
    first = 2 * stats[chosen, cv2.CC_STAT_LEFT].astype(np.int64)
    last = np.minimum(first + 2 * wide[chosen] - 1, image.shape[1] - 1)  # of an odd number of columns
    return _Runs(first, last, mean_y - slope * mean_x, slope, thick).where(straight)


def _edges(runs: _Runs, image: U8, at: I64, outward: int) -> tuple[I64, Mask]:
    """The last columns on the stripes, from ``at`` outward, where their grey changes most; and whether there is one."""
    columns = at[:, None] + outward * OUTWARD
    profile, inside = _profile(runs, image, columns)
    steps = np.abs(np.diff(profile, axis=1))
    greatest = steps.max(axis=1)
    i = np.argmax(steps >= np.maximum(LEAST_STEP_GREY, FIRST_SHARE * greatest)[:, None], axis=1)
    every, most = np.arange(len(runs)), steps.shape[1] - 1
    for _ in range(4):  # on to the steepest
        on = np.minimum(i + 1, most)
        i = np.where(steps[every, on] > steps[every, i], on, i)
    seen = inside & (greatest >= LEAST_STEP_GREY) & (profile.min(axis=1) >= UNLIT_GREY)
    return np.where(seen, columns[every, i], at), seen


def _likeness(runs: _Runs, left: U8, right: U8, at: I64, inward: int, seen: Mask) -> F64:
    """[N, SHIFTS] how like an end the right image is, -1 where it isn't seen."""
    columns = at[:, None] + inward * PROFILE  # [N, K]
    here, inside = _profile(runs, left, columns)
    seen = seen & inside & (columns.min(axis=1) >= SHIFTS[-1])
    out = np.full((len(runs), len(SHIFTS)), -1.0)
    if not seen.any():
        return out
    columns, here = columns[seen], here[seen]
    start = runs.where(seen).lines(columns) * right.shape[1] + columns[:, None, :]  # [N, 3, K]
    at_px = start[:, :, None, :] - SHIFTS[None, None, :, None]
    there = right.ravel()[at_px].sum(axis=1, dtype=np.float32) / np.float32(len(ACROSS))  # [N, SHIFTS, K]
    here_mean, there_mean = here.mean(axis=1), there.mean(axis=2)
    a, b = here - here_mean[:, None], there - there_mean[..., None]
    likeness = np.einsum("nk,nsk->ns", a, b) / np.sqrt(
        np.maximum((a * a).sum(axis=1)[:, None] * (b * b).sum(axis=2), 1.0)
    )
    likeness[np.abs(there_mean - here_mean[:, None]) > GREY_APART] = -1.0
    out[seen] = likeness
    return out


def _profile(runs: _Runs, image: U8, columns: I64) -> tuple[F32, Mask]:
    """Grey [N, K] along stripes at columns [N, K], and whether [N] all of that is in the image."""
    lines = runs.lines(columns)
    height, width = image.shape
    inside = (columns.min(axis=1) >= 0) & (columns.max(axis=1) < width)
    inside &= (lines.min(axis=(1, 2)) >= 0) & (lines.max(axis=(1, 2)) < height)
    grey = image[lines.clip(0, height - 1), columns.clip(0, width - 1)[:, None, :]]
    return np.asarray(grey.mean(axis=1, dtype=np.float32)), inside


def _beyond(stripe: _Stripe, disparity: F32, known: Mask, at: int, inward: int) -> float | None:
    """Disparity of what is next to an end; None where nothing was measured."""
    columns = at - inward * np.arange(3, 13)
    columns = columns[(columns >= 0) & (columns < disparity.shape[1])]
    rows = stripe.lines(columns).clip(0, len(disparity) - 1)
    measured = np.sort(disparity[rows, columns][known[rows, columns]])
    return float(measured[int(0.8 * (len(measured) - 1))]) if len(measured) else None  # a pole is thin, too
