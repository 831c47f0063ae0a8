"""``EspeakVoice``: espeak-ng in a child process (see ``espeak_child``), the same samples for the same text and rate.

One that hangs is killed after ``HUNG_S`` of real time and starts again with the next phrase; virtual time stands still
meanwhile (``streams.child``).
"""

from __future__ import annotations

import importlib.util

import msgspec
import numpy as np

from handrail.device.sound import RATE_HZ, Sound
from handrail.device.spoken import plain_text, rate_within, speech
from handrail.device.wire import Reply, Request
from handrail.streams.child import Child, ChildDied
from handrail.streams.errors import DeviceError, MissingDependencyError

HUNG_S = 1.5  # a phrase takes a few ms
START_S = 10.0  # a busy machine may take its time to start Python


class EspeakVoice:
    """A ``Voice``. Raises MissingDependencyError when espeakng-loader isn't installed."""

    name = "espeak"

    def __init__(self) -> None:
        if importlib.util.find_spec("espeakng_loader") is None:
            raise MissingDependencyError("espeakng-loader isn't installed; run: pip install 'handrail[speech]'")
        self._child = Child("handrail.device.espeak_child", timeout_s=HUNG_S)
        self._closed = False

    @property
    def pid(self) -> int | None:
        """Of the child, while there is one."""
        return self._child.pid

    async def render(self, text: str, rate_wpm: int) -> Sound:
        """[N] float32. ``rate_wpm`` is held to 80..450. Raises DeviceError: nothing to say, failed, hung or died."""
        if self._closed:
            raise DeviceError("espeak-ng: asked for a phrase after close")
        request = Request(plain_text(text), rate_within(rate_wpm))
        reply = await self._ask(request)
        if reply.rate_hz != RATE_HZ:
            raise DeviceError(f"espeak-ng: expected {RATE_HZ} Hz, got {reply.rate_hz}; install espeakng-loader 0.2")
        return speech(np.frombuffer(reply.pcm, "<i2").astype(np.float32) / np.float32(32768))

    async def close(self) -> None:
        self._closed = True
        await self._child.close()

    async def _ask(self, request: Request) -> Reply:
        """Whatever goes wrong on the way costs the child; the next phrase gets a new one."""
        message = msgspec.msgpack.encode(request)
        limit_s = START_S if self._child.pid is None or self._child.lost else HUNG_S
        try:
            body = await self._child.request(message, limit_s)
            reply = msgspec.msgpack.decode(body, type=Reply)
        except (ChildDied, msgspec.MsgspecError) as e:
            raise DeviceError(f"espeak-ng: {e}; it starts again with the next phrase") from e
        if reply.error is not None:
            raise DeviceError(f"espeak-ng: {reply.error}")
        return reply
