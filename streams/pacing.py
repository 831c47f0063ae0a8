"""Turns samples in capture order into samples by arrival on the running loop. Used by recordings and the world alike.

A sample arrives at its capture plus its stream's delay; ties are broken by ``(due, label, sequence)`` so that a replay
is the same every time. Loop time at the first pull corresponds to ``first_device_ns``.
"""

from __future__ import annotations

import heapq
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace

from handrail.streams.clock import now_ns, sleep_until_ns
from handrail.streams.samples import Kind, Notice, Sample
from handrail.streams.source import DECLARED_DELAY_MS


async def paced(
    captured: AsyncIterator[Sample],
    first_device_ns: int,
    delay_ms: Mapping[Kind, float] = DECLARED_DELAY_MS,
) -> AsyncIterator[Sample]:
    """Yield each sample at its arrival with ``host_ns`` set to it. ``captured`` must come in order of ``device_ns``.

    A closing ``Notice("end")`` arrives after all that was captured before it, whatever the delays.
    """
    start_ns = now_ns()
    waiting: list[tuple[int, str, int, Sample]] = []
    shortest_ns = int(min(delay_ms.values()) * 1e6)
    sequence = 0
    end: Sample | None = None
    async for sample in captured:
        if isinstance(sample.payload, Notice) and sample.payload.what == "end":
            end = sample
            continue
        due = start_ns + sample.device_ns - first_device_ns + int(delay_ms[sample.stream.kind] * 1e6)
        heapq.heappush(waiting, (due, sample.stream.label, sequence, sample))
        sequence += 1
        earliest_later = start_ns + sample.device_ns - first_device_ns + shortest_ns
        while waiting and waiting[0][0] < earliest_later:  # what comes may be due at that very time
            yield await _arrive(waiting)
    while waiting:
        yield await _arrive(waiting)
    if end is not None:
        yield replace(end, host_ns=now_ns())


async def _arrive(waiting: list[tuple[int, str, int, Sample]]) -> Sample:
    due, _, _, sample = heapq.heappop(waiting)
    await sleep_until_ns(due)
    return replace(sample, host_ns=now_ns())
