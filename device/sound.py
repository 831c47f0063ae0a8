"""What voices make and speakers play, and the two seams: ``Voice`` (text in, PCM out), ``Speaker`` (PCM in, progress
out).

One rate and layout everywhere: 22,050 Hz (what espeak-ng renders), float32 in [-1, 1], mono for speech and
[N, 2] stereo for anything placed in space. Knows nothing of what is said or why.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

RATE_HZ = 22_050
F32 = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Sound:
    samples: F32  # [N] mono or [N, 2] stereo, 22,050 Hz
    name: str  # for the log: "speech", "earcon.obstacle", ...

    @property
    def duration_s(self) -> float:
        return len(self.samples) / RATE_HZ


class Voice(Protocol):
    """Text to speech. ``render`` raises DeviceError when the engine failed, hung or died (it is started anew)."""

    name: str

    async def render(self, text: str, rate_wpm: int) -> Sound: ...

    async def close(self) -> None: ...


class Playback(Protocol):
    """One sound on its way out. Times are the running loop's, in ns."""

    @property
    def handed_ns(self) -> int | None:
        """When the first sample was handed to the device; None before."""
        ...

    @property
    def audible_ns(self) -> int | None:
        """``handed_ns`` plus the device's reported buffer: when the first sample is heard."""
        ...

    @property
    def played_s(self) -> float:
        """How much of it has been heard by now."""
        ...

    def cancel(self) -> None:
        """Fade out within 5 ms of sound; what lies in the device's buffer still plays."""
        ...

    async def wait(self) -> bool:
        """Until it has been heard to the end (True), or was cancelled or the device failed (False). A cancelled one is
        waited for until it is silent: the device's buffer and the fade."""
        ...


class Speaker(Protocol):
    """Mixes whatever is playing. A failed device makes playbacks end with False and ``failed`` say why."""

    name: str
    buffer_ms: float  # reported by the device

    @property
    def failed(self) -> str | None: ...

    def play(self, sound: Sound) -> Playback: ...

    async def close(self) -> None: ...
