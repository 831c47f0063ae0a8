"""Measures the sound path in real time: rendering a phrase, and from a barge-in to silence on the null card.

``python -m handrail.benchmarks.sound``. Not measured: what a real card's buffer adds beyond what it reports.
"""

from __future__ import annotations

import asyncio
import random
import time

import numpy as np

from handrail.device.card_speaker import CardSpeaker
from handrail.device.espeak import EspeakVoice
from handrail.device.sound import RATE_HZ, Sound
from handrail.streams.clock import now_ns

Percentiles = dict[str, float]  # n, p50, p95, p99, max; milliseconds


async def barge_in_ms(n: int, seed: int = 0) -> Percentiles:
    """From ``cancel()`` to the last sample of the fade heard, buffer included, at random phases of the period."""
    phase = random.Random(seed)  # noqa: S311
    speaker = CardSpeaker("null")
    sound = Sound(np.full(60 * RATE_HZ, 0.1, np.float32), "speech")
    took = []
    for _ in range(n):
        playback = speaker.play(sound)
        await asyncio.sleep(0.05 + phase.uniform(0, 0.01))
        start_ns = now_ns()
        playback.cancel()
        await playback.wait()
        took.append((now_ns() - start_ns) / 1e6)
    await speaker.close()
    return percentiles(took)


async def first_handed_ms(n: int, seed: int = 0) -> Percentiles:
    """From ``play()`` to the first sample handed to the null card plus its buffer."""
    phase = random.Random(seed)  # noqa: S311
    speaker = CardSpeaker("null")
    sound = Sound(np.full(RATE_HZ // 50, 0.1, np.float32), "earcon")
    took = []
    for _ in range(n):
        await asyncio.sleep(phase.uniform(0, 0.01))
        start_ns = now_ns()
        playback = speaker.play(sound)
        await playback.wait()
        assert playback.audible_ns is not None
        took.append((playback.audible_ns - start_ns) / 1e6)
    await speaker.close()
    return percentiles(took)


async def render_ms(text: str, rate_wpm: int, n: int) -> Percentiles:
    """A warm espeak-ng, cache left out."""
    voice = EspeakVoice()
    await voice.render(text, rate_wpm)
    took = []
    for _ in range(n):
        start = time.perf_counter()
        await voice.render(text, rate_wpm)
        took.append((time.perf_counter() - start) * 1000)
    await voice.close()
    return percentiles(took)


def percentiles(took_ms: list[float]) -> Percentiles:
    p50, p95, p99 = np.percentile(took_ms, [50, 95, 99])
    return {"n": len(took_ms), "p50": float(p50), "p95": float(p95), "p99": float(p99), "max": max(took_ms)}


def main() -> None:
    for name, figures in (
        ("barge-in to silence", asyncio.run(barge_in_ms(300))),
        ("play to audible", asyncio.run(first_handed_ms(300))),
        ("render 'Stop. Step down.'", asyncio.run(render_ms("Stop. Step down.", 240, 300))),
    ):
        print(name, {key: round(value, 2) for key, value in figures.items()}, "ms")  # noqa: T201


if __name__ == "__main__":
    main()
