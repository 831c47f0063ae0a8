"""A tape gives back what was put on it, bit for bit, or says that it is damaged."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import struct
import zlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from handrail.streams import samples as kinds
from handrail.streams.clock import run_virtual
from handrail.streams.errors import OutputError, SourceError
from handrail.streams.samples import Kind, Payload, Sample, Stream
from handrail.streams.source import DecodePlan, SourceInfo, open_source
from handrail.streams.tape import MAGIC, open_tape, write_tape
from handrail.streams.world.scenario import load_rig
from handrail.streams.world.source import WorldSource, open_world

PLAN = DecodePlan(stereo_hz=2.0, rgb_hz=1.0, rgb_at_s=(0.5,))


async def _all(samples: AsyncIterator[Sample]) -> list[Sample]:
    return [sample async for sample in samples]


async def _from(samples: list[Sample]) -> AsyncIterator[Sample]:
    for sample in samples:
        yield sample


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray):
        return isinstance(b, np.ndarray) and a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if dataclasses.is_dataclass(a):
        return type(a) is type(b) and all(
            _same(getattr(a, f.name), getattr(b, f.name)) for f in dataclasses.fields(a)
        )
    return bool(a == b)


def _info() -> SourceInfo:
    return SourceInfo("test:1", load_rig(2), (Stream("any", Kind.OTHER),), 0, 1.0, True, ("a note",))


def _keep(path: Path, payloads: list[Payload]) -> None:
    samples = [Sample(Stream("any", Kind.OTHER), 1000 * i, 0, p) for i, p in enumerate(payloads)]
    asyncio.run(write_tape(path, _info(), PLAN, _from(samples)))


def _play(path: Path) -> list[Sample]:
    async def main() -> list[Sample]:
        async with open_source(f"tape:{path}", PLAN) as source:
            return await _all(source.samples())

    return run_virtual(main())


@pytest.fixture(scope="module")
def walk(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Sample], SourceInfo]:
    """A tape of a short walk, and what the walk itself delivers."""
    path = tmp_path_factory.mktemp("tape") / "walk.tape"

    async def main() -> tuple[list[Sample], SourceInfo]:
        async with open_world("3", PLAN, {"seconds": "2", "kind": "free"}) as world:
            assert isinstance(world, WorldSource)
            await write_tape(path, world.info, PLAN, world.captured())
            return await _all(world.samples()), world.info

    samples, info = run_virtual(main())
    return path, samples, info


def test_a_tape_delivers_what_the_source_delivers_at_the_same_times(
    walk: tuple[Path, list[Sample], SourceInfo],
) -> None:
    path, live, _ = walk
    played = _play(path)
    assert len(played) == len(live) > 400
    assert sum(isinstance(s.payload, kinds.ImageFrame) and s.payload.pixels is not None for s in live) >= 8
    assert all(_same(a, b) for a, b in zip(live, played, strict=True))


def test_a_tape_says_what_its_source_says_of_itself(walk: tuple[Path, list[Sample], SourceInfo]) -> None:
    path, _, info = walk

    async def main() -> SourceInfo:
        async with open_source(f"tape:{path}", PLAN) as source:
            return source.info

    taped = run_virtual(main())
    assert taped.rig.to_json() == info.rig.to_json()
    for name in ("uri", "streams", "first_device_ns", "duration_s", "recorded", "notes"):
        assert getattr(taped, name) == getattr(info, name)


def test_every_kind_of_payload_survives(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    ns = np.arange(3, dtype=np.int64)
    hand = kinds.Hand(0.5, rng.normal(size=(21, 3)), rng.normal(size=3), rng.normal(size=3), None)
    payloads: list[Payload] = [
        kinds.ImageFrame(rng.integers(0, 256, (5, 7), dtype=np.uint8), 7, 5, 0.001, 1.5, 4),
        kinds.ImageFrame(rng.integers(0, 256, (5, 7, 3), dtype=np.uint8), 7, 5, 0.001, 1.5, 4),
        kinds.ImageFrame(None, 7, 5, 0.001, 1.5, 5),
        kinds.ImuBatch(ns, rng.normal(size=(3, 3)), np.full((3, 3), np.nan)),
        kinds.MagBatch(ns, rng.normal(size=(3, 3))),
        kinds.BaroBatch(ns, rng.normal(size=3), rng.normal(size=3)),
        kinds.AudioBlock(rng.integers(-9, 9, (4, 2), dtype=np.int32), 48000.0, 7),
        kinds.Gaze(0.1, 0.2, None, 0.0, 0.2, 0.1, 0.3),
        kinds.Hands(hand, None),
        kinds.PoseBatch(
            ns, rng.normal(size=(3, 3)), rng.normal(size=(3, 4)), rng.normal(size=(3, 3)), rng.normal(size=(3, 3)),
            rng.normal(size=3), rng.normal(size=3), True,
        ),
        kinds.Other(9),
        kinds.Notice("seam", "lap 2"),
        kinds.Notice("end", "over"),
    ]
    _keep(tmp_path / "t", payloads)
    played = [s.payload for s in _play(tmp_path / "t")]
    assert all(_same(a, b) for a, b in zip(payloads, played, strict=True))


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tape") / "small.tape"
    picture = np.arange(256, dtype=np.uint8).reshape(16, 16)
    _keep(path, [kinds.ImageFrame(picture, 16, 16, 0.001, 1.0, 0), kinds.Other(1), kinds.Notice("end", "over")])
    return path


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.data())
def test_one_wrong_byte_anywhere_is_a_clear_error(small: Path, tmp_path: Path, data: st.DataObject) -> None:
    content = bytearray(small.read_bytes())
    at = data.draw(st.integers(0, len(content) - 1))
    content[at] ^= data.draw(st.integers(1, 255))
    (tmp_path / "t").write_bytes(content)
    with pytest.raises(SourceError):
        _play(tmp_path / "t")


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.data())
def test_a_tape_cut_off_anywhere_is_a_clear_error(small: Path, tmp_path: Path, data: st.DataObject) -> None:
    content = small.read_bytes()
    (tmp_path / "t").write_bytes(content[: data.draw(st.integers(0, len(content) - 1))])
    with pytest.raises(SourceError):
        _play(tmp_path / "t")


def test_a_record_that_is_whole_but_makes_no_sense_is_a_clear_error(tmp_path: Path) -> None:
    """A CRC guards against damage, not against a file made by something else."""
    def record(value: Any) -> bytes:
        body = msgspec.msgpack.encode(value)
        return struct.pack("<II", len(body), zlib.crc32(body)) + body

    nonsense: list[Any] = [{"info": 3}, [], {"info": {"rig": {}}, "plan": {}}, None]
    for first in nonsense:
        (tmp_path / "t").write_bytes(MAGIC + record(first) + record({"samples": 0}))
        with pytest.raises(SourceError):
            _play(tmp_path / "t")


def test_a_tape_for_another_plan_is_refused(small: Path) -> None:
    async def main() -> None:
        async with open_source(f"tape:{small}", DecodePlan(stereo_hz=30.0)):
            pass

    with pytest.raises(SourceError, match=r"made for .*2\.0.* not .*30\.0"):
        run_virtual(main())


@pytest.mark.parametrize("uri", ["tape:absent.tape", "tape:.", "tape:{small}?loop=2"])
def test_what_cannot_be_opened_is_named(small: Path, uri: str) -> None:
    async def main() -> None:
        async with open_source(uri.format(small=small), PLAN):
            pass

    with pytest.raises(SourceError, match=r"absent.tape|can't be read|'loop'"):
        run_virtual(main())


def test_samples_out_of_order_are_refused_and_leave_no_file(tmp_path: Path) -> None:
    samples = [Sample(Stream("any", Kind.OTHER), ns, 0, kinds.Other(1)) for ns in (5, 4)]
    with pytest.raises(OutputError, match="order of capture"):
        asyncio.run(write_tape(tmp_path / "t", _info(), PLAN, _from(samples)))
    assert list(tmp_path.iterdir()) == []


def test_a_pipe_is_no_tape_and_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.tape")

    async def play() -> None:
        async with open_tape(str(tmp_path / "pipe.tape"), DecodePlan(), {}):
            pass

    with pytest.raises(SourceError, match="got a pipe"):
        asyncio.run(play())


def test_a_folder_that_is_not_there_is_an_output_error(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="can't be written"):
        asyncio.run(write_tape(tmp_path / "absent" / "t", _info(), PLAN, _from([])))
