"""Mean and standard deviation of every feature over the training split, and what is done with them. Knows no data set.

They travel with the weights (``statistics.json`` of a bundle): a model sees its own training's scale, on any device.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from handrail.runtime.grid.bins import F32, STREAMS, Grid
from handrail.streams.errors import InputError

LEAST_STD = 1e-6
LARGEST = 1e30  # no feature has such a mean; float32 holds it


@dataclass(frozen=True, slots=True)
class Statistics:
    """Per stream, in the order of STREAMS; float32."""

    mean: dict[str, F32]  # [D] each
    std: dict[str, F32]  # [D] each, at least LEAST_STD

    def apply(self, grid: Mapping[str, Grid]) -> dict[str, Grid]:
        """(x - mean) / std of each stream that is given; 0 where it is not known."""
        return {stream: self._normalised(stream, one) for stream, one in grid.items()}

    def _normalised(self, stream: str, grid: Grid) -> Grid:
        with np.errstate(over="ignore"):
            values = (grid.values - self.mean[stream]) / self.std[stream]
        known = grid.mask() & np.isfinite(values)
        return Grid(np.where(known, values, np.float32(0)), grid.valid & known.any(axis=1), known)

    def to_json(self) -> dict[str, dict[str, list[float]]]:
        """{"mean": {stream: [D numbers]}, "std": the same}."""
        return {
            "mean": {stream: self.mean[stream].tolist() for stream in STREAMS},
            "std": {stream: self.std[stream].tolist() for stream in STREAMS},
        }

    @staticmethod
    def from_json(table: Any) -> Statistics:
        """Inverse of ``to_json``, of whatever a file held. Raises InputError: what was expected, what came."""
        if not isinstance(table, dict) or set(table) != {"mean", "std"}:
            raise InputError('statistics: expected a table with the keys "mean" and "std"')
        mean, std = (
            {stream: _numbers(table[name], name, stream) for stream in STREAMS} for name in ("mean", "std")
        )
        for stream in STREAMS:
            if std[stream].min() <= 0:
                raise InputError(f"statistics: std of {stream}: expected numbers above 0, got {std[stream].min():g}")
        return Statistics(mean, {stream: np.maximum(std[stream], np.float32(LEAST_STD)) for stream in STREAMS})


def _numbers(streams: Any, name: str, stream: str) -> F32:
    if not isinstance(streams, dict) or set(streams) != set(STREAMS):
        got = ", ".join(map(str, streams)) if isinstance(streams, dict) else type(streams).__name__
        raise InputError(f"statistics: {name}: expected the streams {', '.join(STREAMS)}, got {got[:80] or 'none'}")
    values, length = streams[stream], STREAMS[stream]
    if not isinstance(values, list) or len(values) != length:
        got = f"{len(values)}" if isinstance(values, list) else type(values).__name__
        raise InputError(f"statistics: {name} of {stream}: expected {length} numbers, got {got}")
    if not all(isinstance(v, int | float) and not isinstance(v, bool) and abs(v) <= LARGEST for v in values):
        raise InputError(f"statistics: {name} of {stream}: expected finite numbers of at most {LARGEST:g}")
    return np.array(values, np.float32)
