"""Fakes of the two seams in ``sound``, for replays and tests that need no real sound. Times are as with real ones.

``SilentVoice`` is silent for as long as espeak-ng would speak; ``PacedSpeaker`` plays into nothing, on the loop's time.
"""

from __future__ import annotations

import asyncio

import numpy as np

from handrail.device.sound import RATE_HZ, Sound
from handrail.streams.clock import NS_PER_S, now_ns
from handrail.streams.errors import DeviceError


class SilentVoice:
    """``broken`` makes it fail from now on."""

    name = "silent"

    def __init__(self) -> None:
        self.broken = False

    async def render(self, text: str, rate_wpm: int) -> Sound:
        if self.broken:
            raise DeviceError("the silent voice was told to fail")
        seconds = (0.1 + 0.047 * len(text)) * 240 / rate_wpm
        return Sound(np.zeros(int(seconds * RATE_HZ), np.float32), "speech")

    async def close(self) -> None:
        pass


class PacedPlayback:
    def __init__(self, sound: Sound, speaker: PacedSpeaker) -> None:
        self.sound = sound
        self._start_ns = now_ns()
        self._buffer_ns = int(speaker.buffer_ms * 1e6)
        self._over = asyncio.Event()
        self._heard_s: float | None = None  # once it has ended
        self._timer = asyncio.get_running_loop().call_later(
            sound.duration_s + speaker.buffer_ms / 1e3, self._end, sound.duration_s
        )
        if speaker.failed is not None:
            self._end(0.0)

    @property
    def handed_ns(self) -> int | None:
        return self._start_ns

    @property
    def audible_ns(self) -> int | None:
        return self._start_ns + self._buffer_ns

    @property
    def played_s(self) -> float:
        if self._heard_s is not None:
            return self._heard_s
        return max(0.0, (now_ns() - self._start_ns - self._buffer_ns) / NS_PER_S)

    def cancel(self) -> None:
        if self._heard_s is None:
            self._end(self.played_s)

    async def wait(self) -> bool:
        await self._over.wait()
        return self._heard_s == self.sound.duration_s

    def _end(self, heard_s: float) -> None:
        self._timer.cancel()
        self._heard_s = heard_s
        self._over.set()


class PacedSpeaker:
    """Set ``failed`` to make it refuse from now on."""

    name = "paced"

    def __init__(self, buffer_ms: float = 20.0) -> None:
        self.buffer_ms = buffer_ms
        self.failed: str | None = None

    def play(self, sound: Sound) -> PacedPlayback:
        return PacedPlayback(sound, self)

    async def close(self) -> None:
        pass
