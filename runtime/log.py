"""The two logs of a run: ``events.jsonl`` (what happened, the same bit for bit every time) and ``timings.jsonl``
(what was measured: durations, process ids, wall times).

One JSON object a line. Floats are rounded to 6 decimals on the way in, once, here: a micrometre or microsecond is more
than any sensor gives, lines get a third shorter, and the last bits that differ between machines stay out. Numbers that
aren't finite have no JSON; an event that holds one is a bug of its writer and is logged as a ``Fault`` in its place, so
that the session goes on and the log says so.

Each line goes to the operating system as it is written: a process that dies loses nothing that was logged (a machine
that loses power loses what the system had not yet put on disk). Of a line that finds no room nothing is left, so that
later ones, if there is room again, can be read.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import math
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from handrail.runtime.events import AnyEvent, Event, Fault
from handrail.streams.errors import InputError, OutputError

DECIMALS = 6
_LONGEST_LINE = 8 << 20  # bytes; a scene with 100 obstacles takes 40 kB


class _LineFile:
    """Appends lines to a new file that only its owner can read. Raises OutputError with what to do."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            self._file = open(fd, "wb", buffering=0)
            if stat.S_ISREG(os.fstat(fd).st_mode):
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)  # before another run's lines are cut off
                os.ftruncate(fd, 0)
                os.fchmod(fd, 0o600)  # a file that was there before keeps its own mode otherwise
        except BlockingIOError as e:
            self._file.close()
            raise OutputError(f"{path}: another run is writing there; wait for its end or give another folder") from e
        except OSError as e:
            raise self._failed(e) from e

    def write(self, line: bytes) -> None:
        written = 0
        try:
            while written < len(line):  # a disk that is nearly full takes half a line, then says so
                written += self._file.write(line[written:])
        except OSError as e:
            if written:
                with contextlib.suppress(OSError):  # a pipe keeps its half
                    self._file.seek(-written, os.SEEK_END)
                    self._file.truncate()
            raise self._failed(e) from e

    def close(self) -> None:
        try:
            self._file.close()
        except OSError as e:
            raise self._failed(e) from e

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def _failed(self, e: OSError) -> OutputError:
        return OutputError(f"{self.path}: can't be written ({e.strerror}); give a folder you may write to, with room")


class EventLog(_LineFile):
    """``with EventLog(path) as log: log.append(event)``. ``sha256`` covers all lines so far."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._hash = hashlib.sha256()
        self._encoder = msgspec.json.Encoder()
        self.count = 0

    @property
    def sha256(self) -> str:
        return self._hash.hexdigest()

    def append(self, event: Event) -> None:
        """Write one event. Raises OutputError when the disk is full or gone."""
        try:
            plain = _rounded(msgspec.to_builtins(event), "")
        except _NotFinite as e:
            plain = _rounded(msgspec.to_builtins(Fault(event.t_ns, "log", f"{type(event).__name__}: {e}")), "")
        line = self._encoder.encode(plain) + b"\n"
        self.write(line)
        self._hash.update(line)
        self.count += 1


class Timing(msgspec.Struct, frozen=True, omit_defaults=True):
    """One measurement. Never part of the event log: it differs from run to run."""

    what: str  # "reflex.depth", "voice.render", "reader.started", ...
    ms: float | None = None  # how long it took
    t_ns: int | None = None  # loop time since the session started
    device_ns: int | None = None  # capture of the frame it was spent on
    pid: int | None = None
    detail: str | None = None  # a path, a wall time, a library's version


class TimingLog(_LineFile):
    """``timings.jsonl``: one ``Timing`` a line."""

    def append(self, timing: Timing) -> None:
        self.write(msgspec.json.encode(timing) + b"\n")


def read_log(path: Path) -> Iterator[AnyEvent]:
    """The events of a log, in order. A torn last line (the writer died) ends it; any other bad line is an InputError
    that names the line."""
    return _read_lines(path, msgspec.json.Decoder(AnyEvent))


def read_timings(path: Path) -> Iterator[Timing]:
    """The measurements of a run; errors as ``read_log``."""
    return _read_lines(path, msgspec.json.Decoder(Timing))


def _read_lines(path: Path, decoder: msgspec.json.Decoder[Any]) -> Iterator[Any]:
    try:
        with path.open("rb") as file:
            number = 0
            while line := file.readline(_LONGEST_LINE):
                number += 1
                try:
                    item = decoder.decode(line)
                except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as e:
                    if not line.endswith(b"\n") and len(line) < _LONGEST_LINE:
                        return
                    raise InputError(f"{path}: line {number}: {e}; expected one event as JSON a line") from e
                yield item
    except OSError as e:
        raise InputError(f"{path}: can't be read ({e.strerror}); expected the log of a run") from e


class _NotFinite(ValueError):
    pass


def _rounded(value: Any, where: str) -> Any:
    """``value`` with every float rounded and no negative zero. Raises _NotFinite naming the field."""
    match value:
        case float():
            if not math.isfinite(value):
                raise _NotFinite(f"{where} is {value}, events hold finite numbers or None")
            return round(value, DECIMALS) + 0.0
        case dict():
            return {key: _rounded(v, f"{where}.{key}" if where else key) for key, v in value.items()}
        case list() | tuple():
            return [_rounded(v, f"{where}[{i}]") for i, v in enumerate(value)]
        case _:
            return value
