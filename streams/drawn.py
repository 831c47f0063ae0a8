"""Simulated walks drawn once and kept as tapes: drawing takes longer than walking, replaying a tape doesn't.

Tapes lie in the user's cache folder under the hash of their URI, the decode plan and the world's own source, so that a
changed world never replays an old walk. Knows nothing of what is done with them.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from handrail.streams import tape, world
from handrail.streams.cache import cache_folder
from handrail.streams.errors import OutputError
from handrail.streams.samples import Sample
from handrail.streams.source import DecodePlan, SourceInfo, open_source
from handrail.streams.tape import write_tape

PLAN = DecodePlan()


def tape_of(
    uri: str, on_open: Callable[[SourceInfo], None] = lambda info: None,
    on_sample: Callable[[Sample], None] = lambda sample: None, plan: DecodePlan = PLAN,
) -> Path:  # fmt: skip
    """The tape of a ``world:`` URI, drawn now if it hasn't been; only then is anybody told of its samples.

    Killed in between, it starts anew. Raises SourceError for a URI that isn't one, OutputError when there is no room.
    """
    name = hashlib.sha256(f"{uri} {plan} {_world_hash()}".encode()).hexdigest()[:24]
    path = cache_folder("tapes") / f"{name}.tape"
    if not path.exists():
        part = path.with_suffix(f".{os.getpid()}.part")
        try:
            asyncio.run(_draw(uri, part, on_open, on_sample, plan))
            part.replace(path)
        except OSError as e:
            raise OutputError(
                f"{path}: can't be written ({e.strerror}); set HANDRAIL_CACHE or XDG_CACHE_HOME to a folder with room"
            ) from e
        finally:
            part.unlink(missing_ok=True)
    return path


async def _draw(
    uri: str, path: Path, on_open: Callable[[SourceInfo], None], on_sample: Callable[[Sample], None], plan: DecodePlan
) -> None:
    async with open_source(uri, plan) as source:
        on_open(source.info)
        captured = getattr(source, "captured")  # noqa: B009 - the world's own, beyond the seam

        async def told() -> AsyncIterator[Sample]:
            async for sample in captured():
                on_sample(sample)
                yield sample

        await write_tape(path, source.info, plan, told())


@functools.cache
def _world_hash() -> str:
    folder = Path(world.__file__).parent
    digest = hashlib.sha256(tape.MAGIC)
    drawn_by = [path for path in folder.glob("*.py") if path.name != "truth.py"]
    for path in sorted([*drawn_by, *folder.glob("*.json")]):
        digest.update(path.read_bytes())
    return digest.hexdigest()
