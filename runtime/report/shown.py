"""The colour pictures that questions were answered from, small, for as long as the report needs them.

Pictures come with the samples, before anybody knows which of them a question will use: the newest are kept for as long
as an answer may still reach back to them, and those that ``AnswerBegun`` names are kept for good. Only as ``Redacted``,
upright and at most ``SMALL_PX`` wide or high; of a live session none is ever held. Knows no answers and no page.
"""

from __future__ import annotations

from collections import OrderedDict

import cv2
import numpy as np
from numpy.typing import NDArray

from handrail.runtime.events import AnswerBegun, AnyEvent
from handrail.runtime.redacted import Redacted
from handrail.streams.samples import ImageFrame, Kind, Sample
from handrail.streams.source import SourceInfo

SMALL_PX = 160
MOST_OF_ONE = 8  # pictures of a question that are kept, the newest: no model here is shown more
MOST_RECENT = 128  # about two minutes at the one picture a second that is decoded for answers
MOST_KEPT = 240  # of all questions together: 14 MB; a run of hours asks on its own


class ShownPictures:
    """Hear of every sample and every event; ``kept`` is what the page may show, by capture (device_ns)."""

    def __init__(self) -> None:
        self._info: SourceInfo | None = None
        self._recent: OrderedDict[int, Redacted] = OrderedDict()
        self.kept: dict[int, Redacted] = {}

    def on_open(self, info: SourceInfo) -> None:
        self._info = info

    def on_sample(self, sample: Sample) -> None:
        if self._info is None or not self._info.recorded or sample.stream.kind is not Kind.RGB:
            return
        if isinstance(sample.payload, ImageFrame) and sample.payload.pixels is not None:
            pixels = small(sample.payload.pixels, self._info.rig.generation)
            self._recent[sample.device_ns] = Redacted.from_recording(pixels, self._info)
            while len(self._recent) > MOST_RECENT:
                self._recent.popitem(last=False)

    def on_event(self, event: AnyEvent) -> None:
        if isinstance(event, AnswerBegun):
            for device_ns in event.frames[-MOST_OF_ONE:]:
                if device_ns in self._recent and len(self.kept) < MOST_KEPT:
                    self.kept[device_ns] = self._recent[device_ns]


def small(pixels: NDArray[np.uint8], generation: int) -> NDArray[np.uint8]:
    """[H, W] or [H, W, 3] of a sensor -> the same, upright (Gen 1 sensors lie on their side), at most ``SMALL_PX``."""
    height, width = pixels.shape[:2]
    scale = min(1.0, SMALL_PX / max(height, width))
    size = max(1, round(width * scale)), max(1, round(height * scale))
    reduced = np.asarray(cv2.resize(pixels, size, interpolation=cv2.INTER_AREA), dtype=np.uint8)
    return np.ascontiguousarray(np.rot90(reduced, k=3)) if generation == 1 else reduced
