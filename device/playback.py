"""The ``Playback`` that both speakers hand out: a mixer track with the times at which it was handed over and heard.

Belongs to the loop's thread; a speaker with a thread of its own comes through ``call_soon_threadsafe``. Times in ns on
the running loop's clock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from handrail.device.mixer import Track
from handrail.device.sound import RATE_HZ
from handrail.streams.clock import NS_PER_S, now_ns


def frames_ns(frames: int) -> int:
    """How long so many frames last."""
    return frames * NS_PER_S // RATE_HZ


class TrackPlayback:
    """One sound on its way out. ``cancelled`` tells the speaker that the track was told to fade out."""

    def __init__(self, track: Track, cancelled: Callable[[TrackPlayback], None]) -> None:
        self.track = track
        self.whole: bool | None = None  # how it ended; None while it goes on
        self.buffer_ns = 0
        self._handed_ns: int | None = None
        self._cancelled = cancelled
        self._heard_ns: int | None = None  # set when it ended
        self._ended = asyncio.Event()

    def handed_over(self, at_ns: int, buffer_ns: int) -> None:
        """The speaker's word: when the first sample goes (or went) to the device, and how long it stays there."""
        self._handed_ns, self.buffer_ns = at_ns, buffer_ns

    @property
    def handed_ns(self) -> int | None:
        """See ``Playback``: None before the first sample was handed over, and for good if it never is."""
        at = self._handed_ns
        return at if at is not None and self.track.end > 0 and at <= now_ns() else None

    @property
    def audible_ns(self) -> int | None:
        handed = self.handed_ns
        return None if handed is None else handed + self.buffer_ns

    @property
    def silent_ns(self) -> int:
        """When its last sample will have been heard, as things stand. Only once ``handed_over`` was called."""
        assert self._handed_ns is not None
        return self._handed_ns + self.buffer_ns + frames_ns(self.track.end)

    @property
    def played_s(self) -> float:
        return (self._heard_by(now_ns()) if self._heard_ns is None else self._heard_ns) / NS_PER_S

    def cancel(self) -> None:
        if self.whole is None:
            self._cancelled(self)

    async def wait(self) -> bool:
        await self._ended.wait()
        return bool(self.whole)

    def finish(self, whole: bool) -> None:
        """The speaker's last word; later ones change nothing."""
        if self.whole is None:
            self.whole = whole
            self._heard_ns = frames_ns(self.track.end) if whole else self._heard_by(now_ns())
            self._ended.set()

    def _heard_by(self, at_ns: int) -> int:
        """Nanoseconds of it that were heard by then."""
        audible = self.audible_ns
        if audible is None:
            return 0
        return min(max(0, at_ns - audible), frames_ns(self.track.end))
