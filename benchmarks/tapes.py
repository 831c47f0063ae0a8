"""Simulated walks rendered once and kept: rendering takes longer than walking, replaying a tape doesn't.

Tapes lie in the user's cache folder under the hash of their URI, the decode plan and the world's own source, so that a
changed world never replays an old walk.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import os
from pathlib import Path

from handrail.streams import tape, world
from handrail.streams.source import DecodePlan, open_source
from handrail.streams.tape import write_tape

PLAN = DecodePlan()


def cache_folder() -> Path:
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "handrail" / "tapes"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def tape_of(uri: str) -> Path:
    """The tape of a ``world:`` URI, rendered now if it hasn't been. Killed in between, it starts anew."""
    name = hashlib.sha256(f"{uri} {PLAN} {_world_hash()}".encode()).hexdigest()[:24]
    path = cache_folder() / f"{name}.tape"
    if not path.exists():
        part = path.with_suffix(f".{os.getpid()}.part")
        asyncio.run(_render(uri, part))
        part.replace(path)
    return path


async def _render(uri: str, path: Path) -> None:
    async with open_source(uri, PLAN) as source:
        captured = getattr(source, "captured")  # noqa: B009 - the world's own, beyond the seam
        await write_tape(path, source.info, PLAN, captured())


@functools.cache
def _world_hash() -> str:
    folder = Path(world.__file__).parent
    digest = hashlib.sha256(tape.MAGIC)
    drawn_by = [path for path in folder.glob("*.py") if path.name != "truth.py"]
    for path in sorted([*drawn_by, *folder.glob("*.json")]):
        digest.update(path.read_bytes())
    return digest.hexdigest()
