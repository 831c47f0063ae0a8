"""What passes between a voice's child process and us, as MessagePack. Imported by the child: nothing heavy in here."""

from __future__ import annotations

import msgspec

MOST_REPLY_BYTES = 4 * 1024 * 1024  # 60 s of 16-bit PCM and room to spare


class Request(msgspec.Struct, frozen=True):
    text: str
    rate_wpm: int


class Reply(msgspec.Struct, frozen=True):
    """Either PCM or an error."""

    rate_hz: int = 0
    pcm: bytes = b""  # int16, little-endian, mono
    error: str | None = None
