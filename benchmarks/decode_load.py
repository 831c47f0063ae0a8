"""A process that reads a source in real time and throws it away: the decode cost of a live session, as load."""

from __future__ import annotations

import asyncio
import os
import sys

from handrail.streams.source import DecodePlan, open_source


async def consume(uri: str) -> None:
    os.nice(10)
    async with open_source(uri, DecodePlan(stereo_hz=10.0, rgb_hz=1.0)) as source:
        async for _ in source.samples():
            pass


if __name__ == "__main__":
    asyncio.run(consume(sys.argv[1]))
