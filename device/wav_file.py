"""A WAV file that grows: 16-bit stereo at ``RATE_HZ``, its header right after every ``append``.

Unbuffered, so that a killed process loses nothing that was appended. Raises OSError as the system gives it.
"""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np

from handrail.device.sound import F32, RATE_HZ

_HEADER = struct.Struct("<4sI4s4sIHHIIHH4sI")
_BYTES_A_FRAME = 4
MOST_FRAMES = (2**32 - _HEADER.size) // _BYTES_A_FRAME  # what the header can count: 13.5 hours


class WavFile:
    def __init__(self, path: Path) -> None:
        self._file = path.open("wb", buffering=0)
        self.frames = 0
        try:
            self._write(_header(0))
        except OSError:
            self._file.close()
            raise

    def append(self, block: F32) -> None:
        """[n, 2] in [-1, 1]."""
        self._write(np.rint(block * np.float32(32767)).astype("<i2").tobytes())
        self.frames += len(block)
        self._file.seek(0)
        self._write(_header(self.frames))
        self._file.seek(0, 2)

    def close(self) -> None:
        self._file.close()

    def _write(self, data: bytes) -> None:
        left = memoryview(data)
        while left:
            left = left[self._file.write(left) :]  # a nearly full disk takes a part first, then raises


def _header(frames: int) -> bytes:
    n_bytes = frames * _BYTES_A_FRAME
    return _HEADER.pack(
        b"RIFF", _HEADER.size - 8 + n_bytes, b"WAVE",
        b"fmt ", 16, 1, 2, RATE_HZ, RATE_HZ * _BYTES_A_FRAME, _BYTES_A_FRAME, 16,
        b"data", n_bytes,
    )  # fmt: skip
