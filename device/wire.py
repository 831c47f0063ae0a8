"""What passes between a voice's child process and us: one length-prefixed msgpack message at a time, both ways bounded.

Imported by the child: nothing heavy in here.
"""

from __future__ import annotations

import struct

import msgspec

LENGTH = struct.Struct("<I")
MOST_REQUEST_BYTES = 4096
MOST_REPLY_BYTES = 4 * 1024 * 1024  # 60 s of 16-bit PCM and room to spare


class Request(msgspec.Struct, frozen=True):
    text: str
    rate_wpm: int


class Reply(msgspec.Struct, frozen=True):
    """Either PCM or an error. The first reply of a child, unasked, says that it is ready."""

    rate_hz: int = 0
    pcm: bytes = b""  # int16, little-endian, mono
    error: str | None = None


def framed(message: Request | Reply) -> bytes:
    body = msgspec.msgpack.encode(message)
    return LENGTH.pack(len(body)) + body
