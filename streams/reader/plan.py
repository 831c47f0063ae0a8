"""Which camera frames of a recording are decoded, decided on capture times alone. Knows no pixels. Times in ns."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from handrail.streams.samples import I64, Kind
from handrail.streams.source import DecodePlan

Mask = NDArray[np.bool_]


def planned_frames(
    plan: DecodePlan,
    kinds: dict[str, Kind],
    times: dict[str, I64],
    pair: tuple[str, str] | None,
    last: dict[str, int] | None = None,
    start_ns: int = 0,
) -> dict[str, Mask]:
    """Per camera label the frames to decode, [N]. Both of the stereo pair are taken in step, or neither.

    ``last``: per label the frame decoded last before these, e.g. in the lap before. ``start_ns``: what the plan's
    single times count from.
    """
    masks: dict[str, Mask] = {}
    last = last or {}
    for label in times:
        fallback = plan.rgb_hz if kinds[label] is Kind.RGB else 0.0
        masks[label] = thinned(times[label], plan.other_hz.get(label, fallback), last.get(label))
        if kinds[label] is Kind.RGB:
            masks[label][captured_by(times[label], [start_ns + round(s * 1e9) for s in plan.rgb_at_s])] = True
    if pair is not None and pair[0] in times and pair[1] in times:
        left, right = pair
        with_partner, partner = _partners(times[left], times[right])
        chosen = thinned(times[left][with_partner], plan.stereo_hz, last.get(left))
        masks[left][with_partner[chosen]] = True
        masks[right][partner[chosen]] = True
    return masks


def thinned(times: I64, rate_hz: float, last: int | None = None) -> Mask:
    """Of frames at ``times`` [N], in order, those that make at most about ``rate_hz``, given one decoded at ``last``.

    A quarter of the frame spacing is allowed for jitter, so that 10 Hz from a 10 Hz camera takes every frame.
    """
    mask = np.zeros(len(times), dtype=bool)
    if rate_hz <= 0.0 or not len(times):
        return mask
    wait_ns = 1e9 / rate_hz - _spacing(times) / 4
    for i, t in enumerate(times.tolist()):
        if last is None or t - last >= wait_ns:
            mask[i], last = True, t
    return mask


def captured_by(times: I64, at_ns: Sequence[int]) -> I64:
    """Of frames at ``times`` [N], in order, the index of the last one captured by each of ``at_ns``, else the first."""
    if not len(times):
        return np.zeros(0, dtype=np.int64)
    return np.maximum(np.searchsorted(times, np.array(at_ns, dtype=np.int64), side="right") - 1, 0)


def _partners(left: I64, right: I64) -> tuple[I64, I64]:
    """Indices of left frames that have a right one within 2/5 of the frame spacing, and of those right ones."""
    if not len(left) or not len(right):
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    after = np.clip(np.searchsorted(right, left), 1, len(right)) - 1
    later = np.minimum(after + 1, len(right) - 1)
    nearest = np.where(np.abs(right[later] - left) < np.abs(right[after] - left), later, after)
    close = np.abs(right[nearest] - left) <= 0.4 * _spacing(left)
    return np.flatnonzero(close), nearest[close]


def _spacing(times: I64) -> float:
    """Typical time between frames; 100 ms where there is but one frame."""
    return float(np.median(np.diff(times))) if len(times) > 1 else 100e6
