"""The process that holds espeak-ng: ``python -m handrail.device.espeak_child``. Text in, PCM out.

espeak-ng is GPL and native: it is loaded here and nowhere else. It also remembers: the same text comes out a few
samples different after other texts (its flutter and wave phase are static variables that neither re-initialising nor
seeding resets; tried with 1.52). So each utterance is rendered in a fork of the freshly initialised process, which
costs 2 ms and makes it the same bit for bit. A crash takes the fork with it, not the engine. (Elsewhere processes
start by exec; here nothing but espeak's own idle thread exists when we fork, and synchronous rendering doesn't use it.)
"""

from __future__ import annotations

import ctypes
import os
import signal
import warnings

import espeakng_loader
import msgspec

from handrail.device.wire import MOST_REPLY_BYTES, Reply, Request
from handrail.streams.child import serve

_VOICE = b"en"
_SYNCHRONOUS, _DONT_EXIT = 2, 0x8000  # output mode, option (speak_lib.h)
_RATE_PARAMETER, _UTF8 = 1, 1  # no SSML and no phoneme flag: text is read as it stands
_MOST_PCM_BYTES = MOST_REPLY_BYTES - 1024
_HUNG_S = 3  # a fork that outlives its asker ends itself

_CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)


class Engine:
    """espeak-ng, initialised. Raises RuntimeError when it can't be."""

    def __init__(self) -> None:
        self._lib = ctypes.CDLL(espeakng_loader.get_library_path())
        self._lib.espeak_Initialize.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_char_p, ctypes.c_int]
        self._lib.espeak_Synth.argtypes = [
            ctypes.c_char_p, ctypes.c_size_t, ctypes.c_uint, ctypes.c_int,
            ctypes.c_uint, ctypes.c_uint, ctypes.c_void_p, ctypes.c_void_p,
        ]  # fmt: skip
        data = espeakng_loader.get_data_path().encode()
        self.rate_hz: int = self._lib.espeak_Initialize(_SYNCHRONOUS, 0, data, _DONT_EXIT)
        if self.rate_hz <= 0 or self._lib.espeak_SetVoiceByName(_VOICE) != 0:
            raise RuntimeError("espeak-ng doesn't start: its data folder or English voice is missing")
        self._pcm = bytearray()
        self._callback = _CALLBACK(self._take)  # kept: ctypes would free it
        self._lib.espeak_SetSynthCallback(self._callback)

    def render(self, request: Request) -> Reply:
        self._pcm.clear()
        self._lib.espeak_SetParameter(_RATE_PARAMETER, request.rate_wpm, 0)
        text = request.text.encode() + b"\0"
        status = self._lib.espeak_Synth(text, len(text), 0, 1, 0, _UTF8, None, None)
        if status != 0:
            return Reply(error=f"espeak-ng returned status {status}")
        if len(self._pcm) >= _MOST_PCM_BYTES:
            return Reply(error="the text is too long for one utterance; say it in parts")
        return Reply(rate_hz=self.rate_hz, pcm=bytes(self._pcm))

    def _take(self, samples: int | None, n_samples: int, events: int | None) -> int:
        """Called by espeak-ng with each buffer; returning 1 stops it."""
        if samples and n_samples > 0:
            self._pcm += ctypes.string_at(samples, 2 * n_samples)
        return int(len(self._pcm) >= _MOST_PCM_BYTES)


def main() -> None:
    warnings.simplefilter("ignore", DeprecationWarning)  # 3.12 warns of forking beside espeak's idle thread
    try:
        engine = Engine()
    except (RuntimeError, OSError) as e:
        broken = msgspec.msgpack.encode(Reply(error=str(e)))
        serve(lambda message: broken)
        return
    serve(lambda message: _render_in_fork(engine, msgspec.msgpack.decode(message, type=Request)))


def _render_in_fork(engine: Engine, request: Request) -> bytes:
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        signal.alarm(_HUNG_S)
        os.close(read_end)
        with os.fdopen(write_end, "wb") as out:
            out.write(msgspec.msgpack.encode(engine.render(request)))
        os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as stream:
        body = stream.read()
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if status != 0:
        return msgspec.msgpack.encode(Reply(error=f"espeak-ng crashed on this text (status {status})"))
    return body


if __name__ == "__main__":
    main()
