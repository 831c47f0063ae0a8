"""Faults on purpose: wraps any source's samples and damages those of one component for a span of time.

Each fault is one that glasses, USB, decoders or recordings have shown. Deterministic: the same samples, faults and seed
give the same result. Times are seconds of capture since the first sample. Works on samples by arrival and keeps them so
(in order of ``host_ns``). Doesn't know what the damage should lead to.
"""

from __future__ import annotations

import heapq
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from handrail.streams.clock import NS_PER_S, now_ns, sleep_until_ns
from handrail.streams.damage import What, damaged, frozen, shifted
from handrail.streams.errors import ConfigError
from handrail.streams.samples import ImageFrame, Kind, Notice, Payload, Sample
from handrail.streams.source import Source, SourceInfo

__all__ = ["SUPPORTED", "Fault", "FaultySource", "What", "inject", "outages"]

_ANY = frozenset({
    What.GAP, What.FREEZE, What.DUPLICATE, What.REORDER, What.CLOCK_FORWARD, What.CLOCK_BACK, What.DELAYED,
})
_IMAGE = _ANY | {What.BLACK, What.SATURATED, What.WRONG_SHAPE, What.TRUNCATED}
SUPPORTED: dict[Kind, frozenset[What]] = {
    Kind.RGB: _IMAGE,
    Kind.SLAM: _IMAGE,
    Kind.IMU: _ANY | {What.NAN, What.SATURATED, What.WRONG_SHAPE, What.TRUNCATED},
    Kind.AUDIO: _ANY | {What.SATURATED, What.WRONG_SHAPE, What.TRUNCATED},
    Kind.GAZE: _ANY | {What.NAN},
    Kind.POSE: _ANY | {What.NAN, What.WRONG_SHAPE, What.TRUNCATED},
}


@dataclass(frozen=True, slots=True)
class Fault:
    """One component, one fault, one span. Raises ConfigError for a pair that can't be, or an empty span."""

    component: Kind
    what: What
    from_s: float
    to_s: float
    amount_s: float = 3.0  # of a delay or a jump of the clock
    share: float = 1.0  # of the samples in the span that are hit, drawn with the seed

    def __post_init__(self) -> None:
        if self.what not in SUPPORTED.get(self.component, ()):
            known = ", ".join(f"{kind} x {{{', '.join(sorted(whats))}}}" for kind, whats in SUPPORTED.items())
            raise ConfigError(f"fault: expected one of {known}; got {self.component} x {self.what}")
        if not self.from_s < self.to_s or self.amount_s < 0 or not 0 < self.share <= 1:
            raise ConfigError(f"fault: expected from_s < to_s, amount_s >= 0 and 0 < share <= 1, got {self}")


async def inject(
    samples: AsyncIterator[Sample], faults: Sequence[Fault], seed: int = 0, first_device_ns: int | None = None
) -> AsyncIterator[Sample]:
    """The samples by arrival with each fault applied to what the one before it left. Spans count from
    ``first_device_ns``, by default the first sample's. What is held back comes out before the end."""
    damages: list[_Damage] = []
    end: Sample | None = None
    async for sample in samples:
        if not damages:
            first_ns = sample.device_ns if first_device_ns is None else first_device_ns
            damages = [_Damage(fault, first_ns, np.random.default_rng((seed, i))) for i, fault in enumerate(faults)]
        if isinstance(sample.payload, Notice) and sample.payload.what == "end":
            end = sample
            continue
        for arriving in _through(damages, [sample]):
            yield arriving
    for i, damage in enumerate(damages):
        for arriving in _through(damages[i + 1 :], damage.rest()):
            await sleep_until_ns(arriving.host_ns)
            yield arriving
    if end is not None:
        yield replace(end, host_ns=max(end.host_ns, now_ns()))


class FaultySource:
    """A source with faults: give it to a session in the place of the source itself."""

    def __init__(self, source: Source, faults: Sequence[Fault], seed: int = 0) -> None:
        self._source, self._faults, self._seed = source, tuple(faults), seed

    @property
    def info(self) -> SourceInfo:
        return self._source.info

    def samples(self) -> AsyncIterator[Sample]:
        return inject(self._source.samples(), self._faults, self._seed, self.info.first_device_ns)


def outages(source: Source, spans: Sequence[tuple[float, float]]) -> FaultySource:
    """No frame of the cameras that look outwards in any of the spans (from_s, to_s); all else goes on."""
    cameras = (Kind.RGB, Kind.SLAM)
    return FaultySource(source, [Fault(kind, What.GAP, *span) for span in spans for kind in cameras])


def _through(damages: Sequence[_Damage], samples: list[Sample]) -> list[Sample]:
    for damage in damages:
        samples = [arriving for sample in samples for arriving in damage.push(sample)]
    return samples


class _Damage:
    """One fault at work: what it holds back, what it froze, whom it hits."""

    def __init__(self, fault: Fault, first_device_ns: int, random: np.random.Generator) -> None:
        self._fault, self._random = fault, random
        self._from_ns = first_device_ns + round(fault.from_s * NS_PER_S)
        self._to_ns = first_device_ns + round(fault.to_s * NS_PER_S)
        self._amount_ns = round(fault.amount_s * NS_PER_S)
        self._delayed: list[tuple[int, int, Sample]] = []  # heap of (due, sequence, sample)
        self._overtaken: dict[str, Sample] = {}  # label -> waits for its neighbour
        self._frozen: dict[str, Payload] = {}
        self._sequence = 0

    def push(self, sample: Sample) -> list[Sample]:
        """What arrives now that this sample has come, in order of arrival."""
        out: list[Sample] = []
        while self._delayed and self._delayed[0][0] <= sample.host_ns:
            out.append(heapq.heappop(self._delayed)[2])
        overtaken = self._overtaken.pop(sample.stream.label, None)
        if overtaken is not None:
            return [*out, sample, replace(overtaken, host_ns=sample.host_ns)]
        if not self._hits(sample):
            return [*out, sample]
        match self._fault.what:
            case What.GAP:
                return out
            case What.DUPLICATE:
                return [*out, sample, sample]
            case What.REORDER:
                self._overtaken[sample.stream.label] = sample
                return out
            case What.DELAYED:
                late = replace(sample, host_ns=sample.host_ns + self._amount_ns)
                heapq.heappush(self._delayed, (late.host_ns, self._sequence, late))
                self._sequence += 1
                return out
            case _:
                return [*out, self._changed(sample)]

    def rest(self) -> list[Sample]:
        """All that is still held back, by arrival."""
        late = [sample for _, _, sample in sorted(self._delayed, key=lambda held: held[:2])]
        return [*self._overtaken.values(), *late]

    def _hits(self, sample: Sample) -> bool:
        return (
            sample.stream.kind is self._fault.component
            and not isinstance(sample.payload, Notice)
            and self._from_ns <= sample.device_ns < self._to_ns
            and (self._fault.share == 1.0 or self._random.random() < self._fault.share)
        )

    def _changed(self, sample: Sample) -> Sample:
        match self._fault.what:
            case What.CLOCK_FORWARD:
                return shifted(sample, self._amount_ns)
            case What.CLOCK_BACK:
                return shifted(sample, -self._amount_ns)
            case What.FREEZE:
                first = sample.payload
                if not (isinstance(first, ImageFrame) and first.pixels is None):
                    first = self._frozen.setdefault(sample.stream.label, first)
                return replace(sample, payload=frozen(sample.payload, first))
            case what:
                return replace(sample, payload=damaged(sample.payload, what, self._random))
