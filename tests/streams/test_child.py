"""A child process may die, hang or babble; the parent gets one error and the next request works."""

from __future__ import annotations

import asyncio
import textwrap
from pathlib import Path

import pytest

from handrail.streams.child import Child, ChildDied
from handrail.streams.clock import now_ns, run_virtual

SCRIPT = """
import os, time
from handrail.streams.child import serve

def answer(message):
    match message:
        case b"die": os._exit(7)
        case b"hang": time.sleep(60)
        case b"slow": time.sleep(0.05)
        case b"babble": os.write(1, b"native chatter")
    return message[::-1]

serve(answer)
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "helper_for_tests.py").write_text(textwrap.dedent(SCRIPT))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return "helper_for_tests"


def test_answers_survive_sizes_beyond_the_pipe(module: str) -> None:
    async def main() -> None:
        child = Child(module, timeout_s=20)
        for size in (0, 1, 70_000, 5_000_000):
            message = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
            assert await child.request(message) == message[::-1]
        assert child.starts == 1
        await child.close()

    asyncio.run(main())


@pytest.mark.parametrize("how, said", [(b"die", "exit 7"), (b"hang", "no answer in 0.7 s")])
def test_a_lost_child_is_one_error_and_the_next_request_starts_another(module: str, how: bytes, said: str) -> None:
    async def main() -> None:
        child = Child(module, timeout_s=20)
        await child.request(b"warm")
        with pytest.raises(ChildDied, match=said):
            await child.request(how, timeout_s=0.7)
        assert child.pid is None
        assert await child.request(b"again") == b"niaga"
        assert child.starts == 2
        await child.close()

    run_virtual(main())
    asyncio.run(main())


def test_chatter_on_standard_output_does_not_break_the_frames(module: str) -> None:
    async def main() -> None:
        child = Child(module, timeout_s=20)
        assert await child.request(b"babble") == b"elbbab"
        await child.close()

    asyncio.run(main())


def test_virtual_time_stands_still_while_the_child_works(module: str) -> None:
    async def main() -> None:
        child = Child(module, timeout_s=20)
        async with asyncio.timeout(0.001):
            await child.request(b"slow")
        assert now_ns() == 0
        await child.close()

    run_virtual(main())


def test_a_cancelled_request_leaves_no_answer_for_the_next_one(module: str) -> None:
    async def main() -> None:
        child = Child(module, timeout_s=20)
        await child.request(b"warm")
        task = asyncio.create_task(child.request(b"hang"))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await child.request(b"next") == b"txen"
        await child.close()

    asyncio.run(main())
