"""Plays on the sound card through miniaudio, the only module that touches it. Real time only.

The device's own thread asks for frames every ``period_ms``; it mixes them under a lock that is held for well under a
millisecond, and tells the loop of starts and ends through ``call_soon_threadsafe``. A device that stops asking for
500 ms has failed: ``failed`` says so, and what was playing ends with False. ``backend="null"`` is miniaudio's device
that discards everything at the right pace, for machines without a card.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import threading
import time
import weakref
from collections.abc import Generator, Iterator
from typing import Any, Literal

from handrail.device.mixer import Mixer, Track
from handrail.device.playback import TrackPlayback
from handrail.device.sound import F32, RATE_HZ, Sound
from handrail.streams.clock import NS_PER_S, VirtualLoop
from handrail.streams.errors import DeviceError, MissingDependencyError

PERIODS = 2  # in the device's buffer: one plays while the next is mixed
_TICK_S = 0.1
_TICKS_TO_STALL = 5  # ticks of the loop, not time: a process that was stopped for a while finds its device alive


class CardSpeaker:
    """A ``Speaker``. Make it inside a running loop."""

    def __init__(self, backend: Literal["card", "null"] = "card", period_ms: float = 10.0) -> None:
        """Raises DeviceError when there is no working card, MissingDependencyError without miniaudio."""
        self._loop = asyncio.get_running_loop()
        if isinstance(self._loop, VirtualLoop):
            raise DeviceError("a sound card can't play in virtual time; use the wav speaker, or --speed real")
        self.buffer_ms = PERIODS * period_ms
        self.failed: str | None = None
        self._lock = threading.Lock()
        self._mixer = Mixer()  # under the lock
        self._starting: list[TrackPlayback] = []  # under the lock: first sample not handed over yet
        self._sounding: list[TrackPlayback] = []  # under the lock
        self._draining: list[TrackPlayback] = []  # wholly handed over, not yet heard to the end
        self._asked = 0  # times that the device asked for frames
        self._open = True
        self._device = _open_device(backend, period_ms)
        self.name = f"card ({self._device.backend})"
        # Forgotten until the interpreter ends, the device's thread would wait for it and it for the thread, for ever.
        weakref.finalize(self, self._device.close)
        self._start_device()
        self._watch = asyncio.create_task(self._watch_device(), name="speaker watch")

    def play(self, sound: Sound) -> TrackPlayback:
        """Its first sample goes out when the device next asks. On a failed or closed speaker it has ended already."""
        playback = TrackPlayback(Track(sound), self._cancelled)
        if not self._open or playback.track.done:
            playback.finish(whole=self._open)
            return playback
        with self._lock:
            self._mixer.add(playback.track)
            self._starting.append(playback)
        return playback

    async def close(self) -> None:
        """Stop the device; what still plays ends with False. A device that doesn't let go is left behind after 1 s."""
        self._watch.cancel()
        self._end_all()
        closed = asyncio.Event()

        def close_device() -> None:
            self._device.close()
            _tell(self._loop, closed.set)

        threading.Thread(target=close_device, name="speaker close", daemon=True).start()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                await closed.wait()

    def _cancelled(self, playback: TrackPlayback) -> None:
        with self._lock:
            playback.track.cancel()
            unheard = playback in self._starting
            if unheard:
                self._starting.remove(playback)
        if unheard:
            playback.finish(whole=False)

    def _start_device(self) -> None:
        pull = self._pull()
        next(pull)
        try:
            self._device.start(pull)
        except Exception as e:  # the library's own error type, and whatever its callback set-up raises
            self._device.close()
            raise DeviceError(f"{self.name}: can't be started ({e}); choose the wav or null speaker") from e

    def _pull(self) -> Generator[F32 | bytes, int, None]:
        """Runs in the device's thread: receives how many frames it wants, yields them."""
        n_frames = yield b""
        while True:
            try:
                block = self._next_block(n_frames)
            except Exception as e:  # an exception would leave the device playing its last buffer for ever
                _tell(self._loop, self._fail, f"{self.name}: mixing failed ({e!r}); restart the session")
                return
            n_frames = yield block

    def _next_block(self, n_frames: int) -> F32:
        with self._lock:
            block = self._mixer.mix(n_frames)
            at_ns = time.monotonic_ns()  # the loop's clock
            self._asked += 1
            self.buffer_ms = max(self.buffer_ms, PERIODS * n_frames * 1000 / RATE_HZ)  # cards may choose their period
            buffer_ns = round(self.buffer_ms * 1e6)
            for playback in self._starting:
                playback.handed_over(at_ns, buffer_ns)
            self._sounding += self._starting
            self._starting = []
            ended = [p for p in self._sounding if p.track.done]
            for playback in ended:
                self._sounding.remove(playback)
        for playback in ended:
            _tell(self._loop, self._finish_when_silent, playback, at_ns + buffer_ns)
        return block

    def _finish_when_silent(self, playback: TrackPlayback, not_before_ns: int) -> None:
        """``not_before_ns``: the last block is in the buffer until then, even if the device fell behind."""
        self._draining.append(playback)
        silent_ns = max(playback.silent_ns, not_before_ns)
        self._loop.call_at(silent_ns / NS_PER_S, self._finish, playback)

    def _finish(self, playback: TrackPlayback) -> None:
        if playback.whole is None:
            self._draining.remove(playback)
            playback.finish(whole=not playback.track.cancelled)

    async def _watch_device(self) -> None:
        seen, still = -1, 0
        while self._open:
            await asyncio.sleep(_TICK_S)
            seen, still = self._asked, still + 1 if self._asked == seen else 0
            if still >= _TICKS_TO_STALL:
                self._fail(f"{self.name}: the device took no sound for 500 ms; plug it in again or choose another")

    def _fail(self, why: str) -> None:
        if self._open:
            self.failed = why
            self._end_all()

    def _end_all(self) -> None:
        self._open = False
        with self._lock:
            playing = self._starting + self._sounding + self._draining
            self._starting, self._sounding, self._draining = [], [], []
            self._mixer = Mixer()
        for playback in playing:
            playback.finish(whole=False)


def _tell(loop: asyncio.AbstractEventLoop, what: Any, *args: Any) -> None:
    """From the device's thread to the loop's."""
    with contextlib.suppress(RuntimeError):  # the loop has closed: nobody is left to be told
        loop.call_soon_threadsafe(what, *args)


def _open_device(backend: Literal["card", "null"], period_ms: float) -> Any:
    try:
        import miniaudio
    except ImportError as e:
        raise MissingDependencyError("miniaudio isn't installed; run: pip install 'handrail[speech]'") from e
    try:
        with _without_alsa_chatter():
            device = miniaudio.PlaybackDevice(
                output_format=miniaudio.SampleFormat.FLOAT32,
                nchannels=2,
                sample_rate=RATE_HZ,
                buffersize_msec=round(period_ms),  # the library's name for its period
                callback_periods=PERIODS,
                backends=[miniaudio.Backend.NULL] if backend == "null" else None,
                app_name="handrail",
            )
    except miniaudio.MiniaudioError as e:
        raise DeviceError(f"the sound card can't be opened ({e}); choose the wav or null speaker") from e
    if backend == "card" and device.backend == "Null":  # what the library falls back to, without a word
        device.close()
        raise DeviceError("no sound card found; plug one in, or choose the wav or null speaker")
    return device


@contextlib.contextmanager
def _without_alsa_chatter() -> Iterator[None]:
    """ALSA prints some forty lines to file descriptor 2 where there is no card."""
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
