"""What can befall a bundle of model files, one thing at a time and the same for the same numbers.

Three families, with random places: what a disk or a copy does (flipped bits, cut or grown files, missing, renamed and
swapped ones), what somebody puts in (links, pipes, folders, pickles, extra files), and manifests that were edited, as
they are or sealed again, so that only what they say can give them away. Each takes the folder of a copy and dice, and
returns what it did.
"""

from __future__ import annotations

import hashlib
import io
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from handrail.runtime.bundle.manifest import LARGEST_MANIFEST, MANIFEST, seal

Dice = random.Random
Damage = Callable[[Path, Dice], str]


def _any_file(folder: Path, dice: Dice) -> Path:
    return dice.choice(sorted(folder.iterdir()))


def _listed_file(folder: Path, dice: Dice) -> Path:
    return dice.choice(sorted(path for path in folder.iterdir() if path.name != MANIFEST))


def flipped_bit(folder: Path, dice: Dice) -> str:
    path = _any_file(folder, dice)
    content = bytearray(path.read_bytes())
    at = dice.randrange(len(content))
    content[at] ^= 1 << dice.randrange(8)
    path.write_bytes(content)
    return f"a bit of {path.name} at {at}"


def cut(folder: Path, dice: Dice) -> str:
    path = _any_file(folder, dice)
    size = dice.randrange(path.stat().st_size)
    os.truncate(path, size)
    return f"{path.name} cut at {size}"


def grown(folder: Path, dice: Dice) -> str:
    path = _any_file(folder, dice)
    with path.open("ab") as file:
        file.write(dice.randbytes(dice.randrange(1, 5000)))
    return f"{path.name} grown"


def zeroed(folder: Path, dice: Dice) -> str:
    path = _any_file(folder, dice)
    path.write_bytes(bytes(path.stat().st_size))
    return f"{path.name} zeroed"


def missing(folder: Path, dice: Dice) -> str:
    path = _any_file(folder, dice)
    path.unlink()
    return f"{path.name} missing"


def renamed(folder: Path, dice: Dice) -> str:
    path = _any_file(folder, dice)
    path.rename(path.with_name(dice.choice(["x", ".", "-"]) + path.name))
    return f"{path.name} renamed"


def swapped(folder: Path, dice: Dice) -> str:
    one, other = dice.sample(sorted(folder.iterdir()), 2)
    content = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(content)
    return f"{one.name} and {other.name} swapped"


def extra_file(folder: Path, dice: Dice) -> str:
    name = dice.choice(["extra.onnx", "weights.pkl", "model.bin", ".hidden", "x.py", "notes.txt", "op.so", "a b.json"])
    (folder / name).write_bytes(dice.randbytes(dice.randrange(100)))
    return f"{name} put in"


def linked_file(folder: Path, dice: Dice) -> str:
    """The very same content, elsewhere."""
    path = _any_file(folder, dice)
    path.rename(folder.parent / "elsewhere")
    path.symlink_to("../elsewhere")
    return f"{path.name} a link"


def linked_folder(folder: Path, dice: Dice) -> str:
    (folder / "more").symlink_to(dice.choice([".", "..", "/nowhere"]))
    return "a link to a folder put in"


def bundle_a_link(folder: Path, dice: Dice) -> str:
    folder.rename(folder.with_name("real"))
    folder.symlink_to("real")
    return "the folder a link"


def not_a_file(folder: Path, dice: Dice) -> str:
    path = _any_file(folder, dice)
    path.unlink()
    if dice.random() < 0.5:
        os.mkfifo(path)
        return f"{path.name} a pipe"
    path.mkdir()
    return f"{path.name} a folder"


def empty_folder(folder: Path, dice: Dice) -> str:
    name = dice.choice(["empty", "model.onnx", ".git"])
    (folder / name).mkdir()
    return f"empty folder {name} put in"


def edited_text(folder: Path, dice: Dice) -> str:
    """What an editor does: still JSON, still true to the files."""
    path = folder / MANIFEST
    edits = [(b"Apache-2.0", b"MIT"), (b'"layers": 2', b'"layers": 3'), (b"\n}", b"}"), (b": ", b":  ")]
    one, other = dice.choice(edits)
    path.write_bytes(path.read_bytes().replace(one, other, 1))
    return f"manifest: {one!r} now {other!r}"


def other_manifest(folder: Path, dice: Dice) -> str:
    content = dice.choice([b"", b"{}", b"[]", b"null", b"\x00" * 100, b"[" * 200_000, b"x" * (LARGEST_MANIFEST + 1)])
    (folder / MANIFEST).write_bytes(content)
    return f"manifest {content[:10]!r}, {len(content)} bytes"


def sealed_lie(folder: Path, dice: Dice) -> str:
    """An edited manifest with a fitting seal."""
    says = _says(folder)
    what = dice.choice(sorted(LIES))
    LIES[what](says, says["files"], dice.choice(sorted(says["files"])))
    _say(folder, says)
    return f"manifest, sealed again: {what}"


def sealed_nonsense(folder: Path, dice: Dice) -> str:
    """A fitting seal over what is no JSON, or far too deep."""
    deep = b'\n"decoder": ' + b'{"a":' * 100_000
    rest = dice.choice([b'\n"x"', b"\n" + dice.randbytes(50), deep, b'\n"name": "\xff"}'])
    (folder / MANIFEST).write_bytes(seal(rest))
    return f"manifest, sealed: {rest[:12]!r}"


def sealed_array(folder: Path, dice: Dice) -> str:
    """embeddings.npy that numpy would unpickle or misread, with a manifest that vouches for it."""
    arrays: dict[str, Callable[[], Any]] = {
        "objects": lambda: np.array([{}, None], dtype=object),
        "records": lambda: np.zeros(4, dtype=[("a", "f4"), ("b", "O")]),
        "text": lambda: np.array(["a", "b"]),
        "columns": lambda: np.asfortranarray(np.zeros((3, 5))),
        "nothing": lambda: np.zeros((0, 4)),
    }
    what = dice.choice([*sorted(arrays), "cut short", "no array"])
    rows = io.BytesIO()
    np.save(rows, arrays.get(what, lambda: np.ones((9, 4)))(), allow_pickle=True)
    content = rows.getvalue()
    content = content[:-7] if what == "cut short" else b"\x80\x04K\x01." if what == "no array" else content
    (folder / "embeddings.npy").write_bytes(content)
    says = _says(folder)
    says["files"]["embeddings.npy"] = {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}
    _say(folder, says)
    return f"embeddings.npy of {what}, sealed again"


def _says(folder: Path) -> dict[str, Any]:
    says: dict[str, Any] = msgspec.json.decode((folder / MANIFEST).read_bytes())
    del says["manifest_sha256"]
    return says


def _say(folder: Path, says: dict[str, Any]) -> None:
    (folder / MANIFEST).write_bytes(seal(msgspec.json.format(msgspec.json.encode(says), indent=2)[1:] + b"\n"))


Says = dict[str, Any]
LIES: dict[str, Callable[[Says, Says, str], Any]] = {  # what the manifest says, its files, and the name of one
    "an unknown key": lambda says, files, name: says.update(execute="now"),
    "an unknown key of a file": lambda says, files, name: files[name].update(url="x"),
    "another format": lambda says, files, name: says.update(format=2),
    "no licence": lambda says, files, name: says.pop("licence"),
    "no files": lambda says, files, name: says.pop("files"),
    "files a list": lambda says, files, name: says.update(files=sorted(files)),
    "a stage that is none": lambda says, files, name: says.update(stage=3),
    "a stage of another type": lambda says, files, name: says.update(stage="1"),
    "a name with a slash": lambda says, files, name: says.update(name="a/b"),
    "a licence of a million letters": lambda says, files, name: says.update(licence="x" * 1_000_000),
    "a section that is no object": lambda says, files, name: says.update(decoder=[1]),
    "a file less": lambda says, files, name: files.pop(name),
    "a file more": lambda says, files, name: files.update({"more.onnx": files[name]}),
    "itself": lambda says, files, name: files.update({MANIFEST: files[name]}),
    "an absolute name": lambda says, files, name: files.update({"/etc/hostname.txt": files[name]}),
    "a name outside": lambda says, files, name: files.update({"../elsewhere.json": files.pop(name)}),
    "a name in a folder": lambda says, files, name: files.update({"sub/x.json": files[name]}),
    "a name of dots": lambda says, files, name: files.update({"..": files[name]}),
    "a hidden name": lambda says, files, name: files.update({".x.json": files[name]}),
    "a name with a NUL": lambda says, files, name: files.update({"a\x00.json": files[name]}),
    "an empty name": lambda says, files, name: files.update({"": files[name]}),
    "a pickle": lambda says, files, name: files.update({"weights.pkl": files[name]}),
    "a name with a line break": lambda says, files, name: files.update({"a\n.json": files[name]}),
    "another hash": lambda says, files, name: files[name].update(sha256="0" * 64),
    "a short hash": lambda says, files, name: files[name].update(sha256=files[name]["sha256"][:-1]),
    "a shouted hash": lambda says, files, name: files[name].update(sha256="A" * 64),
    "another size": lambda says, files, name: files[name].update(bytes=files[name]["bytes"] + 1),
    "a size below nothing": lambda says, files, name: files[name].update(bytes=-1),
    "a size that is no number": lambda says, files, name: files[name].update(bytes=None),
    "too many files": lambda says, files, name: files.update({f"x{i}.json": files[name] for i in range(1001)}),
}

DAMAGE: tuple[Damage, ...] = (
    flipped_bit, cut, grown, zeroed, missing, renamed, swapped, extra_file, linked_file, linked_folder, bundle_a_link,
    not_a_file, empty_folder, edited_text, other_manifest, sealed_lie, sealed_nonsense, sealed_array,
)  # fmt: skip


def damage(folder: Path, index: int, seed: int = 0) -> str:
    """Damage a copy of a bundle, the same way for the same numbers; returns what was done."""
    dice = random.Random(f"{seed} {index}")  # noqa: S311 - reproducible, not secret
    return DAMAGE[index % len(DAMAGE)](folder, dice)
