"""Mean and standard deviation of every feature over a training split that is seen one grid at a time.

Only what is known counts. Float64, by the pairwise update of Chan, Golub and LeVeque (1979): parts of a split can be
counted apart and merged, and the order matters only to rounding. Knows no files and no model.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from handrail.runtime.grid import STREAMS, Grid, Statistics
from handrail.runtime.grid.normalise import LEAST_STD

F64 = NDArray[np.float64]


class Moments:
    """``add`` every grid of the split, then ``statistics``."""

    def __init__(self) -> None:
        self._of = {stream: (np.zeros(width), np.zeros(width), np.zeros(width)) for stream, width in STREAMS.items()}

    def add(self, grids: Mapping[str, Grid]) -> None:
        """Grids as ``runtime.grid.grids`` gives them, not normalised; streams that are left out count as missing."""
        for stream, grid in grids.items():
            mask = grid.mask()
            values = np.where(mask, grid.values, 0).astype(np.float64)
            count = mask.sum(axis=0).astype(np.float64)
            mean = values.sum(axis=0) / np.maximum(count, 1)
            squares = np.where(mask, values - mean, 0)
            self._of[stream] = _merged(self._of[stream], (count, mean, (squares**2).sum(axis=0)))

    def merge(self, other: Moments) -> None:
        """Take in what another one has counted; it stays as it is."""
        for stream, theirs in other._of.items():
            self._of[stream] = _merged(self._of[stream], theirs)

    def statistics(self) -> Statistics:
        """Population mean and std, the std at least LEAST_STD. A feature that was never known gets 0 and 1."""
        mean, std = {}, {}
        for stream, (count, middle, squares) in self._of.items():
            spread = np.maximum(np.sqrt(squares / np.maximum(count, 1)), LEAST_STD)
            mean[stream] = middle.astype(np.float32)
            std[stream] = np.where(count > 0, spread, 1.0).astype(np.float32)
        return Statistics(mean, std)


def _merged(a: tuple[F64, F64, F64], b: tuple[F64, F64, F64]) -> tuple[F64, F64, F64]:
    """Count, mean and sum of squared deviations of two sets taken together; [D] each."""
    count = a[0] + b[0]
    share = b[0] / np.maximum(count, 1)
    delta = b[1] - a[1]
    return count, a[1] + delta * share, a[2] + b[2] + delta**2 * a[0] * share
