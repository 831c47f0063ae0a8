"""What a training is fed, made from examples once and kept: clips with frames at the backbone's size, and their grids.

Both lie in the cache under the hash of all that decides them: the recording and its MPS files (size and time of last
change), the stretch, the size of frames, the IMU encoder, and the source of the code that makes them. Knows no torch:
the IMU encoder is a function that somebody else brings.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from handrail.export.training import clip as clip_module
from handrail.export.training import sampling
from handrail.export.training.array_cache import ArrayCache, Arrays, key_of
from handrail.export.training.clip import Clip
from handrail.export.training.data import Example
from handrail.export.training.sampling import Mode, Stretch, duration_s, read_clip, stretch_of
from handrail.runtime import grid as grid_package
from handrail.runtime.grid import STREAMS, Grid, grids
from handrail.runtime.grid.imu import Encoder
from handrail.runtime.preprocess import ImagePlan
from handrail.runtime.preprocess import resize as resize_module
from handrail.runtime.preprocess.resize import resize
from handrail.streams import mps, world
from handrail.streams.errors import SourceError
from handrail.streams.mps import find_mps

Read = Callable[[Stretch], Clip]


@dataclass(frozen=True, slots=True)
class ImuEncoder:
    encode: Encoder
    sha256: str  # of its weights


@dataclass(frozen=True, slots=True)
class Material:
    cache: ArrayCache
    plan: ImagePlan  # size and filter of frames
    encoder: ImuEncoder | None  # None: no IMU stream
    mode: Mode
    window_s: float
    read: Read = read_clip

    def clip(self, example: Example) -> Clip:
        """With frames [8, height, width, 3] as the backbone's preprocessing would resize them.

        Raises SourceError, MissingDependencyError or OutputError, the example's place in front.
        """
        stretch = self._stretch(example)
        arrays = self.cache.made(self._clip_key(stretch), lambda: self._cut(stretch, example).to_arrays())
        try:
            return Clip.from_arrays(arrays)
        except (KeyError, ValueError, TypeError) as e:
            raise SourceError(f"{example.where}: its clip in the cache can't be read ({e}); empty the cache") from e

    def grids(self, example: Example) -> dict[str, Grid]:
        """The five streams over the clip, not normalised. Raises as ``clip``."""
        encoder = None if self.encoder is None else self.encoder.sha256
        key = key_of("grids", self._clip_key(self._stretch(example)), encoder, _code(grid_package))
        return _grids(self.cache.made(key, lambda: _grid_arrays(self._gridded(self.clip(example)))))

    def _gridded(self, clip: Clip) -> dict[str, Grid]:
        encode = None if self.encoder is None else self.encoder.encode
        return grids(clip.samples, clip.rig, clip.start_ns, clip.end_ns, encode)

    def _stretch(self, example: Example) -> Stretch:
        return stretch_of(example.uri, example.start_s, example.end_s, self.mode, self.window_s)

    def _cut(self, stretch: Stretch, example: Example) -> Clip:
        try:
            clip = self.read(stretch)
        except SourceError as e:
            raise SourceError(f"{example.where}: {e}") from e
        height, width = self.plan.height, self.plan.width
        frames = np.stack([resize(frame, height, width, self.plan.filter) for frame in clip.frames])
        return replace(clip, frames=frames)

    def _clip_key(self, stretch: Stretch) -> str:
        size = (self.plan.height, self.plan.width, self.plan.filter)
        code = map(_code, (sampling, clip_module, resize_module, mps))
        return key_of("clip", stretch, _recorded(stretch.uri), size, *code)


def kept_duration(cache: ArrayCache, uri: str) -> float | None:
    """As ``sampling.duration_s``, asked once for each recording: to open one takes a second, and there are many."""

    def ask() -> Arrays:
        seconds = duration_s(uri)
        return {"seconds": np.array(np.nan if seconds is None else seconds)}

    seconds = float(cache.made(key_of("duration", uri, _recorded(uri)), ask)["seconds"])
    return None if np.isnan(seconds) else seconds


def _recorded(uri: str) -> list[object]:
    """What tells a recording from one that took its place."""
    scheme, _, rest = uri.partition(":")
    if scheme != "vrs":
        return [_code(world)]
    recording = Path(rest)
    mps = find_mps(recording)
    files = [recording, *(sorted(p for p in mps.rglob("*") if p.is_file()) if mps is not None else ())]
    try:
        stats = [(str(path), path.stat()) for path in files]
    except OSError as e:
        raise SourceError(f"{uri}: can't be read ({e.strerror})") from e
    return [(name, stat.st_size, stat.st_mtime_ns) for name, stat in stats]


@functools.cache
def _code(module: object) -> str:
    """Hash of a module's source, or of a package's with its data."""
    file = Path(getattr(module, "__file__"))  # noqa: B009 - any module's
    package = file.name == "__init__.py"
    files = sorted([*file.parent.glob("*.py"), *file.parent.glob("*.json")]) if package else [file]
    digest = hashlib.sha256()
    for path in files:
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _grid_arrays(made: dict[str, Grid]) -> Arrays:
    arrays: Arrays = {}
    for stream, grid in made.items():
        arrays |= {f"{stream}:values": grid.values, f"{stream}:valid": grid.valid, f"{stream}:known": grid.mask()}
    return arrays


def _grids(arrays: Arrays) -> dict[str, Grid]:
    return {s: Grid(arrays[f"{s}:values"], arrays[f"{s}:valid"], arrays[f"{s}:known"]) for s in STREAMS}
