"""``Pyttsx3Voice``: the operating system's voices, through pyttsx3 in a child process per utterance.

Slower than espeak-ng (a process start a phrase), so the notices that matter are rendered beforehand (``PhraseCache``).
On Linux pyttsx3 drives an espeak-ng library; it is given the one of espeakng-loader, whose data matches, when that is
installed, else it needs the system's.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import subprocess
import sys
import tempfile
import wave
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from handrail.device.sound import F32, RATE_HZ, Sound
from handrail.device.spoken import MOST_S, plain_text, rate_within, speech
from handrail.streams.clock import standing_still
from handrail.streams.errors import DeviceError, MissingDependencyError

HUNG_S = 5.0  # a phrase takes about 0.2 s, most of it the start of Python


class Pyttsx3Voice:
    """A ``Voice``. Raises MissingDependencyError when pyttsx3 isn't installed."""

    name = "pyttsx3"

    def __init__(self) -> None:
        if importlib.util.find_spec("pyttsx3") is None:
            raise MissingDependencyError("pyttsx3 isn't installed; run: pip install 'handrail[pyttsx3]'")
        self._closed = False
        self._thread = ThreadPoolExecutor(1, "pyttsx3")

    async def render(self, text: str, rate_wpm: int) -> Sound:
        """[N] float32. ``rate_wpm`` is held to 80..450. Raises DeviceError, MissingDependencyError."""
        if self._closed:
            raise DeviceError("pyttsx3: asked for a phrase after close()")
        words, rate = plain_text(text), rate_within(rate_wpm)
        with standing_still():
            samples = await asyncio.get_running_loop().run_in_executor(self._thread, _render, words, rate)
        return speech(samples)

    async def close(self) -> None:
        self._closed = True
        self._thread.shutdown()


def _render(text: str, rate_wpm: int) -> F32:
    try:
        with tempfile.TemporaryDirectory(prefix="handrail-") as folder:
            path = Path(folder) / "speech.wav"
            done = subprocess.run(  # noqa: S603  our own module; the text goes in on stdin
                [sys.executable, "-P", "-m", "handrail.device.pyttsx3_child", str(path), str(rate_wpm)],
                input=text.encode(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                env=_environment(), timeout=HUNG_S,
            )  # fmt: skip
            if done.returncode != 0:
                raise _failure(done.stderr.decode(errors="replace"))
            return _read_wav(path)
    except subprocess.TimeoutExpired as e:
        raise DeviceError(f"pyttsx3: no answer within {HUNG_S:g} s, killed; it starts anew with each phrase") from e
    except OSError as e:
        raise DeviceError(f"pyttsx3: can't make its file ({e}); free some space or choose the espeak voice") from e


def _environment() -> dict[str, str]:
    """Ours, with espeakng-loader's library and data in front."""
    loader = importlib.util.find_spec("espeakng_loader")
    if loader is None or loader.origin is None or not sys.platform.startswith("linux"):
        return dict(os.environ)
    folder = Path(loader.origin).parent
    return {**os.environ, "LD_LIBRARY_PATH": str(folder), "ESPEAK_DATA_PATH": str(folder)}


def _failure(stderr: str) -> DeviceError | MissingDependencyError:
    if "do not have eSpeak" in stderr:
        return MissingDependencyError("pyttsx3 finds no espeak-ng; run: pip install 'handrail[speech]'")
    last = (stderr.strip().splitlines() or ["no reason given"])[-1]
    return DeviceError(f"pyttsx3: {last}")


def _read_wav(path: Path) -> F32:
    """16-bit mono or stereo at any rate -> [N] at ``RATE_HZ``."""
    try:
        with wave.open(str(path), "rb") as file:
            channels, width, rate_hz = file.getnchannels(), file.getsampwidth(), file.getframerate()
            if width != 2 or channels not in (1, 2) or not 8_000 <= rate_hz <= 192_000:
                raise DeviceError(f"pyttsx3: expected 16-bit mono or stereo, got {8 * width} bit, {channels} channels")
            pcm = file.readframes(int(MOST_S * rate_hz))
    except (OSError, EOFError, wave.Error) as e:
        raise DeviceError(f"pyttsx3: made no WAV file that can be read ({e}); try the espeak voice") from e
    samples = np.frombuffer(pcm, "<i2").reshape(-1, channels).mean(axis=1).astype(np.float32) / np.float32(32768)
    return resampled(samples, rate_hz)


def resampled(samples: F32, rate_hz: int) -> F32:
    """[N] at ``rate_hz`` -> [M] at ``RATE_HZ``, by cutting or padding its spectrum (exact for what both rates hold)."""
    if rate_hz == RATE_HZ or not len(samples):
        return samples
    n_out = max(1, round(len(samples) * RATE_HZ / rate_hz))
    spectrum = np.fft.rfft(samples)
    return (np.fft.irfft(spectrum[: n_out // 2 + 1], n_out) * (n_out / len(samples))).astype(np.float32)
