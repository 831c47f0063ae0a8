"""``manifest.json``: what a bundle says of itself, and which names its files may have. Opens no file.

The manifest begins with the SHA-256 of everything that follows it in the same file, so that a flipped bit in a licence
line is noticed like one in a weight, and noticed before any JSON is parsed. That tells damage from what was exported;
it does not tell who exported it: whoever writes a bundle can seal it. A bundle is as trustworthy as where it came from.
"""

from __future__ import annotations

import hashlib
import re
from typing import Annotated, Any, Literal

import msgspec

MANIFEST = "manifest.json"
LARGEST_MANIFEST = 1 << 20  # bytes; one with 40 files has 10,000
MOST_FILES = 1000
# No pickle, no archive, and no shared library (custom operators of a graph would come from one): nothing whose reading
# runs code.
SUFFIXES = (".onnx", ".onnx.data", ".npy", ".json", ".jinja", ".txt")

_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,119}")
_SEALED = re.compile(rb'\{\n  "manifest_sha256": "([0-9a-f]{64})",(?=\n)')

Line = Annotated[str, msgspec.Meta(min_length=1, max_length=1000)]
Sha256 = Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{64}\Z")]
Section = dict[str, Any]  # a JSON object that only its reader understands


class Source(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The weights that went in."""

    name: Line  # hub id, package, or name of a folder
    revision: Line | None = None  # commit or version; None where there is none


class FileEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    sha256: Sha256
    bytes: Annotated[int, msgspec.Meta(ge=0, le=1 << 40)]


class About(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All of a manifest but what ``BundleWriter`` finds out itself."""

    name: Annotated[str, msgspec.Meta(pattern=r"\A[A-Za-z0-9][A-Za-z0-9._-]{0,119}\Z")]
    family: Line  # of the backbone: "qwen3-vl", ...
    source: Source
    licence: Line  # of the weights
    provenance: Annotated[tuple[Line, ...], msgspec.Meta(max_length=100)] = ()  # how it came about, line by line
    stage: Literal[0, 1, 2]  # of the fusion: none, 8 sensor tokens, 28 sensor tokens
    quantisation: Line  # of the decoder's weights: "none", "w8", "w4"
    provider: Line  # that the graphs were made for: "cpu", "cuda", "tensorrt"
    decoder: Section = {}
    vision: Section = {}
    tokens: Section = {}
    preprocess: Section = {}
    fusion: Section = {}


class Manifest(About, frozen=True, kw_only=True, forbid_unknown_fields=True):
    manifest_sha256: Sha256  # of the rest of the file; also a short name for the whole bundle
    format: Literal[1]
    created_by: Line  # "handrail 0.1.0"
    files: dict[str, FileEntry]  # every file of the folder but the manifest


def is_name(name: str) -> bool:
    """Whether a bundle may be called so."""
    return _PLAIN.fullmatch(name) is not None


def name_fault(name: str) -> str | None:
    """Why a bundle can't hold a file of this name, or None."""
    if name == MANIFEST:
        return "a manifest can't list itself"
    if not _PLAIN.fullmatch(name):
        return "expected a plain file name: letters, digits, '.', '_' and '-', no folder, no '..', no leading dot"
    if not name.endswith(SUFFIXES):
        return f"expected a file of the kinds {', '.join(SUFFIXES)}; no other has a place in a bundle"
    return None


def sealed(about: About, files: dict[str, FileEntry], created_by: str) -> bytes:
    """The manifest's file content."""
    says = {"format": 1, "created_by": created_by, **msgspec.to_builtins(about), "files": msgspec.to_builtins(files)}
    return seal(msgspec.json.format(msgspec.json.encode(says), indent=2)[1:] + b"\n")


def seal(rest: bytes) -> bytes:
    """A JSON object without its opening brace, from a line break on, with the SHA-256 of it put before."""
    return b'{\n  "manifest_sha256": "%s",' % hashlib.sha256(rest).hexdigest().encode() + rest


def begins_sealed(content: bytes) -> bool:
    """Whether a file with this beginning is meant as a manifest."""
    return _SEALED.match(content) is not None


def parse(content: bytes) -> Manifest:
    """Raises ValueError, whose message says what is wrong; the seal is checked before anything else."""
    seal = _SEALED.match(content)
    if seal is None:
        raise ValueError("it does not begin as manifests do")
    if hashlib.sha256(content[seal.end() :]).hexdigest().encode() != seal[1]:
        raise ValueError("it is not as it was written (its own SHA-256 does not fit)")
    try:
        manifest = msgspec.json.decode(content, type=Manifest)
    except (msgspec.MsgspecError, ValueError, RecursionError) as e:
        raise ValueError(str(e)) from e
    if len(manifest.files) > MOST_FILES:
        raise ValueError(f"it lists {len(manifest.files)} files, expected at most {MOST_FILES}")
    for name in manifest.files:
        if fault := name_fault(name):
            raise ValueError(f"it lists {name!r}: {fault}")
    return manifest
