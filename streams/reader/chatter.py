"""What native code prints, kept in a memfd that both processes see: it tells of damage that no return value tells.

The child writes (its stdout and stderr are the memfd), reads back complaints after each record, and empties it; the
main process reads the last complaint when the child has died. Knows no records.
"""

from __future__ import annotations

import os
import re

# A corrupt JPEG, a failed decompression and a file cut short are printed and otherwise go through as good data.
_COMPLAINT = re.compile(r"corrupt|error|fail|truncated|beyond the end|missing|incomplete|too short|too small", re.I)
_HARMLESS = re.compile(r"\[XPRS\]|libcuda|\[INFO\]|\[DEBUG\]")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_TAIL_BYTES = 8192


def one_line(text: str) -> str:
    """The first line of a native message, printable and short; damaged recordings put anything into them."""
    line = next((line.strip() for line in _COLOUR.sub("", text).splitlines() if line.strip()), "no message")
    return "".join(c if c.isprintable() else "?" for c in line[:200])


class Chatter:
    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._seen = 0  # bytes

    @staticmethod
    def create_fd() -> int:
        return os.memfd_create("handrail-reader-log")

    def capture(self) -> None:
        """Make stdout and stderr of this process go there."""
        os.dup2(self._fd, 1)
        os.dup2(self._fd, 2)

    def clear(self) -> None:
        os.ftruncate(self._fd, 0)
        os.lseek(self._fd, 0, os.SEEK_SET)
        self._seen = 0

    def complaints(self) -> list[str]:
        """Lines that complain, since the last call. Cheap when nothing was printed."""
        size = os.fstat(self._fd).st_size
        if size <= self._seen:
            return []
        start, self._seen = max(self._seen, size - _TAIL_BYTES), size
        text = os.pread(self._fd, size - start, start).decode("utf-8", "replace")
        lines = [one_line(line) for line in text.splitlines()]
        return [line for line in lines if _COMPLAINT.search(line) and not _HARMLESS.search(line)]
