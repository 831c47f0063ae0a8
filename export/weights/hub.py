"""A model hub, or a mirror of it, over plain HTTP: the list of a repository's files, and one file at a time.

Layout, as the hub's own client has it: ``{HF_ENDPOINT}/api/models/{id}/revision/{commit}?blobs=true`` lists the files,
``{HF_ENDPOINT}/{id}/resolve/{commit}/{file}`` gives one, perhaps by a redirect. Only weights in safetensors, and text,
are ever asked for: no ``.bin``, ``.pt`` or other pickle, no code.

Why not that client (``huggingface_hub``; its 2.4 was read): it compares sizes but not SHA-256, throws away what a
failed or killed download had brought, and comes with transformers, which fetching doesn't need. Here a download goes on
where it stopped, also after a kill, and nothing gets its name before its hash is right.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote

import msgspec

from handrail.export.weights.registry import PIECE, Hub, Pin, Progress
from handrail.export.weights.remote import Passing, endpoint, opened, read
from handrail.streams.errors import ModelError, OutputError

PAUSES_S = (1.0, 3.0, 10.0)  # before each new try when the last one brought nothing
SUFFIXES = (".safetensors", ".json", ".txt", ".jinja", ".model")
MOST_FILES = 500
_LARGEST_LISTING = 16 << 20
_LARGEST_FILE = 100 << 30
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,119}")
_MEND = "check the network and HF_ENDPOINT, then run the same command again"


class _Lfs(msgspec.Struct):
    sha256: str
    size: int


class _Sibling(msgspec.Struct):
    rfilename: str
    size: int | None = None
    blobId: str | None = None
    lfs: _Lfs | None = None


class _Info(msgspec.Struct):
    sha: str
    siblings: list[_Sibling]


def file_url(model: Hub, commit: str, file: str) -> str:
    return f"{endpoint()}/{quote(model.id)}/resolve/{commit}/{quote(file)}"


def listing(model: Hub, commit: str) -> dict[str, Pin]:
    """The files to fetch and what the hub says of each. Raises ModelError."""
    url = f"{endpoint()}/api/models/{quote(model.id)}/revision/{commit}?blobs=true"
    content = b""
    try:
        with opened(url) as answer:
            while len(content) <= _LARGEST_LISTING and (piece := read(answer)):
                content += piece
        info = msgspec.json.decode(content, type=_Info)
    except Passing as e:
        raise ModelError(f"{url}: {e}; {_MEND}") from e
    except (msgspec.MsgspecError, ValueError, RecursionError) as e:
        raise ModelError(f"{url}: expected a list of files, got something else ({e}); check HF_ENDPOINT") from e
    if info.sha != commit:
        raise ModelError(f"{model.id}: asked for commit {commit}, the hub answers for {info.sha[:60]!r}; check "
                         "--revision")
    pins = {s.rfilename: _pin(model, s) for s in info.siblings if _wanted(s.rfilename)}
    if "config.json" not in pins or not any(file.endswith(".safetensors") for file in pins):
        raise ModelError(f"{model.id}: expected config.json and weights in safetensors, found "
                         f"{', '.join(sorted(pins)[:8]) or 'nothing of use'}; check --revision")
    if len(pins) > MOST_FILES:
        raise ModelError(f"{model.id}: expected at most {MOST_FILES} files, the hub lists {len(pins)}; check "
                         "--revision")
    return dict(sorted(pins.items(), key=lambda item: (item[1].bytes, item[0])))  # small ones first: errors come early


def download(url: str, path: Path, pin: Pin, progress: Progress) -> str:
    """Fetch one file to ``path``; returns its SHA-256. Goes on with ``path + '.part'`` where there is one.

    Raises ModelError (unreachable, not allowed, not what was pinned), OutputError (no room).
    """
    try:
        with _Part(path, pin, progress) as part:
            _complete(url, part)
            return part.finish()
    except OSError as e:
        raise OutputError(f"{path}: can't be written ({e.strerror}); make room or set HANDRAIL_CACHE") from e


def _wanted(file: str) -> bool:
    """Top-level files of known kinds: other folders hold other formats of the same weights."""
    return bool(_PLAIN.fullmatch(file)) and file.endswith(SUFFIXES)


def _pin(model: Hub, sibling: _Sibling) -> Pin:
    called = f"{model.id}/{sibling.rfilename}"
    size = sibling.lfs.size if sibling.lfs else sibling.size
    sha256 = sibling.lfs.sha256 if sibling.lfs else None
    git = None if sibling.lfs else sibling.blobId
    if size is None or not 0 <= size <= _LARGEST_FILE:
        raise ModelError(f"{called}: expected its size from the hub, got {size}; check HF_ENDPOINT")
    for hash_, length in ((sha256, 64), (git, 40)):
        if hash_ is not None and not re.fullmatch(f"[0-9a-f]{{{length}}}", hash_):
            raise ModelError(f"{called}: the hub gives {hash_[:80]!r} as its hash; check HF_ENDPOINT")
    return Pin(size, sha256, git)


# One file


class _Part:
    """What has come of a file so far, on disk and in the hashes."""

    def __init__(self, path: Path, pin: Pin, progress: Progress) -> None:
        self.path = path
        self.pin = pin
        self.bytes = 0
        self._progress = progress
        self._part = path.with_name(path.name + ".part")
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        self._file: BinaryIO = open(os.open(self._part, flags, 0o644), "r+b")
        self._new_hashes()
        while piece := self._file.read(PIECE):
            self._count(piece)
        if self.bytes > pin.bytes:
            self.restart()

    def restart(self) -> None:
        self._file.seek(0)
        self._file.truncate()
        self.bytes = 0
        self._new_hashes()

    def add(self, piece: bytes) -> None:
        self._file.write(piece)
        self._file.flush()  # what has come survives a kill
        self._count(piece)

    def finish(self) -> str:
        """Check the content, put it on disk, give it its name."""
        sha256 = self._sha256.hexdigest()
        if sha256 != (self.pin.sha256 or sha256) or (self._git and self._git.hexdigest() != self.pin.git_sha1):
            self.restart()
            promised = f"SHA-256 {self.pin.sha256}" if self.pin.sha256 else f"git hash {self.pin.git_sha1}"
            raise ModelError(f"{self.path.name}: what came is not what was promised ({promised}); it was thrown away: "
                             "fetch again, and if it stays so, don't use that mirror")
        self._file.flush()
        os.fsync(self._file.fileno())
        self._part.replace(self.path)
        return sha256

    def _new_hashes(self) -> None:
        self._sha256 = hashlib.sha256()
        head = b"blob %d\0" % self.pin.bytes  # as git hashes it
        self._git = hashlib.sha1(head, usedforsecurity=False) if self.pin.git_sha1 else None

    def _count(self, piece: bytes) -> None:
        self._sha256.update(piece)
        if self._git:
            self._git.update(piece)
        self.bytes += len(piece)
        self._progress(self.bytes, self.pin.bytes)

    def __enter__(self) -> _Part:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()


def _complete(url: str, part: _Part) -> None:
    """Ask again from where it broke off, for as long as something comes."""
    left, furthest = list(PAUSES_S), part.bytes
    while part.bytes < part.pin.bytes:
        try:
            _receive(url, part)
            reason = "the connection ended"
        except Passing as e:
            reason = str(e)
        if part.bytes > furthest:
            furthest, left = part.bytes, list(PAUSES_S)
        elif left:
            time.sleep(left.pop(0))
        else:
            raise ModelError(f"{url}: {reason} at byte {part.bytes} of {part.pin.bytes}; {_MEND}: it goes on there")


def _receive(url: str, part: _Part) -> None:
    """One answer, until it ends, however it ends."""
    start, size = part.bytes, part.pin.bytes
    with opened(url, start) as answer:
        if start and answer.status == 200:  # it can only give all of it
            part.restart()
        elif start and (given := answer.getheader("Content-Range")) != f"bytes {start}-{size - 1}/{size}":
            raise ModelError(f"{url}: asked for bytes {start}-{size - 1}/{size}, got {given!r}; check HF_ENDPOINT")
        if answer.getheader("Content-Encoding", "identity") != "identity":
            raise ModelError(f"{url}: expected the file as it is, got it encoded; check HF_ENDPOINT")
        if answer.length is not None and part.bytes + answer.length != size:
            raise _wrong_size(url, part, part.bytes + answer.length)
        while piece := read(answer):
            if part.bytes + len(piece) > size:
                raise _wrong_size(url, part, part.bytes + len(piece))
            part.add(piece)


def _wrong_size(url: str, part: _Part, found: int) -> ModelError:
    return ModelError(f"{url}: expected {part.pin.bytes} bytes, as the hub's list says, got {found}; check HF_ENDPOINT")
