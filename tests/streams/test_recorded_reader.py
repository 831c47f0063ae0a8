"""The wire, the ring of frames and the decoding plan hold for any input; a record that kills the reader is skipped."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from handrail.streams.child import Child
from handrail.streams.clock import run_virtual
from handrail.streams.errors import SourceError
from handrail.streams.reader import process, wire
from handrail.streams.reader.chatter import Chatter, one_line
from handrail.streams.reader.order import in_order, lap_shift_ns
from handrail.streams.reader.plan import planned_frames, thinned
from handrail.streams.samples import Kind, Notice
from handrail.streams.source import DecodePlan, open_source

GEN2 = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "aria" / "gen2" / "corridor_profile8.vrs"
needs_recordings = pytest.mark.skipif(not GEN2.is_file(), reason="real recordings are not beside the repository")

# ---- the ring --------------------------------------------------------------------------------------------------------


@pytest.fixture
def rings() -> Iterator[tuple[wire.FrameRing, wire.FrameRing]]:
    """The child's end and the main process's end of the same memory."""
    fd = wire.FrameRing.create_fd()
    child, main = wire.FrameRing(fd), wire.FrameRing(fd)
    yield child, main
    child.close()
    main.close()
    os.close(fd)


def test_a_frame_comes_out_as_it_went_in_and_is_a_copy(rings: tuple[wire.FrameRing, wire.FrameRing]) -> None:
    child, main = rings
    noise = np.random.default_rng(0)
    grey, colour = (noise.integers(0, 255, shape, dtype=np.uint8) for shape in ((48, 64), (31, 17, 3)))
    slots = [child.put(frame) for frame in (grey, colour)]
    assert None not in slots
    taken = [main.take(slot) for slot in slots if slot is not None]
    child.rewind()
    child.put(np.zeros((48, 64), dtype=np.uint8))
    assert np.array_equal(taken[0], grey) and np.array_equal(taken[1], colour)


def test_a_frame_that_was_overwritten_is_an_error_and_never_pixels(
    rings: tuple[wire.FrameRing, wire.FrameRing],
) -> None:
    child, main = rings
    old = child.put(np.ones((4, 4), dtype=np.uint8))
    child.rewind()
    new = child.put(np.zeros((4, 4), dtype=np.uint8))
    assert old is not None and new is not None
    with pytest.raises(SourceError, match="overwritten"):
        main.take(old)
    assert main.take(new).sum() == 0
    child._generations[new.index] += 1  # odd: the child died while it was writing
    with pytest.raises(SourceError, match="overwritten"):
        main.take(new)
    child.rewind()
    again = child.put(np.full((4, 4), 7, dtype=np.uint8))  # the next child finds the odd generation and goes on
    assert again is not None and main.take(again).min() == 7


def test_a_full_ring_refuses_and_room_is_known_before(rings: tuple[wire.FrameRing, wire.FrameRing]) -> None:
    child, _ = rings
    big = np.zeros((2880, 2880, 3), dtype=np.uint8)
    assert child.has_room(4) and not child.has_room(10)
    assert [child.put(big) is not None for _ in range(5)] == [True, True, True, True, False]
    child.rewind()
    small = np.zeros((2, 2), dtype=np.uint8)
    assert sum(child.put(small) is not None for _ in range(100)) == wire.FrameRing.SLOTS


@given(
    index=st.integers(-(2**40), 2**40), generation=st.integers(-5, 5), offset=st.integers(-(2**62), 2**62),
    shape=st.lists(st.integers(-3, 2**40), max_size=4),
)  # fmt: skip
@settings(max_examples=200, deadline=None)
def test_no_slot_of_the_wire_reads_outside_the_ring(
    index: int, generation: int, offset: int, shape: list[int]
) -> None:
    fd = wire.FrameRing.create_fd()
    ring = wire.FrameRing(fd)
    try:
        ring.take(wire.Slot(index, generation, offset, tuple(shape)))
    except SourceError:
        pass
    finally:
        ring.close()
        os.close(fd)


def test_a_broken_child_cannot_shrink_the_memory_that_is_mapped() -> None:
    fd = wire.FrameRing.create_fd()
    with pytest.raises(PermissionError):
        os.ftruncate(fd, 0)
    os.close(fd)


# ---- the wire --------------------------------------------------------------------------------------------------------


@given(st.binary(max_size=200))
@settings(max_examples=300, deadline=None)
def test_bytes_that_are_no_answer_are_one_error(message: bytes) -> None:
    with pytest.raises(SourceError, match="broke its protocol"):
        wire.decode_answer(message)


plain = st.none() | st.integers(-5, 2**40) | st.text(max_size=9) | st.binary(max_size=9)
nested = st.recursive(plain, lambda v: st.lists(v, max_size=4) | st.dictionaries(st.text(max_size=9), v, max_size=4))


@given(nested)
@settings(max_examples=200, deadline=None)
def test_well_formed_messages_of_another_kind_are_one_error(message: Any) -> None:
    with pytest.raises(SourceError, match="broke its protocol"):
        wire.decode_answer(msgspec.msgpack.encode(message))


@given(times=st.binary(max_size=64), values=st.binary(max_size=256), width=st.integers(1, 6))
@settings(max_examples=300, deadline=None)
def test_packed_numbers_are_rows_or_one_error(times: bytes, values: bytes, width: int) -> None:
    item = wire.Readings(0, 0, times, values)
    try:
        t, v = wire.unpack_readings(item, width)
    except SourceError:
        assert len(times) % 8 or not times or len(values) != len(times) * width
    else:
        assert v.shape == (len(t), width) and t.tobytes() == times and v.tobytes() == values


# ---- the order of time -----------------------------------------------------------------------------------------------

any_time = st.integers(-1, 10**11) | st.sampled_from([-1, 2**62, 2**40])
written_times = st.lists(st.lists(any_time, max_size=30).map(lambda t: np.array(t, np.int64)), max_size=5)


@given(written_times)
@settings(max_examples=300, deadline=None)
def test_every_record_has_one_place_in_time_or_is_counted_as_having_none(times: list[Any]) -> None:
    order = in_order(times)
    assert np.all(np.diff(order.time) >= 0)
    assert len(order.time) + sum(order.unplaced) == sum(map(len, times))
    seen = list(zip(order.stream.tolist(), order.index.tolist(), strict=True))
    assert len(set(seen)) == len(seen)
    assert all(times[stream][index] == t for t, (stream, index) in zip(order.time.tolist(), seen, strict=True))
    assert not len(order.time) or (order.time[0] >= 0 and np.diff(order.time).max(initial=0) <= 60_000_000_000)


def test_one_flipped_bit_in_a_time_does_not_make_the_wearer_wait_for_years() -> None:
    times = np.arange(100, dtype=np.int64) * 10_000_000 + 7 * 10**12
    times[40] ^= 1 << 60
    times[50] = -1
    times[60], times[61] = times[61], times[60]  # written out of order
    order = in_order([times])
    assert order.unplaced == (2,) and order.time[-1] - order.time[0] == 990_000_000
    assert order.index.tolist()[58:60] == [61, 60]


def test_laps_do_not_overlap_and_the_pair_keeps_its_rhythm() -> None:
    camera, imu = np.arange(9, dtype=np.int64) * 33_000_000, np.arange(230, dtype=np.int64) * 1_250_000
    assert lap_shift_ns(in_order([camera, imu]), [0]) == 9 * 33_000_000
    assert lap_shift_ns(in_order([camera, np.arange(400, dtype=np.int64) * 1_250_000]), [0]) == 400 * 1_250_000
    assert lap_shift_ns(in_order([np.array([5], np.int64)]), [0]) == 1_250_000


# ---- the plan --------------------------------------------------------------------------------------------------------

capture_times = st.lists(st.integers(0, 10**10), max_size=60, unique=True).map(lambda t: np.array(sorted(t), np.int64))


@given(times=capture_times, rate_hz=st.floats(0.1, 60.0))
@settings(max_examples=200, deadline=None)
def test_a_thinned_camera_never_exceeds_its_rate_by_more_than_jitter(times: Any, rate_hz: float) -> None:
    chosen = times[thinned(times, rate_hz)]
    if len(times):
        assert chosen[0] == times[0]
        spacing = np.median(np.diff(times)) if len(times) > 1 else 1e8
        assert np.all(np.diff(chosen) >= 1e9 / rate_hz - spacing / 4 - 1)


@given(left=capture_times, right=capture_times, rate_hz=st.floats(0.1, 60.0))
@settings(max_examples=200, deadline=None)
def test_the_pair_is_planned_in_step_whatever_the_two_cameras_times(left: Any, right: Any, rate_hz: float) -> None:
    times, kinds = {"l": left, "r": right}, {"l": Kind.SLAM, "r": Kind.SLAM}
    masks = planned_frames(DecodePlan(stereo_hz=rate_hz), kinds, times, ("l", "r"))
    chosen = left[masks["l"]]
    if not len(chosen):
        assert not masks["r"].any()
    for t in chosen:
        assert np.abs(right[masks["r"]] - t).min() <= 0.4 * (np.median(np.diff(left)) if len(left) > 1 else 1e8)


@given(times=capture_times, at_s=st.lists(st.floats(0, 20), max_size=5), start_ns=st.integers(0, 10**9))
def test_single_rgb_frames_are_the_last_ones_captured_by_then(times: Any, at_s: list[float], start_ns: int) -> None:
    plan = DecodePlan(stereo_hz=0.0, rgb_at_s=tuple(at_s))
    masks = planned_frames(plan, {"rgb": Kind.RGB, "l": Kind.SLAM}, {"rgb": times, "l": times}, None, None, start_ns)
    assert not masks["l"].any()
    expected = set()
    for s in at_s:
        by_then = np.flatnonzero(times <= start_ns + round(s * 1e9))
        expected |= {int(by_then[-1]) if len(by_then) else 0} if len(times) else set()
    assert set(np.flatnonzero(masks["rgb"]).tolist()) == expected


def test_ten_hertz_of_thirty_is_every_third_frame_despite_jitter() -> None:
    jitter = np.random.default_rng(1).integers(-400_000, 400_000, 300)
    times = np.arange(300, dtype=np.int64) * 33_333_333 + jitter
    assert np.flatnonzero(thinned(times, 10.0)).tolist() == list(range(0, 300, 3))
    assert thinned(times, 30.0).all() and not thinned(times, 0.0).any()
    assert np.flatnonzero(thinned(times, 10.0, last=int(times[0]) - 33_000_000))[0] == 2


# ---- what native code prints -----------------------------------------------------------------------------------------


def test_complaints_are_told_once_and_harmless_chatter_never() -> None:
    fd = Chatter.create_fd()
    chatter = Chatter(fd)
    os.write(fd, b"\x1b[0m[XPRS][WARNING]: Loading CUDA functions failed\n[VrsDataProvider][INFO]: no error here\n")
    assert chatter.complaints() == []
    os.write(fd, b"Corrupt JPEG data: premature end\n")
    assert chatter.complaints() == ["Corrupt JPEG data: premature end"]
    assert chatter.complaints() == []
    chatter.clear()
    os.write(fd, b"[X][ERROR]: a\x07b\n")
    assert chatter.complaints() == ["[X][ERROR]: a?b"]
    os.close(fd)


@given(st.text())
def test_any_native_message_becomes_one_short_printable_line(text: str) -> None:
    line = one_line(text)
    assert line and line.isprintable() and len(line) <= 200


# ---- a record that kills ---------------------------------------------------------------------------------------------

DYING = """
import os, resource, sys, time
from handrail.streams.reader import __main__ as child, recording

resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
real = recording.Recording._native

def native(self, position, read, *args):
    if position == {position}:
        self._ring.progress = position
        {how}
    return real(self, position, read, *args)

recording.Recording._native = native
child.main()
"""


@needs_recordings
@pytest.mark.parametrize("how", ["os.abort()", "os.kill(os.getpid(), 11)", "time.sleep(99)"])
def test_a_record_that_kills_or_hangs_the_reader_costs_itself_alone(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "dying_reader.py").write_text(textwrap.dedent(DYING.format(position=100, how=how)))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(process, "Child", lambda module, *args, **kw: Child("dying_reader", *args, **kw))
    monkeypatch.setattr(process, "ANSWER_LIMIT_S", 3.0)

    async def main() -> tuple[int, list[str], str]:
        count, faults = 0, []
        async with open_source(f"vrs:{GEN2}?loop=2", DecodePlan()) as source:
            async for sample in source.samples():
                count += sample.count
                if isinstance(sample.payload, Notice):
                    faults += [sample.payload.detail] if sample.payload.what == "fault" else []
                    last = sample.payload.what
        return count, faults, last

    count, faults, last = run_virtual(main())
    assert count == 2 * (951 - 1)  # one record in each lap
    assert sum("started again" in line for line in faults) == 2  # the second lap skips it without dying
    assert sum("1 unreadable record (the reader died on it)" in line for line in faults) == 2
    assert last == "end"


@needs_recordings
def test_a_reader_that_never_gets_anywhere_is_given_up_with_a_fault_and_an_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    helper = DYING.replace("position == {position}", "position >= 50").format(position=0, how="os.abort()")
    (tmp_path / "dying_reader.py").write_text(helper)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(process, "Child", lambda module, *args, **kw: Child("dying_reader", *args, **kw))
    monkeypatch.setattr(process, "DEATHS_IN_A_ROW", 4)

    async def main() -> list[Notice]:
        async with open_source(f"vrs:{GEN2}?loop=9", DecodePlan()) as source:
            return [s.payload async for s in source.samples() if isinstance(s.payload, Notice)]

    notices = run_virtual(main())
    assert [n.what for n in notices] == ["fault", "end"]
    assert "given up" in notices[0].detail and "can't be read any further" in notices[1].detail
