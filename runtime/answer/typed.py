"""Lines of standard input, asked as they come: a thread reads, the loop's thread hears.

A line is read when the one before it has been heard, and no more than ten a second: a flood of lines can't keep the
loop from its warnings. Ends quietly with the input or the loop. Knows nothing of what is asked.
"""

from __future__ import annotations

import asyncio
import codecs
import os
import threading
import time
from collections.abc import Callable, Iterator

from handrail.runtime.asking.commands import LONGEST

APART_S = 0.1


def listen(heard: Callable[[str], None], number: int = 0) -> None:
    """``heard`` is called on this loop for every line of the open file of that number."""
    loop = asyncio.get_running_loop()
    threading.Thread(target=_read, args=(number, heard, loop), name="typed", daemon=True).start()


def _read(number: int, heard: Callable[[str], None], loop: asyncio.AbstractEventLoop) -> None:
    taken = threading.Event()

    def hear(line: str) -> None:
        taken.set()
        heard(line)

    for line in _lines(number):
        taken.clear()
        try:
            loop.call_soon_threadsafe(hear, line)
        except RuntimeError:  # the loop is closed
            return
        taken.wait()
        time.sleep(APART_S)


def _lines(number: int) -> Iterator[str]:
    """Not through ``sys.stdin``: a thread that waits in there aborts the interpreter when it ends."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text = ""
    while True:
        try:
            data = os.read(number, 65_536)
        except OSError:  # closed, or a terminal that has gone
            data = b""
        text += decoder.decode(data, final=not data)
        *lines, text = text.split("\n")
        yield from lines
        text = text[: LONGEST + 1]  # of a line without an end the beginning is enough
        if not data:
            if text.strip():
                yield text
            return
