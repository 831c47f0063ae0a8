"""Damaged copies of real recordings, each pulled to its end: the main process must live and every end must be told.

    result = run_damage(500, seed=0)

Four kinds of damage in turn: one byte, a burst of 64 bytes, a block of 4 KiB zeroed, the file cut short. The native
readers die on some of them; what is shown here is that the process which speaks to the wearer does not. Everything is
pulled on a virtual loop in this very process. Knows nothing of what is done with samples.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from handrail.streams.clock import run_virtual
from handrail.streams.errors import HandrailError, MissingDependencyError
from handrail.streams.samples import Notice
from handrail.streams.source import DecodePlan, open_source

KINDS = ("byte", "burst", "zeroed", "truncated")
EVERYTHING = DecodePlan(stereo_hz=30.0, rgb_hz=10.0)  # most native code per copy
RECORDINGS = Path(__file__).resolve().parent.parent.parent / "shared" / "data" / "aria"


@dataclass(slots=True)
class DamageResult:
    count: int
    seed: int
    refused: int = 0  # one clear error at the opening
    faulted: int = 0  # read, with at least one Notice("fault")
    whole: int = 0  # read without a fault: the damage lay where nobody looks, or is truncation that left whole records
    failures: list[str] = field(default_factory=list)  # one line each: which copy, and what went wrong
    messages: dict[str, str] = field(default_factory=dict)  # copy -> its error or first fault

    @property
    def passed(self) -> bool:
        return not self.failures and self.refused + self.faulted + self.whole == self.count


def recordings() -> list[Path]:
    """The real recordings lying beside the repository; empty where there are none."""
    return sorted(RECORDINGS.glob("gen*/*.vrs"))


def run_damage(count: int, seed: int, originals: Sequence[Path] | None = None) -> DamageResult:
    """Raises FileNotFoundError where there are no recordings, MissingDependencyError without projectaria_tools."""
    originals = recordings() if originals is None else originals
    if not originals:
        raise FileNotFoundError(f"expected recordings in {RECORDINGS}, found none")
    result = DamageResult(count, seed)
    with tempfile.TemporaryDirectory(prefix="handrail-damage-") as folder:
        for name, content in damaged(originals, count, seed):
            copy = Path(folder) / "copy.vrs"
            copy.write_bytes(content)
            _judge(name, copy, result)
    return result


def damaged(originals: Sequence[Path], count: int, seed: int) -> Iterator[tuple[str, bytes]]:
    """Name and content of each copy; the same for the same seed."""
    dice = random.Random(seed)  # noqa: S311 - reproducible, not secret
    contents = [path.read_bytes() for path in originals]
    for i in range(count):
        kind, which = KINDS[i % len(KINDS)], (i // len(KINDS)) % len(contents)
        content = bytearray(contents[which])
        at = dice.randrange(len(content))
        match kind:
            case "byte":
                content[at] ^= dice.randrange(1, 256)
            case "burst":
                content[at : at + 64] = dice.randbytes(len(content[at : at + 64]))
            case "zeroed":
                content[at : at + 4096] = bytes(len(content[at : at + 4096]))
            case _:
                del content[at:]
        yield f"{i}: {originals[which].name}, {kind} at {at}", bytes(content)


def _judge(name: str, copy: Path, result: DamageResult) -> None:
    try:
        faults = run_virtual(_pull(f"vrs:{copy}"))
    except MissingDependencyError:
        raise
    except HandrailError as e:
        result.refused += 1
        result.messages[name] = str(e).replace(str(copy), copy.name)
        if "\n" in str(e):
            result.failures.append(f"{name}: more than one line: {str(e)!r}")
    except Exception as e:  # whatever else comes out is what this looks for
        result.failures.append(f"{name}: {type(e).__name__}: {e}")
    else:
        result.faulted += bool(faults)
        result.whole += not faults
        if faults:
            result.messages[name] = faults[0]


async def _pull(uri: str) -> list[str]:
    """Read to the end; the faults told. Raises AssertionError where the stream of samples breaks its word."""
    faults: list[str] = []
    ended, host_ns = False, 0
    async with open_source(uri, EVERYTHING) as source:
        async for sample in source.samples():
            assert not ended and sample.host_ns >= host_ns, "samples after the end or out of order"
            host_ns = sample.host_ns
            if isinstance(sample.payload, Notice):
                ended = sample.payload.what == "end"
                faults += [sample.payload.detail] if sample.payload.what == "fault" else []
    assert ended, "no Notice('end')"
    return faults
