"""The real espeak-ng in its child process, in virtual and in real time."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from handrail.device.espeak import HUNG_S, START_S, EspeakVoice
from handrail.device.phrase_cache import MOST_SECONDS, PhraseCache
from handrail.device.sound import RATE_HZ, Sound
from handrail.streams.clock import now_ns, run_virtual
from handrail.streams.errors import DeviceError

if find_spec("espeakng_loader") is None:
    pytest.skip("needs espeakng-loader: pip install 'handrail[speech]'", allow_module_level=True)


@asynccontextmanager
async def espeak() -> AsyncIterator[EspeakVoice]:
    voice = EspeakVoice()
    try:
        yield voice
    finally:
        await voice.close()


def loaded_in(pid: int) -> bool:
    return "espeak" in Path(f"/proc/{pid}/maps").read_text()


def kill_and_wait_until_dead(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):  # the loop's child watcher was quicker
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)


def gone(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists()


def test_a_phrase_has_energy_begins_at_once_and_is_mono() -> None:
    async def main() -> Sound:
        async with espeak() as voice:
            return await voice.render("Stop. Step down.", 240)

    sound = run_virtual(main())
    assert sound.samples.ndim == 1 and sound.samples.dtype == np.float32
    assert 0.6 < sound.duration_s < 1.3
    assert 0.05 < np.sqrt((sound.samples**2).mean()) < np.abs(sound.samples).max() <= 0.64
    assert np.flatnonzero(np.abs(sound.samples) > 0.003)[0] <= 0.005 * RATE_HZ
    assert np.flatnonzero(np.abs(sound.samples) > 0.003)[-1] >= len(sound.samples) - 0.02 * RATE_HZ


def test_the_same_text_gives_the_same_samples_whatever_was_said_before_and_in_any_process() -> None:
    async def main() -> tuple[list[bytes], bytes]:
        async with espeak() as voice, espeak() as another:
            same = []
            for k, before in enumerate(("Head height, right.", "I can't see.", "Obstacle, three metres.")):
                await voice.render(before, 150 + 60 * k)
                same.append((await voice.render("Stop. Step down.", 240)).samples.tobytes())
            return same, (await another.render("Stop. Step down.", 240)).samples.tobytes()

    same, other = run_virtual(main())
    assert set(same) == {other}


def test_faster_rates_are_shorter_up_to_450_words_a_minute() -> None:
    async def main() -> list[float]:
        async with espeak() as voice:
            text = "Obstacle at head height, ten o'clock, two metres."
            return [(await voice.render(text, rate)).duration_s for rate in (120, 175, 240, 300, 450)]

    lengths = run_virtual(main())
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[-1] < lengths[1] / 2


def test_markup_and_commands_are_not_obeyed() -> None:
    async def main() -> list[float]:
        async with espeak() as voice:
            texts = (
                "Stop now.",
                "<speak><break time='20s'/>Stop now.</speak>",
                "Stop \x0120S now.",
                "<audio src='/etc/passwd'/>Stop now.",
                "&lt;break time='20s'/&gt; Stop now.",
            )
            return [(await voice.render(text, 240)).duration_s for text in texts]

    plain, *others = run_virtual(main())
    assert all(plain <= length < plain + 5 for length in others)


def test_virtual_time_stands_still_while_a_phrase_is_rendered() -> None:
    async def main() -> None:
        async with espeak() as voice:
            await asyncio.sleep(1)
            before = now_ns()
            async with asyncio.timeout(0.001):
                await voice.render("Obstacle, three metres.", 240)
            assert now_ns() == before

    run_virtual(main())


def test_phrases_asked_for_together_each_get_their_own_sound() -> None:
    async def main() -> None:
        texts = [f"Obstacle, {n} metres." for n in range(1, 12)]
        async with espeak() as voice:
            together = await asyncio.gather(*(voice.render(t, 300) for t in texts))
            for text, sound in zip(texts, together, strict=True):
                np.testing.assert_array_equal(sound.samples, (await voice.render(text, 300)).samples)

    asyncio.run(main())


def test_a_child_that_hangs_is_killed_and_the_next_phrase_starts_another() -> None:
    async def main() -> None:
        async with espeak() as voice:
            first = await voice.render("I can't see.", 240)
            hung = voice.pid
            assert hung is not None
            os.kill(hung, signal.SIGSTOP)
            with pytest.raises(DeviceError, match=r"gave no answer in 1\.5 s"):
                await voice.render("I can't see.", 240)
            assert gone(hung) and now_ns() == 0
            np.testing.assert_array_equal((await voice.render("I can't see.", 240)).samples, first.samples)
            assert voice.pid not in (None, hung)

    run_virtual(main())


def test_a_child_killed_while_it_works_is_an_error_and_one_killed_before_is_not() -> None:
    async def main() -> None:
        async with espeak() as voice:
            await voice.render("Stop.", 240)
            assert voice.pid is not None
            kill_and_wait_until_dead(voice.pid)
            await voice.render("Stop.", 240)

            pid = voice.pid
            os.kill(pid, signal.SIGSTOP)  # so that it surely is at work when it dies
            killer = threading.Timer(0.2, os.kill, (pid, signal.SIGKILL))
            killer.start()
            with pytest.raises(DeviceError, match="starts again with the next phrase"):
                await voice.render("Stop.", 240)
            killer.join()
            await voice.render("Stop.", 240)

    run_virtual(main())


def test_the_child_that_follows_one_found_dead_gets_the_time_that_a_start_takes() -> None:
    async def main() -> list[float | None]:
        limits: list[float | None] = []
        async with espeak() as voice:
            request = voice._child.request

            async def noted(message: bytes, timeout_s: float | None = None) -> bytes:
                limits.append(timeout_s)
                return await request(message, timeout_s)

            voice._child.request = noted  # type: ignore[method-assign]
            for _ in range(2):
                await voice.render("Stop.", 240)
            assert voice.pid is not None
            kill_and_wait_until_dead(voice.pid)
            await voice.render("Stop.", 240)
        return limits

    assert run_virtual(main()) == [START_S, HUNG_S, START_S]


def test_the_library_is_never_loaded_in_this_process_and_closing_leaves_no_child() -> None:
    async def main() -> int:
        async with espeak() as voice:
            await voice.render("Stop.", 240)
            assert voice.pid is not None
            assert loaded_in(voice.pid)
            return voice.pid

    assert gone(asyncio.run(main()))
    assert "espeakng_loader" not in sys.modules
    assert not loaded_in(os.getpid())


@pytest.mark.parametrize("garbage", [b"", b"\x01", b"\xff\xff\xff\xff" + b"x" * 100])
def test_a_child_that_is_sent_nonsense_ends_quietly(garbage: bytes) -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-m", "handrail.device.espeak_child"], input=garbage, capture_output=True, timeout=30
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_a_child_ends_when_its_parent_is_gone() -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", (
            "import subprocess, sys, time\n"
            "child = subprocess.Popen([sys.executable, '-P', '-m', 'handrail.device.espeak_child'],"
            " stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)\n"
            "print(child.pid, flush=True); time.sleep(60)"
        )],
        stdout=subprocess.PIPE,
    )  # fmt: skip
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    parent.stdout.close()
    deadline = time.monotonic() + 20
    while not gone(child) and "\nState:\tZ" not in Path(f"/proc/{child}/status").read_text():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_phrase_rendered_beforehand_comes_when_the_voice_is_gone() -> None:
    async def main() -> None:
        voice = PhraseCache(EspeakVoice())
        await voice.prerender(["I can't see.", "Can't judge ahead."], 240)
        await voice.close()
        assert (await voice.render("I can't see.", 240)).duration_s > 0.3
        with pytest.raises(DeviceError, match="after close"):
            await voice.render("Never said before.", 240)

    run_virtual(main())


def test_the_cache_keeps_so_many_seconds_of_phrases_and_the_notices_for_good() -> None:
    class Counting:
        name = "counting"
        asked: list[str]

        def __init__(self) -> None:
            self.asked = []

        async def render(self, text: str, rate_wpm: int) -> Sound:
            self.asked.append(text)
            return Sound(np.ones(10 * RATE_HZ, np.float32), text)

        async def close(self) -> None:
            pass

    async def main() -> None:
        engine = Counting()
        voice = PhraseCache(engine)
        await voice.prerender(["notice"], 240)
        kept = int(MOST_SECONDS) // 10
        for n in range(kept + 10):
            await voice.render(f"phrase {n}", 240)
            await voice.render("often", 240)
        asked = len(engine.asked)
        assert (await voice.render("notice", 240)).name == "notice"
        await voice.render("often", 240)
        await voice.render(f"phrase {kept + 9}", 240)
        assert len(engine.asked) == asked
        await voice.render("phrase 0", 240)
        await voice.render("notice", 300)
        assert engine.asked[asked:] == ["phrase 0", "notice"]

    run_virtual(main())
