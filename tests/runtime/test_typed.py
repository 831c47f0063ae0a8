"""Typed lines reach the loop whole, in order, and end quietly; a flood of them doesn't fill it."""

from __future__ import annotations

import asyncio
import os
import threading

from handrail.runtime.answer.typed import listen
from handrail.runtime.asking.commands import LONGEST


def heard_of(*written: bytes, count: int) -> list[str]:
    """What is heard of bytes written into a pipe that is then closed."""
    heard: list[str] = []

    async def main() -> None:
        read, write = os.pipe()
        enough = asyncio.Event()

        def hear(line: str) -> None:
            heard.append(line)
            if len(heard) == count:
                enough.set()

        listen(hear, read)
        thread = next(t for t in threading.enumerate() if t.name == "typed")
        for data in written:
            await asyncio.to_thread(os.write, write, data)
        os.close(write)
        await asyncio.wait_for(enough.wait(), 10.0)
        await asyncio.to_thread(thread.join, 10.0)
        assert not thread.is_alive()
        os.close(read)

    asyncio.run(main())
    return heard


def test_lines_come_in_order_and_the_last_one_needs_no_end() -> None:
    assert heard_of(b"what is th", b"ere?\nhush\nund \xc3", b"\xa4hnlich", count=3) == [
        "what is there?", "hush", "und ähnlich",
    ]  # fmt: skip


def test_bytes_that_are_no_text_and_a_line_without_an_end_do_no_harm() -> None:
    heard = heard_of(b"\xff\xfe\n", *[b"a" * 60_000] * 4, b"\nend\n", count=3)
    assert heard[0] == "\ufffd\ufffd" and len(heard[1]) <= 2 * 65_536 + LONGEST and heard[2] == "end"


def test_a_thread_that_waits_for_a_line_does_not_keep_the_loop_from_ending() -> None:
    read, write = os.pipe()

    async def main() -> None:
        listen(lambda line: None, read)

    asyncio.run(main())
    os.write(write, b"too late\n")
    thread = next((t for t in threading.enumerate() if t.name == "typed"), None)
    if thread is not None:
        thread.join(10.0)
        assert not thread.is_alive()
    os.close(write)
    os.close(read)
