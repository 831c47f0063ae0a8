"""``EspeakVoice``: espeak-ng in a child process (see ``espeak_child``), the same samples for the same text and rate.

The child is asked in a thread of its own with real timeouts, while virtual time stands still. One that hangs is killed
after ``HUNG_S`` and starts again with the next phrase.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import selectors
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import msgspec
import numpy as np

from handrail.device.sound import RATE_HZ, Sound
from handrail.device.spoken import plain_text, rate_within, speech
from handrail.device.wire import LENGTH, MOST_REPLY_BYTES, Reply, Request, framed
from handrail.streams.clock import standing_still
from handrail.streams.errors import DeviceError, MissingDependencyError

HUNG_S = 1.5  # a phrase takes a few ms
_START_S = 10.0  # a busy machine may take its time to start Python


class EspeakVoice:
    """A ``Voice``. Raises MissingDependencyError when espeakng-loader isn't installed."""

    name = "espeak"

    def __init__(self) -> None:
        if importlib.util.find_spec("espeakng_loader") is None:
            raise MissingDependencyError("espeakng-loader isn't installed; run: pip install 'handrail[speech]'")
        self._child: _Child | None = None
        self._closed = False
        self._thread = ThreadPoolExecutor(1, "espeak")  # one: phrases are rendered one after the other

    @property
    def pid(self) -> int | None:
        """Of the child, while there is one."""
        return None if self._child is None else self._child.process.pid

    async def render(self, text: str, rate_wpm: int) -> Sound:
        """[N] float32. ``rate_wpm`` is held to 80..450. Raises DeviceError: nothing to say, failed, hung or died."""
        if self._closed:
            raise DeviceError("espeak-ng: asked for a phrase after close()")
        request = Request(plain_text(text), rate_within(rate_wpm))
        with standing_still():
            reply = await asyncio.get_running_loop().run_in_executor(self._thread, self._ask, request)
        if reply.error is not None:
            raise DeviceError(f"espeak-ng: {reply.error}")
        if reply.rate_hz != RATE_HZ:
            raise DeviceError(f"espeak-ng: expected {RATE_HZ} Hz, got {reply.rate_hz}; install espeakng-loader 0.2")
        return speech(np.frombuffer(reply.pcm, "<i2").astype(np.float32) / np.float32(32768))

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        with standing_still():
            await asyncio.get_running_loop().run_in_executor(self._thread, self._lose_child)
        self._thread.shutdown()

    def _ask(self, request: Request) -> Reply:
        """In our thread. Whatever goes wrong on the way costs the child; the next phrase gets a new one."""
        try:
            if self._child is not None and self._child.process.poll() is not None:
                self._lose_child()  # it died while nobody asked: no reason to lose this phrase too
            if self._child is None:
                self._child = _Child()
                ready = self._child.receive(_START_S)
                if ready.error is not None:
                    raise DeviceError(f"espeak-ng: {ready.error}")
            self._child.send(request)
            return self._child.receive(HUNG_S)
        except (DeviceError, OSError, msgspec.MsgspecError) as e:
            self._lose_child()
            if isinstance(e, DeviceError):
                raise
            raise DeviceError(f"espeak-ng: its process died ({e}); it starts again with the next phrase") from e

    def _lose_child(self) -> None:
        if self._child is not None:
            self._child.kill()
            self._child = None


class _Child:
    """The process and its two pipes, blocking, with real timeouts."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "handrail.device.espeak_child"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            bufsize=0, start_new_session=True,
        )  # fmt: skip
        assert self.process.stdin is not None and self.process.stdout is not None
        self._in, self._out = self.process.stdin, self.process.stdout

    def send(self, request: Request) -> None:
        self._in.write(framed(request))  # under 4 KiB and one at a time: the pipe takes it at once

    def receive(self, timeout_s: float) -> Reply:
        deadline = time.monotonic() + timeout_s
        size = LENGTH.unpack(self._read(LENGTH.size, deadline))[0]
        if size > MOST_REPLY_BYTES:
            raise DeviceError(f"espeak-ng: expected a reply of at most {MOST_REPLY_BYTES} bytes, got {size}")
        return msgspec.msgpack.decode(self._read(size, deadline), type=Reply)

    def _read(self, n_bytes: int, deadline: float) -> bytes:
        data = bytearray()
        with selectors.DefaultSelector() as selector:
            selector.register(self._out, selectors.EVENT_READ)
            while len(data) < n_bytes:
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    raise DeviceError("espeak-ng: no answer in time, killed; it starts again with the next phrase")
                chunk = os.read(self._out.fileno(), n_bytes - len(data))
                if not chunk:
                    raise DeviceError("espeak-ng: its process ended; it starts again with the next phrase")
                data += chunk
        return bytes(data)

    def kill(self) -> None:
        """With the fork that may be at work: they share the session."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self._in.close()
        self._out.close()
