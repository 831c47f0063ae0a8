"""The five sensor streams of the fused model on a grid of 64 bins over an interval: numpy alone, causal.

    grid = statistics.apply(grids(samples, rig, start_ns, end_ns, encode_imu))

Knows units, frames and masks; knows no network. Missing is a mask, never a value.
"""

from handrail.runtime.grid.bins import BINS, STREAMS, Grid, bin_means
from handrail.runtime.grid.gather import HISTORY_NS, grids
from handrail.runtime.grid.normalise import Statistics

__all__ = ["BINS", "HISTORY_NS", "STREAMS", "Grid", "Statistics", "bin_means", "grids"]
