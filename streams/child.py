"""A helper process that answers one request at a time over pipes: native code may die in there, the main process not.

Both ends of the wire: ``Child`` asks (in the runtime), ``serve`` answers (in the helper). A message is a 4-byte
little-endian length and that many bytes; what the bytes mean is the caller's. Started by exec, never by fork.
The time limit is real time even on a virtual loop: a timer thread kills a child that hangs, and the reader sees the end
of the pipe.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence

from handrail.streams.clock import standing_still
from handrail.streams.errors import HandrailError

MAX_MESSAGE = 64 << 20  # bytes; a longer length on the wire is damage
PIPE_BYTES = 1 << 20  # two SLAM frames fit; the default 64 KiB would take many turns of the loop
_LENGTH = struct.Struct("<I")


class ChildDied(HandrailError):
    """The child ended, hung past its limit or broke the protocol. The next request starts a new one."""


class Child:
    def __init__(
        self, module: str, args: Sequence[str] = (), *, timeout_s: float, pass_fds: Sequence[int] = (), nice: int = 0
    ) -> None:
        self.module = module
        self.starts = 0
        self._args, self._timeout_s, self._pass_fds, self._nice = tuple(args), timeout_s, tuple(pass_fds), nice
        self._process: asyncio.subprocess.Process | None = None
        self._turn = asyncio.Lock()

    @property
    def pid(self) -> int | None:
        """Of the running child, None when there is none."""
        return None if self._process is None else self._process.pid

    @property
    def lost(self) -> bool:
        """It died since its last answer: ``request`` would start another, which knows nothing of what came before."""
        return self._process is not None and _dead(self._process)

    async def request(self, message: bytes, timeout_s: float | None = None) -> bytes:
        """Send one message, return the answer. Raises ChildDied; virtual time stands still meanwhile."""
        async with self._turn:
            with standing_still():
                if self._process is not None and _dead(self._process):
                    await self._reap()  # it died while nobody asked: nothing is lost
                process = self._process or await self._start()
                assert process.stdin is not None and process.stdout is not None
                hung = threading.Event()
                limit = timeout_s or self._timeout_s
                guard = threading.Timer(limit, _kill, (process, hung))
                guard.daemon = True
                guard.start()
                try:
                    process.stdin.write(_LENGTH.pack(len(message)) + message)
                    await process.stdin.drain()
                    (length,) = _LENGTH.unpack(await process.stdout.readexactly(_LENGTH.size))
                    if length > MAX_MESSAGE:
                        raise ChildDied(f"{self.module}: claims a message of {length} bytes")
                    return await process.stdout.readexactly(length)
                except (OSError, asyncio.IncompleteReadError) as e:
                    await self._reap()
                    how = f"gave no answer in {limit:g} s" if hung.is_set() else f"died (exit {process.returncode})"
                    raise ChildDied(f"{self.module}: {how}") from e
                except (asyncio.CancelledError, ChildDied):
                    await self._reap()  # an answer nobody waits for would be taken for the next one's
                    raise
                finally:
                    guard.cancel()

    async def close(self) -> None:
        with standing_still():
            await self._reap()

    async def _start(self) -> asyncio.subprocess.Process:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-P", "-m", self.module, *self._args,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            pass_fds=self._pass_fds, limit=PIPE_BYTES, start_new_session=True,  # Ctrl-C is the parent's to handle
            env={**os.environ, "HANDRAIL_CHILD_NICE": str(self._nice)},
        )
        self.starts += 1
        self._process = process
        return process

    async def _reap(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        _kill(process)
        await process.wait()


def _dead(process: asyncio.subprocess.Process) -> bool:
    """Also one whose end the loop hasn't heard of yet."""
    if process.returncode is not None:
        return True
    with contextlib.suppress(ChildProcessError):
        return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    return True


def _kill(process: asyncio.subprocess.Process, hung: threading.Event | None = None) -> None:
    # Not process.kill(): that polls, and reaps the child under the eyes of the loop's child watcher.
    if hung is not None:
        hung.set()
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(process.pid, signal.SIGKILL)


def serve(answer: Callable[[bytes], bytes], after: Callable[[], None] = lambda: None) -> None:
    """The helper's main loop: answer framed requests until the parent closes the pipe; ``after`` runs once an answer
    is on its way.

    File descriptor 1 becomes the null device, so that chatter of native libraries can't break the frames.
    """
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    with contextlib.suppress(PermissionError):  # few may ask for more than the usual priority
        os.nice(int(os.environ.get("HANDRAIL_CHILD_NICE", "0")))
    for pipe in (requests, answers):
        with contextlib.suppress(OSError):  # a smaller pipe is only slower
            fcntl.fcntl(pipe.fileno(), fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    while len(head := requests.read(_LENGTH.size)) == _LENGTH.size:
        (length,) = _LENGTH.unpack(head)
        if length > MAX_MESSAGE or len(message := requests.read(length)) < length:
            return
        reply = answer(message)
        answers.write(_LENGTH.pack(len(reply)) + reply)
        answers.flush()
        after()
