"""Arrays kept on disk under the hash of what decided them, so that a recording is decoded once and not once an epoch.

    <folder>/3f/3fa9...e1.npz       arrays alone, read without pickle

Bounded: when the folder outgrows ``limit_bytes``, what was used longest ago goes. A damaged entry is as good as none
and is made anew. Several processes may share a folder. Knows nothing of what the arrays mean.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from handrail.streams.errors import OutputError

Arrays = dict[str, NDArray[Any]]
LIMIT_BYTES = 64 << 30  # eight frames of 1408x1408 take about 25 MB


def key_of(*decided_by: object) -> str:
    """Hash of the parts' texts, each kept apart from the next."""
    return hashlib.sha256("\0".join(map(repr, decided_by)).encode()).hexdigest()


class ArrayCache:
    def __init__(self, folder: Path, limit_bytes: int = LIMIT_BYTES) -> None:
        """Raises OutputError where the folder can't be made."""
        self._folder, self._limit = folder, limit_bytes
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)  # it shows where somebody walked
        except OSError as e:
            raise OutputError(f"{folder}: can't be made ({e.strerror}); choose another folder with --cache") from e
        self._bytes = sum(size for size, _, _ in self._entries())

    def get(self, key: str) -> Arrays | None:
        path = self._path(key)
        try:
            with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
                arrays = {name: archive[name] for name in archive.files}
            os.utime(path)
        except FileNotFoundError:
            return None
        except Exception:  # what a flipped bit in an archive raises has no end of kinds
            path.unlink(missing_ok=True)
            return None
        return arrays

    def put(self, key: str, arrays: Arrays) -> None:
        """Raises OutputError when there is no room."""
        path = self._path(key)
        part = path.with_name(f".{key}.{os.getpid()}.part")
        try:
            path.parent.mkdir(exist_ok=True, mode=0o700)
            with part.open("wb") as file:
                np.savez(file, allow_pickle=False, **arrays)
            self._bytes += part.stat().st_size
            part.replace(path)
        except OSError as e:
            raise OutputError(f"{path}: can't be written ({e.strerror}); make room, or choose another --cache") from e
        finally:
            part.unlink(missing_ok=True)
        if self._bytes > self._limit:
            self._shrink(path)

    def made(self, key: str, make: Callable[[], Arrays]) -> Arrays:
        """What is kept under ``key``, made now if it isn't there."""
        arrays = self.get(key)
        if arrays is None:
            arrays = make()
            self.put(key, arrays)
        return arrays

    def _path(self, key: str) -> Path:
        return self._folder / key[:2] / f"{key}.npz"

    def _entries(self) -> list[tuple[int, float, Path]]:
        """Size, time of last use and path of each."""
        found = []
        for path in self._folder.glob("??/*.npz"):
            with contextlib.suppress(FileNotFoundError):  # another process was quicker
                stat = path.stat()
                found.append((stat.st_size, stat.st_mtime, path))
        return found

    def _shrink(self, newest: Path) -> None:
        """To nine tenths of the limit, oldest use first; never the entry just written."""
        entries = sorted(self._entries(), key=lambda e: e[1])
        self._bytes = sum(size for size, _, _ in entries)
        for size, _, path in entries:
            if self._bytes <= self._limit * 0.9:
                return
            if path != newest:
                path.unlink(missing_ok=True)
                self._bytes -= size
