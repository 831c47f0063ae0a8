"""What others hang on a session (logs, a report, a bar) may fail: it must end the session aloud, not in the middle.

    guard = Guard()
    emit = guard.around(hooks.on_event)     # never raises
    await guard.broken()                    # a task of the session: raises the first error, once there is one

An error in a callback of the loop's would otherwise go to nobody, one in a timer would be printed and forgotten,
and one at a sound's last moment would take the sound along. What comes after the first error is still handed over:
a log keeps what it can. Knows no event and no sound.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


class Guard:
    """Belongs to one session's loop."""

    def __init__(self) -> None:
        self.error: Exception | None = None  # the first
        self._failed = asyncio.Event()

    def around(self, hook: Callable[[T], None]) -> Callable[[T], None]:
        def guarded(value: T) -> None:
            try:
                hook(value)
            except Exception as e:
                self.failed(e)

        return guarded

    def failed(self, error: Exception) -> None:
        if self.error is None:
            self.error = error
        self._failed.set()

    def callback_failed(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """The loop's exception handler: a timer or callback that raised. What it says of tasks goes its usual way."""
        error = context.get("exception")
        if "handle" in context and isinstance(error, Exception):
            self.failed(error)
        else:
            loop.default_exception_handler(context)

    async def broken(self) -> None:
        await self._failed.wait()
        self.check()

    def check(self) -> None:
        """Raises the first error, if there was one."""
        if self.error is not None:
            raise self.error
