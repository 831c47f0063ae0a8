"""Statistics of a training split: what is known counts once, in whatever order and in however many parts."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from handrail.export.training.statistics import Moments
from handrail.runtime.grid import BINS, STREAMS, Grid, Statistics
from handrail.runtime.grid.normalise import LEAST_STD


def split(seed: int, count: int, level: float = 0.0) -> list[dict[str, Grid]]:
    """Grids with streams, bins and features missing at random; what is masked is filled with 99."""
    rng = np.random.default_rng(seed)

    def grid(width: int) -> Grid:
        valid = (rng.random(BINS) < 0.7) & (rng.random() < 0.8)
        known = None if rng.random() < 0.5 else rng.random((BINS, width)) < 0.8
        plain = Grid(rng.normal(level, 2.0, (BINS, width)).astype(np.float32), valid, known)
        return Grid(np.where(plain.mask(), plain.values, np.float32(99)), valid, known)

    return [
        {stream: grid(width) for stream, width in STREAMS.items() if rng.random() < 0.9} for _ in range(count)
    ]


def counted(grids: list[dict[str, Grid]]) -> Moments:
    moments = Moments()
    for grid in grids:
        moments.add(grid)
    return moments


def close(a: Statistics, b: Statistics, rel: float = 1e-6) -> bool:
    return all(
        np.allclose(x[s], y[s], rtol=rel, atol=1e-6) for x, y in ((a.mean, b.mean), (a.std, b.std)) for s in STREAMS
    )


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 999), count=st.integers(1, 6))
def test_mean_and_std_are_those_of_all_known_readings(seed: int, count: int) -> None:
    grids = split(seed, count)
    stats = counted(grids).statistics()
    for stream, width in STREAMS.items():
        for d in range(min(width, 12)):
            known = [g[stream].values[g[stream].mask()[:, d], d] for g in grids if stream in g]
            values = np.concatenate([np.zeros(0), *known]).astype(np.float64)
            mean, std = (values.mean(), max(values.std(), LEAST_STD)) if len(values) else (0.0, 1.0)
            assert np.allclose([stats.mean[stream][d], stats.std[stream][d]], [mean, std], atol=1e-6)


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 999), count=st.integers(0, 6), at=st.integers(0, 6), data=st.data())
def test_order_and_parts_do_not_matter(seed: int, count: int, at: int, data: st.DataObject) -> None:
    grids = split(seed, count)
    whole = counted(grids).statistics()
    shuffled = data.draw(st.permutations(grids))
    parts = counted(shuffled[:at])
    parts.merge(counted(shuffled[at:]))
    assert close(parts.statistics(), whole)


def test_a_small_spread_on_a_high_level_is_not_lost() -> None:
    grids = split(1, 30, level=101_325.0)
    assert all((np.abs(std - 2.0) < 0.2).all() for std in counted(grids).statistics().std.values())


def test_a_feature_that_never_varies_has_the_least_std_and_one_never_seen_has_one() -> None:
    constant = {"gaze": Grid(np.full((BINS, 8), 3.5, np.float32), np.ones(BINS, bool))}
    stats = counted([constant, constant]).statistics()
    assert (stats.mean["gaze"] == 3.5).all() and (stats.std["gaze"] == np.float32(LEAST_STD)).all()
    assert not stats.mean["imu"].any() and (stats.std["imu"] == 1).all()


def test_the_split_itself_comes_out_with_mean_zero_and_std_one() -> None:
    grids = split(5, 40, level=7.0)
    stats = counted(grids).statistics()
    after = counted([stats.apply(grid) for grid in grids]).statistics()
    assert all(np.abs(after.mean[s]).max() < 1e-5 and np.abs(after.std[s] - 1).max() < 1e-5 for s in STREAMS)
