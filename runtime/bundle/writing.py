"""Writes a bundle: whole at its destination, or not there at all, whatever happens in between.

Files are made in a hidden folder beside the destination (``.NAME.part-PID``), hashed, put on disk (fsync), verified as
a reader verifies them, and only then the folder gets its name. A bundle that is replaced changes places with the new
one in a single step of the kernel. A killed writer leaves its hidden folder; the next writer of that name removes it.
One writer at a time: ``.NAME.lock`` is locked, and a lock ends with its process (a number would be given out again).
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import hashlib
import os
import shutil
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import TracebackType
from typing import Self

from handrail.runtime.bundle.manifest import MANIFEST, About, FileEntry, begins_sealed, is_name, name_fault, sealed
from handrail.runtime.bundle.reading import PIECE, Progress, verified
from handrail.streams.errors import BundleError, OutputError

_AT_FDCWD, _RENAME_EXCHANGE = -100, 2  # linux/fcntl.h, linux/fs.h


class BundleWriter:
    """``with BundleWriter(Path("out/fused")) as bundle:`` write to ``bundle.path(name)``; ``bundle.describe(...)``.

    At the end of the block the bundle is put in place; an error in the block leaves nothing. With ``replace`` an older
    bundle of that name gives way to the new one. Raises OutputError when the destination can't be used, BundleError
    when what was written is no bundle.
    """

    def __init__(self, destination: Path, *, replace: bool = False, progress: Progress | None = None) -> None:
        self._destination = Path(os.path.abspath(destination))
        if not self._destination.name:
            raise OutputError(f"{destination}: expected the name of a folder to make, got the root of all")
        self._replace = replace
        self._progress = progress
        self._about: About | None = None
        self._lock = -1
        self.folder = self._destination.with_name(f".{self._destination.name}.part-{os.getpid()}")  # until it is done

    def path(self, name: str) -> Path:
        """Where to write a file. Raises BundleError for a name that no bundle may hold."""
        if fault := name_fault(name):
            raise BundleError(f"{name!r} in {self._destination}: {fault}")
        return self.folder / name

    def write(self, name: str, content: bytes) -> None:
        try:
            self.path(name).write_bytes(content)
        except OSError as e:
            raise self._failed(e) from e

    def describe(self, about: About) -> None:
        """What the manifest says; the last call counts."""
        self._about = about

    def __enter__(self) -> Self:
        check_destination(self._destination, self._replace)
        try:
            self._destination.parent.mkdir(parents=True, exist_ok=True)
            self._lock = _locked(self._destination)
        except OSError as e:
            raise self._failed(e) from e
        try:
            _sweep(self._destination)
            self.folder.mkdir()
        except OSError as e:
            self._unlock()
            raise self._failed(e) from e
        return self

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None) -> None:
        try:
            if e is None:
                self._finish()
        except OSError as error:
            raise self._failed(error) from error
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)  # half a bundle, or the one that was replaced
            self._unlock()

    def _finish(self) -> None:
        if self._about is None:
            raise BundleError(f"{self._destination}: nothing says what is in this bundle; call describe() first")
        names = sorted(os.listdir(self.folder))
        files = {name: _settled(self.path(name)) for name in names}
        manifest = self.folder / MANIFEST
        manifest.write_bytes(sealed(self._about, files, created_by()))
        _sync(manifest)
        _sync(self.folder)
        verified(self.folder, self._destination, self._progress)
        check_destination(self._destination, self._replace)  # once more: exports take their time
        if os.path.lexists(self._destination):
            _exchange(self.folder, self._destination)
        else:
            os.rename(self.folder, self._destination)
        _sync(self._destination.parent)

    def _unlock(self) -> None:
        with contextlib.suppress(OSError):
            _lock_of(self._destination).unlink()
        os.close(self._lock)

    def _failed(self, e: OSError) -> OutputError:
        return OutputError(f"{self._destination}: can't be written ({e.strerror}); choose another place or make room")


def created_by() -> str:
    try:
        return f"handrail {version('handrail')}"
    except PackageNotFoundError:  # run from its source
        return "handrail"


def check_destination(destination: Path, replace: bool) -> None:
    """Whether a bundle can get this name: asked before hours of work as well. Raises OutputError."""
    if not is_name(destination.name):
        raise OutputError(f"{destination}: expected letters, digits, '.', '_' and '-' in the name of a bundle")
    if not os.path.lexists(destination):
        return
    if not replace:
        raise OutputError(f"{destination}: is there already; choose another name, or say that it is to be replaced")
    # What gives way is deleted: only a bundle may be.
    if destination.is_symlink() or not is_bundle(destination):
        raise OutputError(f"{destination}: expected a bundle to replace, found something else; choose another name")


def _locked(destination: Path) -> int:
    """A descriptor that holds the lock of this destination's writers, until it is closed."""
    path = _lock_of(destination)
    while True:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if path.exists() and os.path.samestat(os.fstat(fd), os.stat(path)):  # not one that its owner just removed
                return fd
        except BlockingIOError as e:
            os.close(fd)
            raise OutputError(f"{destination}: another export is writing there; wait for its end") from e
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)


def is_bundle(folder: Path) -> bool:
    """Whether it looks like one from outside; nothing is verified."""
    try:
        with (folder / MANIFEST).open("rb") as file:
            return begins_sealed(file.read(1000))
    except OSError:
        return False


def _lock_of(destination: Path) -> Path:
    return destination.with_name(f".{destination.name}.lock")


def _sweep(destination: Path) -> None:
    """Remove what killed writers of this name left. Under the lock: none of them lives."""
    prefix = f".{destination.name}.part-"
    for path in destination.parent.iterdir():
        if path.name.startswith(prefix) and path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)


def _settled(path: Path) -> FileEntry:
    """Size and hash of a file that has reached the disk."""
    digest, count = hashlib.sha256(), 0
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(fd, "rb", buffering=0) as file:
        while piece := file.read(PIECE):
            digest.update(piece)
            count += len(piece)
        os.fsync(fd)
    return FileEntry(sha256=digest.hexdigest(), bytes=count)


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _exchange(one: Path, other: Path) -> None:
    """Two folders change names at once (renameat2). Raises OutputError where kernel or file system can't."""
    try:
        renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    except AttributeError:
        code = errno.ENOSYS
    else:
        done = renameat2(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE)
        code = 0 if done == 0 else ctypes.get_errno()
    if code in (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP):
        raise OutputError(f"{other}: this file system can't exchange folders in one step; delete it first, "
                          "or choose another name")
    if code:
        raise OSError(code, os.strerror(code))
