"""Checkpoints of a training: folders of safetensors and JSON, whole or not there, checked before anything is parsed.

    step-000400/
        checkpoint.json          what was trained, how, and how far (``Header``)
        weights.safetensors      what is trained alone: LoRA adapters and fusion network, by parameter name
        optimizer.safetensors    AdamW's moments, "<parameter name>/exp_avg", ...
        random.safetensors       states of the random generators of torch, CUDA, numpy and Python
        statistics.json          masked mean and std of the training split
        files.json               SHA-256 and size of each of the others

The frozen backbone is not in it: the header names it by family, source and a hash of its configuration. Written into a
hidden folder beside, flushed to disk and renamed. Knows no model: names and tensors pass through.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from safetensors import SafetensorError
from safetensors.torch import load as parse_tensors
from safetensors.torch import save as tensor_bytes
from torch import Tensor

from handrail.streams.errors import CheckpointError, OutputError

FORMAT = 1
FILES = ("checkpoint.json", "optimizer.safetensors", "random.safetensors", "statistics.json", "weights.safetensors")
_NAME = re.compile(r"step-(\d{6,12})")

Tensors = dict[str, Tensor]


class BackboneId(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which frozen backbone. ``config_sha256`` covers its configuration, size of frames and tokens included;
    ``weights_sha256`` all its weights as bfloat16, in which they may have been loaded."""

    family: str
    source: str
    revision: str | None  # of a hub id
    side: int  # of frames, pixels
    config_sha256: str
    weights_sha256: str

    def __str__(self) -> str:
        return (
            f"{self.family} from {self.source} (configuration {self.config_sha256[:12]}, "
            f"weights {self.weights_sha256[:12]})"
        )


class Header(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``checkpoint.json``."""

    format: int
    stage: int
    step: int  # steps done; the next one is step + 1
    examples_seen: int  # position in the shuffled data
    backbone: BackboneId
    settings: dict[str, Any]  # of the training, see ``training.Settings``
    data_sha256: str  # of the training split: clips, questions, answers, in order
    imu_encoder_sha256: str | None  # of the PRIMUS weights; None: trained without the IMU stream
    generators: dict[str, Any]  # what of the random states isn't a tensor


@dataclass(frozen=True, slots=True)
class Checkpoint:
    header: Header
    weights: Tensors
    optimizer: Tensors
    random: Tensors
    statistics: dict[str, Any]


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    sha256: str
    bytes: int


def write_checkpoint(folder: Path, checkpoint: Checkpoint, keep: int) -> Path:
    """``folder/step-N`` with the checkpoint; of all there, only the ``keep`` newest (and this one) stay.

    Raises OutputError when it can't be written; then what was there before still is.
    """
    final = folder / f"step-{checkpoint.header.step:06d}"
    part = folder / f".{final.name}.part"
    contents = {
        "checkpoint.json": _json(checkpoint.header), "statistics.json": _json(checkpoint.statistics),
        "weights.safetensors": tensor_bytes(checkpoint.weights),
        "optimizer.safetensors": tensor_bytes(checkpoint.optimizer),
        "random.safetensors": tensor_bytes(checkpoint.random),
    }  # fmt: skip
    contents["files.json"] = _json({name: _file(content) for name, content in contents.items()})
    try:
        folder.mkdir(parents=True, exist_ok=True)
        remove_leftovers(folder)
        part.mkdir()
        for name, content in contents.items():
            _write(part / name, content)
        _put_in_place(part, final)
    except OSError as e:
        shutil.rmtree(part, ignore_errors=True)
        raise OutputError(f"{final}: the checkpoint can't be written ({e.strerror}); make room") from e
    for _, old in list(checkpoints(folder))[:-keep]:
        if old != final:
            shutil.rmtree(old, ignore_errors=True)
    return final


def read_checkpoint(folder: Path) -> Checkpoint:
    """Every file is checked against its size and hash before any is parsed. Raises CheckpointError naming the file."""
    contents = _checked(folder)
    try:
        header = msgspec.json.decode(contents["checkpoint.json"], type=Header)
        statistics = msgspec.json.decode(contents["statistics.json"], type=dict[str, Any])
        weights, optimizer, random = (
            parse_tensors(contents[f"{name}.safetensors"]) for name in ("weights", "optimizer", "random")
        )
    except (msgspec.DecodeError, UnicodeDecodeError, SafetensorError, ValueError) as e:
        raise CheckpointError(f"{folder}: expected a checkpoint of handrail, got something else ({e})") from e
    if header.format != FORMAT:
        raise CheckpointError(f"{folder}: expected a checkpoint of format {FORMAT}, found {header.format}")
    return Checkpoint(header, weights, optimizer, random, statistics)


def checkpoints(folder: Path) -> Iterator[tuple[int, Path]]:
    """Those in a folder by rising step; hidden ones, half-written, don't count."""
    found = []
    if folder.is_dir():
        for path in folder.iterdir():
            match = _NAME.fullmatch(path.name)
            if match is not None and path.is_dir():
                found.append((int(match[1]), path))
    return iter(sorted(found))


def newest_checkpoint(path: Path) -> Path:
    """``path`` itself where it is a checkpoint, else the newest one in it. Raises CheckpointError where none is."""
    if _NAME.fullmatch(path.name) or (path / "checkpoint.json").exists():
        return path
    found = [folder for _, folder in checkpoints(path)]
    if not found:
        raise CheckpointError(f"{path}: expected a checkpoint or a folder of them (step-000400, ...), found none")
    return found[-1]


def remove_leftovers(folder: Path) -> None:
    """What a killed process left half-written or half-removed; one that was put aside and not replaced comes back."""
    for path in folder.glob(".step-*.part"):
        shutil.rmtree(path)
    for path in folder.glob(".step-*.old"):
        final = path.with_name(path.stem[1:])
        if final.exists():
            shutil.rmtree(path)
        else:
            path.replace(final)


def same_or_refuse(where: Path, what: str, expected: object, found: object, mend: str = "") -> None:
    """Raises CheckpointError when a checkpoint isn't of what is being trained."""
    if expected != found:
        advice = f"; {mend}" if mend else ""
        raise CheckpointError(f"{where}: {what}: expected {_brief(expected)}, found {_brief(found)}{advice}")


def tensors_or_refuse(where: Path, expected: Mapping[str, Tensor], found: Mapping[str, Tensor]) -> None:
    """Raises CheckpointError when names or shapes of weights differ."""
    for name in sorted({*expected, *found}):
        ours, theirs = (tuple(t[name].shape) if name in t else "none" for t in (expected, found))
        same_or_refuse(where, f"weights of {name}", ours, theirs)


# ---- on disk ---------------------------------------------------------------------------------------------------------


def _checked(folder: Path) -> dict[str, bytes]:
    """Every file's content. Raises CheckpointError for one that is missing, extra, a link, or not what was written."""
    if not folder.is_dir():
        raise CheckpointError(f"{folder}: expected a checkpoint, which is a folder; there is none")
    there = {path.name for path in folder.iterdir()}
    if odd := sorted(there ^ {*FILES, "files.json"}):
        what = "it is missing" if odd[0] not in there else "it doesn't belong there"
        raise CheckpointError(f"{folder}: damaged checkpoint: {odd[0]}: {what}")
    contents = {name: _read(folder / name) for name in (*FILES, "files.json")}
    try:
        listed = msgspec.json.decode(contents.pop("files.json"), type=dict[str, _File])
    except (msgspec.DecodeError, UnicodeDecodeError) as e:
        raise CheckpointError(f"{folder}: damaged checkpoint: files.json: {e}") from e
    if set(listed) != set(FILES):
        raise CheckpointError(f"{folder}: damaged checkpoint: files.json: expected {', '.join(FILES)}")
    for name, content in contents.items():
        expected, found = listed[name], _file(content)
        if found != expected:
            raise CheckpointError(
                f"{folder}: damaged checkpoint: {name}: expected {expected.bytes} bytes with SHA-256 "
                f"{expected.sha256[:12]}, found {found.bytes} with {found.sha256[:12]}; name an older one instead"
            )
    return contents


def _read(path: Path) -> bytes:
    if path.is_symlink() or not path.is_file():
        raise CheckpointError(f"{path.parent}: damaged checkpoint: {path.name}: expected a file, found something else")
    try:
        return path.read_bytes()
    except OSError as e:
        raise CheckpointError(f"{path}: can't be read ({e.strerror})") from e


def _file(content: bytes) -> _File:
    return _File(hashlib.sha256(content).hexdigest(), len(content))


def _json(value: object) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"


def _write(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _put_in_place(part: Path, final: Path) -> None:
    """A folder can't be renamed over another: one of the same step goes aside first."""
    old = final.with_name(f".{final.name}.old")
    if final.exists():
        final.replace(old)
    part.replace(final)
    if old.exists():
        shutil.rmtree(old)
    descriptor = os.open(final.parent, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _brief(value: object) -> str:
    text = str(value)
    return text if len(text) <= 120 else text[:117] + "..."
