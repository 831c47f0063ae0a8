"""A session that answers all the time, as load: colour pictures once a second, and a question every few seconds.

Simulated walks are kept without colour pictures (drawing one takes longer than a walk's second), so they get one here:
noise, which a vision encoder works on as long as on any other. Knows nothing of what is measured beside it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np

from handrail.runtime.answer.opening import Asked, Loaded, Options, load
from handrail.streams.clock import NS_PER_S
from handrail.streams.samples import ImageFrame, Kind, Sample, Stream
from handrail.streams.source import Source, SourceInfo

EVERY_S = 6.0  # between questions: about as long as one is read and written by a model of 256 M parameters
QUESTIONS = ("What is in front of me?", "What is on my left?", "Is anything at head height?", "Which way is the door?")
RGB = Stream("camera-rgb", Kind.RGB)


def answering(bundle: Path, seconds: float) -> Loaded:
    """That bundle, asked all through a walk of so many seconds."""
    times = np.arange(2.0, seconds - EVERY_S, EVERY_S)
    asked = tuple(Asked(QUESTIONS[i % len(QUESTIONS)], float(t)) for i, t in enumerate(times))
    return load(Options(bundle, labels=False, ocr="off", asked=asked))


class WithPictures:
    """A source, and a colour picture of noise every second of it."""

    def __init__(self, source: Source) -> None:
        self._source = source
        camera = source.info.rig.cameras[RGB.label]
        noise = np.random.default_rng(0).integers(0, 255, (camera.height, camera.width, 3), dtype=np.uint8)
        self._frame = ImageFrame(noise, camera.width, camera.height, 0.01, 1.0, 0)

    @property
    def info(self) -> SourceInfo:
        return self._source.info

    async def samples(self) -> AsyncIterator[Sample]:
        next_ns = 0
        async for sample in self._source.samples():
            if sample.stream.kind is Kind.SLAM and sample.device_ns >= next_ns:
                next_ns = sample.device_ns + NS_PER_S
                yield Sample(RGB, sample.device_ns, sample.host_ns, self._frame)
            yield sample
