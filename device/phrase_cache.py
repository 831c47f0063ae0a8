"""``PhraseCache``: a voice in front of a voice, which keeps what was rendered.

Notices that must be there when all else fails ("I can't see.") are rendered beforehand and never thrown out; of the
rest the least recently used go first.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from handrail.device.sound import Sound, Voice

MOST_SECONDS = 60.0  # of sound: some 5 MB; answers bring clauses that are never said again


class PhraseCache:
    """A ``Voice``. Same phrase, same ``Sound``: its samples are read-only."""

    def __init__(self, voice: Voice) -> None:
        self.name = voice.name
        self._voice = voice
        self._kept: dict[tuple[str, int], Sound] = {}
        self._recent: OrderedDict[tuple[str, int], Sound] = OrderedDict()
        self._seconds = 0.0  # of the recent ones

    async def prerender(self, texts: Iterable[str], rate_wpm: int) -> None:
        """Render and keep for good. Raises DeviceError at the first that can't be rendered."""
        for text in texts:
            self._kept[text, rate_wpm] = await self.render(text, rate_wpm)

    async def render(self, text: str, rate_wpm: int) -> Sound:
        """As the voice behind it; a phrase that is kept comes even when that voice is gone."""
        key = (text, rate_wpm)
        if key in self._kept:
            return self._kept[key]
        if key in self._recent:
            self._recent.move_to_end(key)
            return self._recent[key]
        sound = await self._voice.render(text, rate_wpm)
        if key not in self._recent:  # rendered twice at once, it is kept once
            self._seconds += sound.duration_s
        self._recent[key] = sound
        while self._seconds > MOST_SECONDS and len(self._recent) > 1:
            self._seconds -= self._recent.popitem(last=False)[1].duration_s
        return sound

    async def close(self) -> None:
        await self._voice.close()
