"""Writes what was heard to a WAV file, on the time line of the running loop: second 3 of the file is second 3 after
this speaker was made.

Behaves like a sound card that takes a period of frames every ``period_ms`` and plays it ``buffer_ms`` later, but works
out the periods only when something changes, so that virtual time needs no wake-up a period. While something plays the
file is written at least once a second: a crash loses that much. The same calls at the same times give the same bytes.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np

from handrail.device.mixer import Mixer, Track
from handrail.device.playback import TrackPlayback
from handrail.device.sound import F32, RATE_HZ, Sound
from handrail.device.wav_file import MOST_FRAMES, WavFile
from handrail.streams.clock import NS_PER_S, now_ns
from handrail.streams.errors import OutputError

_WRITE_EVERY_S = 1.0


class WavSpeaker:
    """A ``Speaker``. Make it inside a running loop; its time line starts then."""

    name = "wav"

    def __init__(self, path: Path, period_ms: float = 10.0, buffer_ms: float = 20.0) -> None:
        """Raises OutputError when the file can't be written."""
        self.buffer_ms = buffer_ms
        self.failed: str | None = None
        self._path = path
        self._start_ns = now_ns()
        self._period_ns = round(period_ms * 1e6)
        self._buffer_ns = round(buffer_ms * 1e6)
        self._mixer = Mixer()
        self._taken = 0  # frames taken from the mixer so far
        self._playing: list[TrackPlayback] = []
        self._next_write: asyncio.TimerHandle | None = None
        try:
            self._file: WavFile | None = WavFile(path)
        except OSError as e:
            raise OutputError(f"{path}: can't be written ({e.strerror}); choose another --out") from e
        self._silence(self._buffer_ns * RATE_HZ // NS_PER_S)
        if self.failed is not None:
            raise OutputError(self.failed)

    def play(self, sound: Sound) -> TrackPlayback:
        """Its first sample goes out with the next period. On a failed or closed speaker it has ended already."""
        self._catch_up()
        playback = TrackPlayback(Track(sound), self._cancelled)
        if self._file is None:
            playback.finish(whole=False)
            return playback
        playback.handed_over(self._start_ns + self._periods_taken() * self._period_ns, self._buffer_ns)
        self._mixer.add(playback.track)
        self._playing.append(playback)
        self._finish_when_silent(playback)
        if self._next_write is None:
            self._write_on()
        return playback

    async def close(self) -> None:
        """Write what was heard up to now; what still plays ends with False."""
        self._catch_up()
        self._stop()

    def _cancelled(self, playback: TrackPlayback) -> None:
        self._catch_up()
        playback.track.cancel()
        self._finish_when_silent(playback)

    def _finish_when_silent(self, playback: TrackPlayback) -> None:
        """A cancelled track is silent earlier than it was to be: of the two calls, the later changes nothing."""
        if playback.track.end == 0:
            self._finish(playback)  # empty, or cancelled before its first sample
        else:
            asyncio.get_running_loop().call_at(playback.silent_ns / NS_PER_S, self._finish, playback)

    def _finish(self, playback: TrackPlayback) -> None:
        if playback.whole is None:
            self._catch_up()
        if playback.whole is None:
            self._playing.remove(playback)
            playback.finish(whole=not playback.track.cancelled)

    def _write_on(self) -> None:
        """Keep writing while something plays."""
        self._catch_up()
        self._next_write = None
        if self._file is not None and not self._mixer.idle:
            self._next_write = asyncio.get_running_loop().call_later(_WRITE_EVERY_S, self._write_on)

    def _periods_taken(self) -> int:
        """Period k is taken at start + k periods, that instant included."""
        return (now_ns() - self._start_ns) // self._period_ns + 1

    def _catch_up(self) -> None:
        """Write every period that is due by now."""
        due = self._periods_taken() * self._period_ns * RATE_HZ // NS_PER_S - self._taken
        self._taken += due
        while due > 0 and not self._mixer.idle:
            n_frames = min(due, RATE_HZ)
            self._append(self._mixer.mix(n_frames))
            due -= n_frames
        self._silence(due)

    def _silence(self, n_frames: int) -> None:
        for start in range(0, n_frames, RATE_HZ):  # a second at a time: a long pause must not cost memory
            self._append(np.zeros((min(RATE_HZ, n_frames - start), 2), np.float32))

    def _append(self, block: F32) -> None:
        if self._file is None:
            return
        if self._file.frames + len(block) > MOST_FRAMES:
            self._fail(f"{self._path}: full, a WAV file holds 13 hours; start a new session")
            return
        try:
            self._file.append(block)
        except OSError as e:
            self._fail(f"{self._path}: can't be written ({e.strerror}); free some space and start again")

    def _fail(self, why: str) -> None:
        self.failed = why
        self._stop()

    def _stop(self) -> None:
        if self._next_write is not None:
            self._next_write.cancel()
            self._next_write = None
        if self._file is not None:
            self._file.close()
            self._file = None
        playing, self._playing = self._playing, []
        for playback in playing:
            playback.finish(whole=False)
