"""The detector that is on this machine, if it is the pinned one. A session goes on without: things are "Obstacle" then.

The ONNX file is made by ``handrail models fetch nanodet``, with the same bytes everywhere. Knows no pictures.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from handrail.runtime.labels.detector import Detector, NanoDet
from handrail.runtime.providers import Provider
from handrail.streams.cache import cache_folder
from handrail.streams.errors import HandrailError


@dataclass(frozen=True, slots=True)
class Weights:
    size: int  # bytes
    sha256: str

    def fits(self, content: bytes) -> bool:
        return len(content) == self.size and hashlib.sha256(content).hexdigest() == self.sha256


WEIGHTS = Weights(15_155_748, "55adb0cffb6fd4e05c71f192c9d0fc8f741a3de3fe598da16cc4aec3e14cb7a0")


@dataclass(frozen=True, slots=True)
class Opened:
    detector: Detector | None
    note: str | None  # why there is none, in one line, with what to do


def nanodet_path() -> Path:
    return cache_folder("detectors") / "nanodet.onnx"


def is_pinned(path: Path) -> bool:
    """Whether that file is there, whole and the very one."""
    try:
        return path.stat().st_size == WEIGHTS.size and WEIGHTS.fits(path.read_bytes())
    except OSError:
        return False


def open_detector(threads: int = 1, provider: Provider = "cpu") -> Opened:
    """Never raises: labels are worth less than a session."""
    try:
        path = nanodet_path()
        if not path.exists():
            return Opened(None, "no labels: the detector isn't here; handrail models fetch nanodet")
        if not is_pinned(path):
            return Opened(None, f"no labels: {path.name} is not the pinned file; handrail models fetch nanodet")
        return Opened(NanoDet(path, threads, provider), None)
    except HandrailError as e:
        return Opened(None, f"no labels: {e}")
