"""What the WAV file holds, and when: all in virtual time."""

import asyncio
import resource
import tracemalloc
import wave
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from handrail.device.mixer import FADE_FRAMES
from handrail.device.sound import F32, RATE_HZ, Sound
from handrail.device.wav_speaker import WavSpeaker
from handrail.streams.clock import now_ns, run_virtual
from handrail.streams.errors import OutputError

PERIOD_S, BUFFER_S = 0.010, 0.020


def tone(seconds: float, level: float = 0.25) -> Sound:
    return Sound(np.full(round(seconds * RATE_HZ), level, np.float32), "tone")


def heard(path: Path) -> F32:
    """[N, 2] in [-1, 1]."""
    with wave.open(str(path), "rb") as file:
        assert (file.getnchannels(), file.getsampwidth(), file.getframerate()) == (2, 2, RATE_HZ)
        pcm = file.readframes(file.getnframes())
    return (np.frombuffer(pcm, "<i2").reshape(-1, 2) / 32767).astype(np.float32)


def test_a_sound_lies_in_the_file_where_it_was_audible(tmp_path: Path) -> None:
    async def session() -> int:
        speaker = WavSpeaker(tmp_path / "a.wav")
        await asyncio.sleep(1.2345)
        playback = speaker.play(tone(0.5))
        assert playback.handed_ns is None and playback.audible_ns is None and playback.played_s == 0
        assert await playback.wait()
        assert playback.played_s == pytest.approx(0.5, abs=1e-4)
        audible_ns = playback.audible_ns
        assert audible_ns is not None and playback.handed_ns == 1_240_000_000
        assert now_ns() == pytest.approx(audible_ns + 500_000_000, abs=1e5)
        await speaker.close()
        return audible_ns

    audible_ns = run_virtual(session())
    assert audible_ns == 1_260_000_000
    loud = np.flatnonzero(heard(tmp_path / "a.wav")[:, 0])
    assert loud[0] == pytest.approx(audible_ns * RATE_HZ / 1e9, abs=1)
    assert len(loud) == RATE_HZ // 2 and loud[-1] - loud[0] == RATE_HZ // 2 - 1


def test_a_cancelled_sound_is_silent_within_a_period_the_buffer_and_the_fade(tmp_path: Path) -> None:
    async def session() -> None:
        speaker = WavSpeaker(tmp_path / "a.wav")
        playback = speaker.play(tone(2.0))
        await asyncio.sleep(0.7)
        playback.cancel()
        assert not await playback.wait()
        assert now_ns() <= 0.7e9 + 1e9 * (PERIOD_S + BUFFER_S + 0.005)
        assert 0.68 < playback.played_s < 0.72
        await asyncio.sleep(1)
        await speaker.close()

    run_virtual(session())
    loud = np.flatnonzero(np.abs(heard(tmp_path / "a.wav")[:, 0]) > 1e-3)
    assert 0.7 + BUFFER_S <= loud[-1] / RATE_HZ <= 0.7 + PERIOD_S + BUFFER_S + 0.005


def test_a_sound_cancelled_before_it_was_handed_over_is_not_in_the_file(tmp_path: Path) -> None:
    async def session() -> None:
        speaker = WavSpeaker(tmp_path / "a.wav")
        await asyncio.sleep(0.001)
        playback = speaker.play(tone(0.1))
        await asyncio.sleep(0.005)
        playback.cancel()
        assert not await playback.wait()
        assert playback.handed_ns is None and playback.played_s == 0
        await asyncio.sleep(0.5)
        assert playback.handed_ns is None
        await speaker.close()

    run_virtual(session())
    assert not heard(tmp_path / "a.wav").any()


def test_the_file_is_as_long_as_the_session(tmp_path: Path) -> None:
    async def session() -> None:
        speaker = WavSpeaker(tmp_path / "a.wav")
        await asyncio.sleep(7.0)
        await speaker.close()

    run_virtual(session())
    assert len(heard(tmp_path / "a.wav")) / RATE_HZ == pytest.approx(7.0 + PERIOD_S + BUFFER_S, abs=1e-3)


@settings(deadline=None, max_examples=40)
@given(
    plan=st.lists(
        st.tuples(st.integers(0, 400_000), st.integers(0, 3000), st.none() | st.integers(0, 200_000)), max_size=8
    )
)
def test_the_file_holds_each_sound_from_its_audible_time_to_its_end_or_fade(
    plan: list[tuple[int, int, int | None]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Each entry: microseconds to wait, frames to play, microseconds after which it is cancelled."""
    path = tmp_path_factory.mktemp("wav") / "a.wav"
    parts: list[tuple[int, int]] = []  # first frame in the file, frames at full level

    async def one(speaker: WavSpeaker, frames: int, cancel_us: int | None) -> None:
        playback = speaker.play(Sound(np.full(frames, 0.1, np.float32), "x"))
        if cancel_us is not None:
            await asyncio.sleep(cancel_us / 1e6)
            playback.cancel()
        whole = await playback.wait()
        assert whole or cancel_us is not None
        if playback.audible_ns is not None:
            full = playback.track.end - (0 if whole else min(FADE_FRAMES, playback.track.end))
            parts.append((playback.audible_ns * RATE_HZ // 1_000_000_000, full))

    async def session() -> None:
        speaker = WavSpeaker(path)
        async with asyncio.TaskGroup() as group:
            for wait_us, frames, cancel_us in plan:
                await asyncio.sleep(wait_us / 1e6)
                group.create_task(one(speaker, frames, cancel_us))
        await asyncio.sleep(0.1)
        await speaker.close()

    run_virtual(session())
    out = heard(path)[:, 0]
    least = np.zeros(len(out))
    for start, full in parts:
        least[start : start + full] += 0.1
    slack = FADE_FRAMES + 2  # what fades lies between nothing and full level
    most = np.zeros(len(out))
    for start, full in parts:
        most[start : start + full + slack] += 0.1
    assert (out >= np.minimum(least, 0.8) - 1e-3).all()
    assert (out <= most + 1e-3).all()


def test_the_same_calls_give_the_same_bytes(tmp_path: Path) -> None:
    async def session(path: Path) -> None:
        speaker = WavSpeaker(path)
        for k in range(5):
            playback = speaker.play(tone(0.2 + k / 10))
            await asyncio.sleep(0.123)
            if k % 2:
                playback.cancel()
        await asyncio.sleep(1)
        await speaker.close()

    run_virtual(session(tmp_path / "a.wav"))
    run_virtual(session(tmp_path / "b.wav"))
    assert (tmp_path / "a.wav").read_bytes() == (tmp_path / "b.wav").read_bytes()


def test_the_file_can_be_read_while_the_session_goes_on(tmp_path: Path) -> None:
    async def session() -> None:
        speaker = WavSpeaker(tmp_path / "a.wav")
        speaker.play(tone(30.0))
        for second in range(2, 8):
            await asyncio.sleep(1.0)
            assert len(heard(tmp_path / "a.wav")) >= (second - 2) * RATE_HZ
        await speaker.close()

    run_virtual(session())


def test_a_speaker_with_nothing_to_play_wakes_nobody(tmp_path: Path) -> None:
    async def session() -> None:
        speaker = WavSpeaker(tmp_path / "a.wav")
        await speaker.play(tone(0.1)).wait()
        try:
            await asyncio.Event().wait()
        finally:
            await speaker.close()

    with pytest.raises(RuntimeError, match="nothing is due"):
        run_virtual(session())


def test_ten_minutes_cost_no_memory(tmp_path: Path) -> None:
    async def session() -> int:
        speaker = WavSpeaker(tmp_path / "a.wav")
        beep = tone(0.2)
        tracemalloc.start()
        for _ in range(60):
            await speaker.play(beep).wait()
            await asyncio.sleep(10)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        await speaker.close()
        return peak

    assert run_virtual(session()) < 3_000_000


def test_a_file_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    async def session(path: Path) -> None:
        WavSpeaker(path)

    with pytest.raises(OutputError, match="No such file"):
        run_virtual(session(tmp_path / "missing" / "a.wav"))
    with pytest.raises(OutputError, match="No space left"):
        run_virtual(session(Path("/dev/full")))


def test_a_disk_that_fills_up_fails_the_speaker_and_hangs_nobody(tmp_path: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)

    async def session() -> None:
        speaker = WavSpeaker(tmp_path / "a.wav")
        playback = speaker.play(tone(10.0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, limits[1]))
        try:
            assert not await playback.wait()
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert speaker.failed is not None and "File too large" in speaker.failed
        assert 1.5 < playback.played_s < 4
        assert not await speaker.play(tone(1.0)).wait()
        await speaker.close()

    run_virtual(session())
    assert len(heard(tmp_path / "a.wav")) > RATE_HZ


def test_closing_ends_what_plays(tmp_path: Path) -> None:
    async def session() -> None:
        speaker = WavSpeaker(tmp_path / "a.wav")
        playback = speaker.play(tone(5.0))
        await asyncio.sleep(1)
        await speaker.close()
        assert not await playback.wait()
        assert 0.95 < playback.played_s < 1.0
        playback.cancel()
        assert not await speaker.play(tone(1.0)).wait()
        await speaker.close()

    run_virtual(session())


def test_an_empty_sound_ends_at_once(tmp_path: Path) -> None:
    async def session() -> None:
        speaker = WavSpeaker(tmp_path / "a.wav")
        assert await speaker.play(tone(0.0)).wait()
        assert now_ns() == 0
        await speaker.close()

    run_virtual(session())
