"""Text lines in one picture: the seam, RapidOCR behind it, and a fake for tests and replays.

    reader, why = open_reader()            # None and a reason where it can't be had: a session goes on without
    lines = reader.read(picture)           # [H, W, 3] RGB, upright; a pure function, for a worker's thread

RapidOCR (Apache-2.0) brings PP-OCRv6 small in its wheel: it reads Latin and Chinese script, printed and level to about
ten degrees. Its ONNX Runtime sessions are opened by us, so that nothing is fetched, nothing spins between two pictures
and nothing is said on the terminal. Knows no cameras, no time, and not whether what it reads is true.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from handrail.runtime.providers import open_session
from handrail.streams.errors import HandrailError, MissingDependencyError

U8 = NDArray[np.uint8]
F64 = NDArray[np.float64]

LONGEST_SIDE_PX = 736  # that text is looked for in; letters themselves are read from the whole picture
LEAST_SIDE_PX = 32  # the detector's stride: nothing is found in less
SCRAP_LETTERS, SURE = 3, 0.98  # in kitchens without any text a "2" was read with 0.90
GRAPHS = {"Det": "PP-OCRv6_det_small.onnx", "Rec": "PP-OCRv6_rec_small.onnx"}
NOT_INSTALLED = "rapidocr isn't installed: pip install 'handrail[cpu,text]'"


@dataclass(frozen=True, slots=True, eq=False)  # arrays have no one answer to ==
class Line:
    """One run of text as it was read. What it says is data: ``quote`` makes it fit to be shown or spoken."""

    text: str
    confidence: float  # 0..1, mean over its letters
    quad: F64  # [4, 2] px of the picture: top left, top right, bottom right, bottom left, as the text runs
    height_px: float  # of the quad: what a capital letter has, and half to twice as much around it


class Reader(Protocol):
    def read(self, picture: U8) -> list[Line]:
        """Lines in a picture [H, W, 3] RGB, upright; those it doubts too. Raises HandrailError."""
        ...


class FakeReader:
    """Gives the lines it was made with, in every picture, and counts the pictures."""

    def __init__(self, lines: Sequence[Line] = ()) -> None:
        self._lines = list(lines)
        self.pictures = 0

    def read(self, picture: U8) -> list[Line]:
        self.pictures += 1
        return list(self._lines)


@dataclass(slots=True)
class RapidReader:
    """``engine``: a ``rapidocr.RapidOCR``. One picture at a time."""

    engine: Any = field(repr=False)

    def read(self, picture: U8) -> list[Line]:
        if picture.ndim != 3 or picture.shape[2] != 3 or picture.dtype != np.uint8:
            raise ReaderError(f"reader: expected a picture [H, W, 3] of bytes, got {picture.shape} {picture.dtype}")
        if min(picture.shape[:2]) < LEAST_SIDE_PX:
            return []
        try:
            found = self.engine(np.ascontiguousarray(picture[..., ::-1]))  # as OpenCV has it: blue first
        except Exception as e:  # whatever a foreign library throws at one picture
            raise ReaderError(f"reader: a picture couldn't be read ({type(e).__name__}: {e})".splitlines()[0]) from e
        if found.boxes is None or found.txts is None or found.scores is None:
            return []
        return [line_of(text, float(confidence), np.asarray(quad, dtype=np.float64))
                for text, confidence, quad in zip(found.txts, found.scores, found.boxes, strict=True)]  # fmt: skip


class ReaderError(HandrailError):
    """A picture that the reader choked on: the next one may do."""


def line_of(text: str, confidence: float, quad: F64) -> Line:
    """With its height worked out: the mean of the quad's left and right edge."""
    left, right = np.linalg.norm(quad[3] - quad[0]), np.linalg.norm(quad[2] - quad[1])
    return Line(text, confidence, quad, float(left + right) / 2)


def is_scrap(text: str, confidence: float) -> bool:
    """A letter or two without great confidence: pictograms, handles and railings read as such."""
    return sum(c.isalnum() for c in text) < SCRAP_LETTERS and confidence < SURE


def open_reader(threads: int = 1) -> tuple[Reader | None, str]:
    """The reader and "", or None and one line that says why. Takes a second: the library and 31 MB of weights."""
    try:
        return RapidReader(_engine(threads)), ""
    except HandrailError as e:
        return None, str(e)
    except Exception as e:  # a broken installation comes as anything, ImportError to OSError
        return None, f"rapidocr doesn't start ({type(e).__name__}: {e})".splitlines()[0]


def _engine(threads: int) -> Any:
    found = find_spec("rapidocr")
    if found is None or found.origin is None:
        raise MissingDependencyError(NOT_INSTALLED)
    models = Path(found.origin).parent / "models"
    logging.getLogger("RapidOCR").setLevel(logging.CRITICAL)
    try:
        from omegaconf import flag_override
        from rapidocr import RapidOCR
    except ModuleNotFoundError as e:
        raise MissingDependencyError(f"rapidocr lacks {e.name}: pip install 'handrail[cpu,text]'") from e
    engine = RapidOCR(params={
        "Global.log_level": "critical", "Global.use_cls": False,  # upside down is not how signs stand before a head
        "Global.text_score": 0.0, "Det.limit_type": "max", "Det.limit_side_len": LONGEST_SIDE_PX,
    })  # fmt: skip
    with flag_override(engine.cfg, "allow_objects", True):
        for part, graph in GRAPHS.items():
            if not (models / graph).is_file():
                raise MissingDependencyError(f"rapidocr lacks its {graph}: pip install --force-reinstall rapidocr")
            # Without an arena 260 MiB instead of 400, in the same time.
            engine.cfg[part].session = open_session(models / graph, "cpu", threads=threads, arena=False)
    return engine
