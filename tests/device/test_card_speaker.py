"""The sound card's speaker on miniaudio's null device: its real thread, real time, no card."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import numpy as np
import pytest

from handrail.device.card_speaker import CardSpeaker
from handrail.device.sound import RATE_HZ, Sound
from handrail.streams.clock import now_ns, run_virtual
from handrail.streams.errors import DeviceError

pytest.importorskip("miniaudio", reason="needs miniaudio: pip install 'handrail[speech]'")


def tone(seconds: float) -> Sound:
    return Sound(np.full(round(seconds * RATE_HZ), 0.25, np.float32), "tone")


@asynccontextmanager
async def null_card() -> AsyncIterator[CardSpeaker]:
    speaker = CardSpeaker("null")
    try:
        yield speaker
    finally:
        await speaker.close()


def test_a_sound_is_handed_over_heard_after_the_buffer_and_ends_whole() -> None:
    async def main() -> None:
        async with null_card() as speaker:
            asked_ns = now_ns()
            playback = speaker.play(tone(0.1))
            assert await playback.wait()
            assert playback.handed_ns is not None and playback.audible_ns is not None
            assert asked_ns <= playback.handed_ns
            assert playback.audible_ns == playback.handed_ns + round(speaker.buffer_ms * 1e6)
            assert now_ns() >= playback.audible_ns + 95_000_000
            assert playback.played_s == pytest.approx(0.1, abs=1e-4)
            assert speaker.failed is None and speaker.buffer_ms >= 20 and "Null" in speaker.name

    asyncio.run(main())


def test_a_cancelled_sound_ends_early_and_says_how_much_was_heard() -> None:
    async def main() -> None:
        async with null_card() as speaker:
            playback = speaker.play(tone(30.0))
            for _ in range(2000):  # a busy machine may start the device's thread late
                if playback.played_s >= 0.05:
                    break
                await asyncio.sleep(0.005)
            playback.cancel()
            assert not await playback.wait()
            assert 0.05 <= playback.played_s < 25
            assert speaker.failed is None

    asyncio.run(main())


def test_sounds_played_together_all_end() -> None:
    async def main() -> None:
        async with null_card() as speaker:
            playbacks = [speaker.play(tone(0.02 * k)) for k in range(10)]
            playbacks[9].cancel()
            ends = await asyncio.gather(*(p.wait() for p in playbacks))
            assert ends == [True] * 9 + [False]

    asyncio.run(main())


def test_a_device_that_stops_asking_fails_and_hangs_nobody() -> None:
    async def main() -> None:
        async with null_card() as speaker:
            playback = speaker.play(tone(60.0))
            await asyncio.sleep(0.05)
            speaker._device.stop()
            assert not await playback.wait()
            assert speaker.failed is not None and "took no sound for 500 ms" in speaker.failed
            assert not await speaker.play(tone(1.0)).wait()

    asyncio.run(main())


def test_a_fault_while_mixing_fails_the_speaker(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with null_card() as speaker:
            playback = speaker.play(tone(60.0))
            monkeypatch.setattr(speaker._mixer, "mix", lambda n: 1 / 0)
            assert not await playback.wait()
            assert speaker.failed is not None and "mixing failed (ZeroDivisionError" in speaker.failed

    asyncio.run(main())


def test_closing_ends_what_plays_and_what_is_played_later() -> None:
    async def main() -> None:
        speaker = CardSpeaker("null")
        playback = speaker.play(tone(60.0))
        await speaker.close()
        assert not await playback.wait()
        assert not await speaker.play(tone(0.1)).wait()
        assert speaker.failed is None
        await speaker.close()

    asyncio.run(main())


def test_a_speaker_that_nobody_closed_does_not_keep_the_process_from_ending() -> None:
    program = """
import asyncio, numpy as np
from handrail.device.card_speaker import CardSpeaker
from handrail.device.sound import Sound

async def main():
    speaker = CardSpeaker("null")
    speaker.play(Sound(np.ones(100_000, np.float32), "x"))
    await asyncio.sleep(0.05)

asyncio.run(main())
"""
    assert subprocess.run([sys.executable, "-c", program], timeout=30).returncode == 0


def test_a_card_is_refused_in_virtual_time() -> None:
    async def main() -> None:
        CardSpeaker("null")

    with pytest.raises(DeviceError, match="virtual time"):
        run_virtual(main())


def test_a_missing_card_is_one_line_and_nothing_else(capfd: pytest.CaptureFixture[str]) -> None:
    async def main() -> None:
        await CardSpeaker("card").close()

    try:
        asyncio.run(main())
    except DeviceError as e:
        assert "choose the wav or null speaker" in str(e) and "\n" not in str(e)
        assert capfd.readouterr().err == ""
    else:
        pytest.skip("this machine has a sound card")
