"""What every voice does alike: text is reduced to plain words before an engine sees it, PCM becomes a ``Sound``.

Text is data. Whatever an engine could take for markup or a command (SSML tags, ``[[...]]`` phonemes, control and format
characters) is taken out here, whoever wrote it. Knows no engine. Units: frames at ``RATE_HZ``.
"""

from __future__ import annotations

import unicodedata

import numpy as np

from handrail.device.sound import F32, RATE_HZ, Sound
from handrail.streams.errors import DeviceError

MOST_CHARS = 500  # about 35 s at 240 words a minute; anything longer is a fault upstream
MOST_S = 60.0  # of one utterance
SLOWEST_WPM, FASTEST_WPM = 80, 450  # what espeak-ng accepts
SPEECH_GAIN = 0.64  # leaves 0.36 to the loudest earcon (see ``earcons``): together they never clip

_MARKUP = str.maketrans(dict.fromkeys("<>[]{}|\\`", " "))
_AUDIBLE = 0.003  # -50 dB
_LEAD_FRAMES = RATE_HZ * 3 // 1000  # kept before the first audible sample: 3 ms
_TAIL_FRAMES = RATE_HZ * 10 // 1000


def plain_text(text: str) -> str:
    """``text`` without anything but words and punctuation, cut at a word to ``MOST_CHARS``.

    Raises DeviceError when no letter or digit is left: there would be silence where words were meant.
    """
    kept = "".join(" " if unicodedata.category(c)[0] in "CZ" else c for c in text[: 4 * MOST_CHARS].translate(_MARKUP))
    words = " ".join(kept.split())
    if len(words) > MOST_CHARS:
        words = words[: MOST_CHARS + 1].rsplit(" ", 1)[0][:MOST_CHARS]
    if not any(c.isalnum() for c in words):
        raise DeviceError(f"expected words to say, got {text[:40]!r}: nothing in it can be spoken")
    return words


def rate_within(rate_wpm: int) -> int:
    """The nearest rate that engines can speak: too fast is better than mute."""
    return min(max(rate_wpm, SLOWEST_WPM), FASTEST_WPM)


def speech(samples: F32) -> Sound:
    """[N] in [-1, 1] as an engine made it -> trimmed, at the level of speech. Raises DeviceError when it is silent."""
    audible = np.flatnonzero(np.abs(samples) > _AUDIBLE)
    if audible.size == 0:
        raise DeviceError("the voice made no sound for a text with words in it; check its installation")
    start = max(0, int(audible[0]) - _LEAD_FRAMES)
    trimmed: F32 = samples[start : int(audible[-1]) + 1 + _TAIL_FRAMES] * np.float32(SPEECH_GAIN)
    trimmed.flags.writeable = False  # cached phrases are shared
    return Sound(trimmed, "speech")
