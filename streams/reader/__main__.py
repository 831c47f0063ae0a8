"""The reader child's entry: opens one recording and answers requests for it until its parent goes away.

    python -m handrail.streams.reader RING_FD LOG_FD

What native code prints goes to the log, emptied at every request (``chatter``).
"""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING

from handrail.streams.child import serve
from handrail.streams.errors import SourceError
from handrail.streams.reader import wire
from handrail.streams.reader.chatter import Chatter, one_line

if TYPE_CHECKING:  # imported when a recording is opened: without projectaria_tools the parent must get an answer
    from handrail.streams.reader.recording import Recording

ORPHAN_LIMIT_S = 120.0  # a request hanging in native code ends by itself, should nobody be left to kill it


class Server:
    def __init__(self, ring: wire.FrameRing, chatter: Chatter) -> None:
        self._ring, self._chatter = ring, chatter
        self._recording: Recording | None = None

    def answer(self, message: bytes) -> bytes:
        self._chatter.capture()
        self._chatter.clear()
        signal.setitimer(signal.ITIMER_REAL, ORPHAN_LIMIT_S)
        try:
            return wire.encode(self._answer(wire.decode_request(message)))
        except SourceError as e:
            return wire.encode(wire.Failed(str(e)))
        except Exception as e:  # native errors come as several types
            return wire.encode(wire.Failed(f"the recording is damaged: {one_line(str(e) or repr(e))}"))
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)

    def _answer(self, request: wire.Request) -> wire.Answer:
        if isinstance(request, wire.Read):
            return self._recording.read(request) if self._recording else wire.Fresh()
        try:
            from handrail.streams.reader.recording import Recording
        except ImportError as e:
            return wire.Failed(str(e), missing=True)
        self._recording = Recording(request.path, request.plan, self._ring, self._chatter)
        return self._recording.opened()


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the whole group; the parent decides
    ring_fd, log_fd = (int(a) for a in sys.argv[1:3])
    serve(Server(wire.FrameRing(ring_fd), Chatter(log_fd)).answer)
    os._exit(0)  # native destructors of a damaged recording may crash, and nobody needs them


if __name__ == "__main__":
    main()
