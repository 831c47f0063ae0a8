"""Adds up what is playing, one block of frames at a time, when the device asks for it. No threads, no clock, no I/O.

The result does not depend on how the frames are cut into blocks. Speech and the loudest earcon together stay within
[-1, 1] by their levels (see ``speech`` and ``earcons``); the limiter is there for anything beyond that. Nothing is
ducked: a warning tone must never get softer because somebody talks. Units: frames at ``RATE_HZ``.
"""

from __future__ import annotations

import numpy as np

from handrail.device.sound import F32, RATE_HZ, Sound
from handrail.streams.errors import DeviceError

FADE_FRAMES = RATE_HZ * 5 // 1000  # 5 ms: short enough to count as silence, long enough not to click
KNEE = 0.9  # the limiter leaves everything below as it is


class Track:
    """One sound on its way through the mixer."""

    __slots__ = ("_fade_from", "_samples", "end", "position")

    def __init__(self, sound: Sound) -> None:
        """Raises DeviceError when the samples are not [N] or [N, 2] float32."""
        self._samples = _stereo(sound)  # [N, 2]
        self._fade_from: int | None = None
        self.position = 0  # frames handed out so far
        self.end = len(self._samples)  # frames it will have handed out in all

    @property
    def done(self) -> bool:
        return self.position >= self.end

    @property
    def cancelled(self) -> bool:
        return self._fade_from is not None

    def cancel(self) -> None:
        """Fade out from here; a track that has not begun never will."""
        if self._fade_from is not None or self.done:
            return
        self._fade_from = self.position
        self.end = min(self.end, self.position + FADE_FRAMES) if self.position else 0

    def take(self, n_frames: int) -> F32:
        """The next [m, 2] frames, m <= n_frames; fewer at the end."""
        start, stop = self.position, min(self.position + n_frames, self.end)
        self.position = max(start, stop)
        block = self._samples[start:stop]
        if self._fade_from is None:
            return block
        faded = np.arange(start, stop, dtype=np.float32) + np.float32(1 - self._fade_from)
        gain: F32 = np.float32(1) - faded / np.float32(FADE_FRAMES)
        return block * gain[:, None]


class Mixer:
    """Everything that sounds at the moment."""

    def __init__(self) -> None:
        self._tracks: list[Track] = []

    @property
    def idle(self) -> bool:
        return not self._tracks

    def add(self, track: Track) -> None:
        """Its first frame goes into the next block."""
        if not track.done:
            self._tracks.append(track)

    def mix(self, n_frames: int) -> F32:
        """The next [n_frames, 2], silence where nothing plays, each sample within [-1, 1]."""
        out: F32 = np.zeros((n_frames, 2), np.float32)
        for track in self._tracks:
            block = track.take(n_frames)
            out[: len(block)] += block
        self._tracks = [track for track in self._tracks if not track.done]
        return _limit(out)


def _stereo(sound: Sound) -> F32:
    samples = sound.samples
    if samples.dtype == np.float32 and samples.ndim == 1:
        return np.broadcast_to(samples[:, None], (len(samples), 2))  # speech: the same in both ears
    if samples.dtype == np.float32 and samples.ndim == 2 and samples.shape[1] == 2:
        return samples
    raise DeviceError(
        f"sound {sound.name!r}: expected [N] or [N, 2] float32 samples, got {list(samples.shape)} {samples.dtype}"
    )


def _limit(x: F32) -> F32:
    """Bend what exceeds the knee smoothly towards 1. Memoryless, so that blocks don't matter."""
    loud = np.abs(x)
    if loud.size == 0 or loud.max() <= KNEE:
        return x
    bent = np.float32(KNEE) + np.float32(1 - KNEE) * np.tanh((loud - np.float32(KNEE)) / np.float32(1 - KNEE))
    limited: F32 = np.where(loud <= KNEE, x, np.copysign(bent, x)).astype(np.float32)
    return limited
