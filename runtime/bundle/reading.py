"""Opens a bundle: the folder holds exactly the files of its manifest, each with its size and SHA-256, or it is refused
before any of them is parsed. Knows nothing of what is in the files, but that arrays hold numbers.

No link is followed: files are opened by their name in the one folder that was opened first. What can't be closed is the
time between verifying and reading, since ONNX Runtime opens files by path. It is made small: ``Bundle.path`` refuses a
file that isn't the very one which was verified (inode, size and times of change), ``Bundle.read`` hashes once more what
it read, ``Bundle.embeddings`` maps the file that it has checked. Somebody who may write in the folder and does so in
the instant after ``path`` is not found out.
"""

from __future__ import annotations

import errno
import hashlib
import math
import os
import re
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from handrail.runtime.bundle.manifest import LARGEST_MANIFEST, MANIFEST, MOST_FILES, FileEntry, Manifest, parse
from handrail.streams.errors import BundleError

PIECE = 1 << 20  # bytes hashed at a time
COPY, EXPORT = "copy the bundle again", "export it again"

Progress = Callable[[int, int], None]  # bytes done, bytes in all

# The header that numpy.save writes (format 1.0), for plain numbers in row order. It is matched, not evaluated.
_NPY = re.compile(
    rb"\x93NUMPY\x01\x00(..)\{'descr': '([<|][biuf][0-9]{1,2})', 'fortran_order': False, "
    rb"'shape': \(([0-9]{1,15}(?:, [0-9]{1,15}){0,7}),?\), \} *\n",
    re.DOTALL,
)
_LONGEST_NPY_HEADER = 512


class Stamp(NamedTuple):
    """One state of one file: any write, rename over it or change of its mode makes another."""

    device: int
    inode: int
    bytes: int
    modified_ns: int
    changed_ns: int

    @staticmethod
    def of(status: os.stat_result) -> Stamp:
        return Stamp(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


@dataclass(frozen=True, slots=True)
class Bundle:
    """A bundle whose every byte was verified when it was opened."""

    folder: Path
    manifest: Manifest
    _stamps: dict[str, Stamp] = field(repr=False)

    def path(self, name: str) -> Path:
        """For readers that take a path. Raises BundleError when the file isn't there as it was verified."""
        self._same(name, None)
        path = self.folder / name
        try:
            now = Stamp.of(os.stat(path, follow_symlinks=False))
        except OSError as e:
            _refuse(self.folder, name, f"is gone since the bundle was opened ({e.strerror})", "start again")
        self._same(name, now)
        return path

    def read(self, name: str) -> bytes:
        """A whole file, for those that fit in memory. Raises BundleError."""
        with self._open(name) as file:
            content = file.read()
        if hashlib.sha256(content).hexdigest() != self.manifest.files[name].sha256:
            _refuse(self.folder, name, "was changed since the bundle was opened", "start again")
        return content

    def embeddings(self, name: str = "embeddings.npy") -> NDArray[Any]:
        """An array [rows, ...] mapped from its file, read-only: rows come from disk as they are looked up.

        Raises BundleError.
        """
        with self._open(name) as file:
            header = _npy_header(file.read(_LONGEST_NPY_HEADER))
            assert header is not None  # checked when the bundle was opened
            dtype, shape, offset = header
            return np.memmap(file, dtype=dtype, mode="r", offset=offset, shape=shape)

    def _open(self, name: str) -> BinaryIO:
        self._same(name, None)
        with _opened(self.folder, self.folder) as folder:
            file = _open_file(folder, name, self.folder)
        try:
            self._same(name, Stamp.of(os.fstat(file.fileno())))
        except BundleError:
            file.close()
            raise
        return file

    def _same(self, name: str, now: Stamp | None) -> None:
        if name not in self._stamps:
            have = ", ".join(sorted(self._stamps)) or "none"
            _refuse(self.folder, name, f"is not in this bundle; its files: {have}", "export it with that part")
        if now is not None and now != self._stamps[name]:
            _refuse(self.folder, name, "was changed since the bundle was opened", "start again")


def open_bundle(folder: Path, progress: Progress | None = None) -> Bundle:
    """Raises BundleError: one line with the file's name, what is wrong with it and what to do."""
    manifest, stamps = verified(folder, folder, progress)
    return Bundle(Path(os.path.abspath(folder)), manifest, stamps)


def verified(folder: Path, called: Path, progress: Progress | None = None) -> tuple[Manifest, dict[str, Stamp]]:
    """``open_bundle`` for a folder that is called something else in messages."""
    with _opened(folder, called) as fd:
        found = _entries(fd, called)
        manifest = _manifest(fd, called, found)
        _check_names(called, manifest, found)
        total = sum(entry.bytes for entry in manifest.files.values())
        stamps, done = {}, 0
        for name, entry in sorted(manifest.files.items()):
            with _open_file(fd, name, called) as file:
                stamps[name] = Stamp.of(os.fstat(file.fileno()))
                for count in _hashed(file, entry, called, name):
                    done += count
                    if progress is not None:
                        progress(done, total)
                if Stamp.of(os.fstat(file.fileno())) != stamps[name]:
                    _refuse(called, name, "was written to while it was verified", "wait for its writer, start again")
                if name.endswith(".npy"):
                    _check_array(file, entry, called, name)
    return manifest, stamps


# Steps


@contextmanager
def _opened(folder: Path, called: Path) -> Iterator[int]:
    """A descriptor of the folder itself: what is then opened in it can't be moved to another."""
    try:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except (OSError, ValueError) as e:  # ValueError: a NUL in the name
        if isinstance(e, FileNotFoundError):
            raise BundleError(f"{called}: expected a bundle, found nothing; make one with `handrail export`") from e
        if isinstance(e, NotADirectoryError) or getattr(e, "errno", None) == errno.ELOOP:
            kind = "a link; name the folder that it points to" if folder.is_symlink() else "a file; name its folder"
            raise BundleError(f"{called}: expected a bundle's folder, found {kind}") from e
        reason = getattr(e, "strerror", None) or e
        raise BundleError(f"{called}: can't be opened ({reason}); check who may read it") from e
    try:
        yield fd
    except OSError as e:
        raise BundleError(f"{called}: can't be read ({e.strerror}); {COPY}") from e
    finally:
        os.close(fd)


def _entries(fd: int, called: Path) -> dict[str, os.stat_result]:
    """What lies in the folder: plain files and nothing else."""
    found: dict[str, os.stat_result] = {}
    with os.scandir(fd) as entries:
        for entry in entries:
            status = entry.stat(follow_symlinks=False)
            if not stat.S_ISREG(status.st_mode):
                _refuse(called, entry.name, f"is {_kind(status.st_mode)}; a bundle holds plain files alone",
                        f"remove it, or {COPY}")
            found[entry.name] = status
            if len(found) > MOST_FILES + 1:
                raise BundleError(f"{called}: expected a bundle, found more than {MOST_FILES} files; {COPY}")
    return found


def _manifest(fd: int, called: Path, found: dict[str, os.stat_result]) -> Manifest:
    if MANIFEST not in found:
        _refuse(called, MANIFEST, "is missing: this is no bundle, or half of one", COPY)
    if found[MANIFEST].st_size > LARGEST_MANIFEST:
        _refuse(called, MANIFEST, f"has {found[MANIFEST].st_size} bytes, expected at most {LARGEST_MANIFEST}", EXPORT)
    with _open_file(fd, MANIFEST, called) as file:
        content = file.read(LARGEST_MANIFEST)
    try:
        return parse(content)
    except ValueError as e:
        raise BundleError(f"{called / MANIFEST}: {e}; {COPY}, or {EXPORT}") from e


def _check_names(called: Path, manifest: Manifest, found: dict[str, os.stat_result]) -> None:
    for name in sorted(manifest.files.keys() - found.keys()):
        _refuse(called, name, "is missing", COPY)
    for name in sorted(found.keys() - manifest.files.keys() - {MANIFEST}):
        _refuse(called, name, "is not in the manifest", f"remove it, or {COPY}")
    for name, entry in sorted(manifest.files.items()):
        if (size := found[name].st_size) != entry.bytes:
            _refuse(called, name, f"has {size} bytes, the manifest says {entry.bytes}", COPY)


def _hashed(file: BinaryIO, entry: FileEntry, called: Path, name: str) -> Iterator[int]:
    """Read to the end, giving the bytes of each piece."""
    digest, left = hashlib.sha256(), entry.bytes
    while piece := file.read(PIECE):
        left -= len(piece)
        if left < 0:  # it grows while it is read
            break
        digest.update(piece)
        yield len(piece)
    if left or digest.hexdigest() != entry.sha256:
        _refuse(called, name, "is damaged: its SHA-256 is not the manifest's", COPY)


def _check_array(file: BinaryIO, entry: FileEntry, called: Path, name: str) -> None:
    file.seek(0)
    header = _npy_header(file.read(_LONGEST_NPY_HEADER))
    if header is None:
        _refuse(called, name, "expected an array of numbers in row order, as numpy.save writes it, and found another "
                "header (arrays of objects are pickles)", EXPORT)
    dtype, shape, offset = header
    if (expected := offset + dtype.itemsize * math.prod(shape)) != entry.bytes:
        _refuse(called, name, f"has {entry.bytes} bytes, its header asks for {expected}", EXPORT)


def _npy_header(start: bytes) -> tuple[np.dtype[Any], tuple[int, ...], int] | None:
    """Type, shape and the offset of the first number; None for anything but a plain, not empty array of numbers."""
    found = _NPY.match(start)
    if found is None or int.from_bytes(found[1], "little") + 10 != found.end():
        return None
    try:
        dtype = np.dtype(found[2].decode())
    except TypeError:
        return None
    shape = tuple(int(n) for n in found[3].split(b", "))
    return (dtype, shape, found.end()) if all(shape) else None


def _open_file(fd: int, name: str, called: Path) -> BinaryIO:
    """Unbuffered. Neither waits for a pipe's other end nor follows a link, should the file have become one."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        file: BinaryIO = open(os.open(name, flags, dir_fd=fd), "rb", buffering=0)
    except OSError as e:
        _refuse(called, name, f"can't be opened ({e.strerror})", f"check who may read it, or {COPY}")
    if not stat.S_ISREG(mode := os.fstat(file.fileno()).st_mode):
        file.close()
        _refuse(called, name, f"has become {_kind(mode)}", COPY)
    return file


def _kind(mode: int) -> str:
    kinds = ((stat.S_ISLNK, "a link"), (stat.S_ISDIR, "a folder"), (stat.S_ISFIFO, "a pipe"))
    return next((kind for is_kind, kind in kinds if is_kind(mode)), "a device or socket")


def _refuse(called: Path, name: str, fault: str, mend: str) -> NoReturn:
    raise BundleError(f"{called / name}: {fault}; {mend}")
