"""Every sound that is made, followed from its first sample to its end: when it was heard, for how long, how it ended.

Knows nothing of queues and words. Times are the running loop's in ns; events hold times since the session started.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from handrail.device.sound import Playback, Sound, Speaker
from handrail.runtime.events import AnyEvent, Fault, SoundEnded, SoundStarted
from handrail.streams.clock import NS_PER_S, now_ns

CHECK_S = 0.05  # between looks while it plays
HANDED_S = 0.005  # between looks whether the device has taken the first sample
PERIOD_NS = 10_000_000  # until the device takes the next samples, at most
HUNG_S = 1.0  # a sound that hasn't ended so long after its end: the speaker is taken for hung


class Sounds:
    """Plays on a speaker; a failed or hung one is a fault event, once for each reason."""

    def __init__(self, speaker: Speaker, emit: Callable[[AnyEvent], None], start_ns: int) -> None:
        self._speaker = speaker
        self._emit = emit
        self._start_ns = start_ns
        self._fault: str | None = None
        self.playing = 0

    def play(self, sound: Sound) -> Playback:
        """Handed to the speaker at once; ``follow`` it."""
        self.playing += 1
        return self._speaker.play(sound)

    def heard_ns(self) -> int:
        """When the first sample of a sound played now will be heard, at the latest."""
        return now_ns() + int(self._speaker.buffer_ms * 1e6) + PERIOD_NS

    async def follow(
        self,
        playback: Playback,
        sound: Sound,
        *,
        utterance_id: int | None = None,
        bearing_deg: float | None = None,
        source_device_ns: int | None = None,
        audible: Callable[[int], None] = lambda _: None,
        check: Callable[[], None] = lambda: None,
    ) -> bool:
        """Until it has ended; True when it was heard whole.

        ``audible(ns)`` is called once its first sample is known to be heard at that time, ``check()`` every 50 ms.
        """
        hung_ns = now_ns() + int((sound.duration_s + HUNG_S) * NS_PER_S)
        ended = asyncio.ensure_future(playback.wait())
        audible_ns: int | None = None
        whole = False
        try:
            while True:
                await asyncio.wait({ended}, timeout=HANDED_S if audible_ns is None else CHECK_S)
                if audible_ns is None and (audible_ns := playback.audible_ns) is not None:
                    audible(audible_ns)
                    heard_ns = audible_ns - self._start_ns
                    self._emit(
                        SoundStarted(
                            self._t_ns(), sound.name, heard_ns, sound.duration_s, utterance_id, bearing_deg,
                            source_device_ns,
                        )
                    )  # fmt: skip
                if ended.done():
                    whole = ended.result()
                    break
                if now_ns() > hung_ns:
                    self._failed("a sound didn't end in time; is the sound device there?")
                    break
                check()
        finally:
            self.playing -= 1
            if not ended.done():
                playback.cancel()
                ended.cancel()
            if audible_ns is not None:
                self._emit(SoundEnded(self._t_ns(), sound.name, utterance_id, playback.played_s, whole))
            if self._speaker.failed is not None:
                self._failed(self._speaker.failed)
        return whole

    def _failed(self, why: str) -> None:
        if why != self._fault:
            self._fault = why
            self._emit(Fault(self._t_ns(), "speaker", why))

    def _t_ns(self) -> int:
        return now_ns() - self._start_ns
