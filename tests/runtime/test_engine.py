"""The engine: what is in the cache already isn't read again, whatever came before; cancelled within one job."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Coroutine
from typing import Any, TypeVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from handrail.runtime.declared import Declared
from handrail.runtime.engine.engine import PIECE, Engine
from handrail.runtime.engine.features import FRAMES, LONGEST_NS, Encoded, FeatureCache, Sampling
from handrail.runtime.engine.prompt import F32, I64, Features, Laid, Sensed, lay, pieces, shared
from handrail.runtime.engine.worker import InlineWorker, ThreadWorker, Worker
from handrail.streams.clock import NS_PER_S, now_ns, run_virtual
from handrail.streams.errors import ConfigError, InputError

T = TypeVar("T")
D, VOCABULARY, END, IMAGE, SENSOR = 4, 50, 0, 7, 8
DECLARED = Declared(60, 15, 100, 10, 1, 20, 70, 1200)


class RememberingDecoder:
    """Scores depend on all that it holds and on nothing else; counts what it was given to read."""

    context = 4096

    def __init__(self) -> None:
        self.held: list[float] = []
        self.read_tokens = 0
        self.longest_piece = 0
        self.fails = False

    def rewind(self, length: int) -> None:
        assert length <= len(self.held)
        del self.held[length:]

    def read(self, embeds: F32, places: I64, frames: I64, deepstack: F32 | None = None) -> F32:
        if self.fails:
            raise RuntimeError("out of memory")
        self.held += [float(e.sum()) + 3.0 * float(p) for e, p in zip(embeds, places[0], strict=True)]
        self.read_tokens += len(embeds)
        self.longest_piece = max(self.longest_piece, len(embeds))
        best = hash(tuple(round(h, 3) for h in self.held)) % (VOCABULARY - 1) + 1  # never the end
        scores = np.zeros(VOCABULARY, np.float32)
        scores[best] = 1.0
        return scores


def embed(ids: Any) -> F32:
    return np.stack([np.full(D, float(i), np.float32) for i in ids])


def laid(ids: list[int], frames: tuple[Features, ...] = (), sensed: tuple[Sensed, ...] = ()) -> Laid:
    return lay(np.array(ids, np.int64), frames, sensed, embed=embed, image_id=IMAGE, sensor_id=SENSOR, grid=None)


def frame(serial: int, tokens: int = 3) -> Features:
    return Features(serial, np.full((tokens, D), 100.0 + serial, np.float32))


def engine(decoder: RememberingDecoder, worker: Worker | None = None) -> Engine:
    return Engine(decoder, worker or InlineWorker(lambda what, ms: None), embed, (END,), DECLARED)


async def answer(e: Engine, prompt: Laid, most: int = 12) -> tuple[list[int], int]:
    reused = await e.prefill(prompt)
    return [token async for token in e.tokens(prompt, most)], reused


def run(work: Coroutine[Any, Any, T]) -> T:
    return run_virtual(work)


words = st.lists(st.integers(10, 40), min_size=1, max_size=30)


@given(st.lists(words, min_size=1, max_size=6), words)
def test_an_answer_does_not_depend_on_what_was_asked_before(before: list[list[int]], asked: list[int]) -> None:
    async def both() -> tuple[list[int], list[int]]:
        used, fresh = engine(RememberingDecoder()), engine(RememberingDecoder())
        for ids in before:
            await answer(used, laid(ids))
        return (await answer(used, laid(asked)))[0], (await answer(fresh, laid(asked)))[0]

    with_cache, without = run(both())
    assert with_cache == without and len(without) == 12


@given(words, words, words)
def test_what_two_prompts_begin_with_is_read_once(fixed: list[int], first: list[int], second: list[int]) -> None:
    async def asked() -> tuple[int, int]:
        decoder = RememberingDecoder()
        e = engine(decoder)
        await e.prefill(laid(fixed + first))
        read = decoder.read_tokens
        reused = await e.prefill(laid(fixed + second))
        return reused, decoder.read_tokens - read

    reused, read = run(asked())
    assert reused >= min(len(fixed), len(fixed + second) - 1)
    assert reused + read == len(fixed + second)


def test_frames_are_the_same_by_their_serial_and_not_by_their_place() -> None:
    ids = [1, IMAGE, IMAGE, IMAGE, 2, SENSOR, SENSOR, 3]
    sensed = Sensed(9, np.full((2, D), 5.0, np.float32))
    one, same, other = (laid(ids, (frame(s),), (sensed,)) for s in (4, 4, 5))
    assert shared(one.keys, same.keys) == len(ids)
    assert shared(one.keys, other.keys) == 1
    moved_on = laid(ids, (frame(4),), (Sensed(10, sensed.tokens),))
    assert shared(one.keys, moved_on.keys) == 5


def test_frames_and_sensors_stand_at_their_places() -> None:
    prompt = laid([1, IMAGE, IMAGE, IMAGE, 2, SENSOR, SENSOR, 3], (frame(4),), (Sensed(9, np.full((2, D), 5.0)),))
    assert prompt.embeds[:, 0].tolist() == [1, 104, 104, 104, 2, 5, 5, 3]
    assert prompt.frames.tolist() == [-1, 0, 0, 0, -1, -1, -1, -1] and prompt.next_place == 8


@pytest.mark.parametrize("frames, sensed", [((), ()), ((frame(1), frame(2)), ())])
def test_more_or_fewer_frames_than_places_are_refused(frames: Any, sensed: Any) -> None:
    with pytest.raises(InputError, match="places for image tokens"):
        laid([1, IMAGE, IMAGE, IMAGE, 2], frames, sensed)


@given(st.lists(st.integers(1, 9), max_size=12), st.integers(1, 8), st.booleans(), st.data())
def test_pieces_of_a_prompt_leave_out_nothing_and_cut_no_frame(
    sizes: list[int], size: int, whole: bool, data: st.DataObject
) -> None:
    frames = np.array([f for i, n in enumerate(sizes) for f in [-1, *[i] * n]] + [-1])
    start = data.draw(st.integers(0, len(frames) - 1))
    found = pieces(frames, start, size, whole_frames=whole)
    assert [i for p in found for i in range(p.start, p.stop)] == list(range(start, len(frames)))
    for p in found[:-1] if whole else []:
        assert frames[p.stop] < 0 or frames[p.stop] != frames[p.stop - 1]
    if not whole:
        assert all(p.stop - p.start <= size for p in found)


def test_a_long_prompt_is_read_in_pieces_so_that_cancelling_needn_t_wait_for_all_of_it() -> None:
    decoder = RememberingDecoder()
    run(engine(decoder).prefill(laid(list(range(10, 40)) * 40)))
    assert decoder.read_tokens == 1200 and decoder.longest_piece == PIECE


@pytest.mark.parametrize("length", [0, RememberingDecoder.context, 5000])
def test_a_prompt_without_room_for_an_answer_is_refused(length: int) -> None:
    empty = laid([1])
    prompt = Laid(
        *(np.resize(a, (length, *a.shape[1:])) for a in (empty.ids, empty.keys, empty.embeds)),
        np.zeros((1, length), np.int64), np.full(length, -1), None, length,
    )  # fmt: skip
    with pytest.raises(InputError, match="tokens"):
        run(engine(RememberingDecoder()).prefill(prompt))


def test_stages_take_their_declared_times_on_virtual_time() -> None:
    async def asked() -> tuple[float, float]:
        e, prompt = engine(RememberingDecoder()), laid(list(range(10, 40)))
        await e.prefill(prompt)
        read_ns = now_ns()
        tokens = [token async for token in e.tokens(prompt, 10)]
        assert len(tokens) == 10
        return read_ns / 1e6, (now_ns() - read_ns) / 1e6

    assert run(asked()) == (pytest.approx(30.0), pytest.approx(200.0))


@pytest.mark.parametrize("at", range(8))
@pytest.mark.parametrize("virtual", [True, False])
def test_cancelled_at_any_token_it_computes_no_more_and_the_next_answer_is_right(at: int, virtual: bool) -> None:
    async def asked() -> tuple[list[int], list[int], int]:
        decoder = RememberingDecoder()
        worker: Worker = InlineWorker(_nothing) if virtual else ThreadWorker(_nothing)
        e, prompt = engine(decoder, worker), laid([11, 12, 13])
        written: list[int] = []

        async def write() -> None:
            await e.prefill(prompt)
            async for token in e.tokens(prompt, 8):
                written.append(token)
                if len(written) == at + 1:
                    reached.set()

        reached = asyncio.Event()
        task = asyncio.create_task(write())
        await reached.wait()
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        stopped = decoder.read_tokens
        expected = await answer(engine(RememberingDecoder()), laid([11, 14]), 6)
        got = await answer(e, laid([11, 14]), 6)
        await worker.close()
        return got[0], expected[0], stopped - 3

    got, expected, read_back = run_virtual(asked()) if virtual else asyncio.run(asked())
    assert got == expected
    assert at <= read_back <= at + 1


def test_a_decoder_that_fails_leaves_nothing_behind_that_the_next_answer_rests_on() -> None:
    async def asked() -> tuple[list[int], list[int]]:
        decoder = RememberingDecoder()
        e = engine(decoder)
        await answer(e, laid([11, 12]))
        decoder.fails = True
        with pytest.raises(RuntimeError):
            await e.prefill(laid([11, 12, 13, 14]))
        decoder.fails = False
        expected = await answer(engine(RememberingDecoder()), laid([11, 12, 15]))
        return (await answer(e, laid([11, 12, 15])))[0], expected[0]

    got, expected = run(asked())
    assert got == expected


def _nothing(what: str, ms: float) -> None:
    pass


# The rolling vision cache


def cache(times_s: list[float]) -> FeatureCache:
    held = FeatureCache()
    for serial, t in enumerate(times_s):
        held.add(Encoded(round(t * NS_PER_S), frame(serial)))
    return held


def picked_s(held: FeatureCache, sampling: str, at_s: float) -> list[float]:
    return [e.device_ns / NS_PER_S for e in held.pick(Sampling.parse(sampling), round(at_s * NS_PER_S))]


SECONDS = [float(t) for t in range(31)]


@pytest.mark.parametrize("sampling, expected", [
    ("last", [30.0]),
    ("backward", [23.0, 24.0, 25.0, 26.0, 27.0, 28.0, 29.0, 30.0]),
    ("fixed:4", [26.0, 27.0, 28.0, 29.0, 30.0]),
    ("fixed:16", [16.0, 18.0, 20.0, 22.0, 24.0, 26.0, 28.0, 30.0]),
    ("uniform", [3.0, 7.0, 11.0, 15.0, 18.0, 22.0, 26.0, 30.0]),
])  # fmt: skip
def test_a_question_takes_the_frames_that_its_sampling_asks_for(sampling: str, expected: list[float]) -> None:
    assert picked_s(cache(SECONDS), sampling, 30.2) == expected


@given(
    st.lists(st.integers(0, 100_000), max_size=60).map(sorted), st.integers(0, 120_000),
    st.sampled_from(["last", "backward", "fixed", "fixed:10", "fixed:32", "uniform"]),
)  # fmt: skip
def test_no_sampling_takes_a_frame_of_the_future_or_one_twice_or_more_than_eight(
    times_ms: list[int], at_ms: int, sampling: str
) -> None:
    held = cache([t / 1e3 for t in times_ms])
    picked_ms = [round(t * 1e3) for t in picked_s(held, sampling, at_ms / 1e3)]
    assert len(picked_ms) <= FRAMES and picked_ms == sorted(set(picked_ms)) and all(t <= at_ms for t in picked_ms)
    known_ms = [round(e.device_ns / 1e6) for e in held._held if e.device_ns <= at_ms * 1_000_000]
    assert picked_ms[-1:] == known_ms[-1:]  # the newest that was there is always among them


def test_frames_out_of_order_are_left_out_and_old_ones_forgotten() -> None:
    held = cache([5.0, 3.0, 5.0, 6.0])
    assert [e.device_ns for e in held._held] == [5 * NS_PER_S, 6 * NS_PER_S]
    held.add(Encoded(6 * NS_PER_S + LONGEST_NS, frame(9)))
    assert len(held) == 2
    for t in range(500):
        held.add(Encoded(100 * NS_PER_S + t, frame(t)))
    assert len(held) <= 48
    held.clear()
    assert held.newest_ns is None and held.pick(Sampling.parse("last"), 1 << 60) == []


@pytest.mark.parametrize("text", ["", "first", "fixed:", "fixed:0", "fixed:61", "fixed:-4", "fixed:4s", "LAST"])
def test_an_unknown_sampling_is_refused_with_those_that_there_are(text: str) -> None:
    with pytest.raises(ConfigError, match="expected uniform, backward, last or fixed:SECONDS"):
        Sampling.parse(text)


# Where models compute


@pytest.mark.parametrize("virtual", [True, False])
def test_jobs_run_one_at_a_time_in_order_and_report_their_time(virtual: bool) -> None:
    took: list[str] = []

    async def work() -> list[int]:
        count = itertools.count()
        worker: Worker = (InlineWorker if virtual else ThreadWorker)(lambda what, ms: took.append(what))
        jobs = [worker.run(f"job {i}", lambda: next(count), 5.0) for i in range(20)]
        done = await asyncio.gather(*jobs)
        await worker.close()
        return list(done)

    assert (run_virtual(work()) if virtual else asyncio.run(work())) == list(range(20))
    assert took == [f"job {i}" for i in range(20)]


def test_scores_that_are_not_numbers_fail_the_answer_and_spoil_none_after_it() -> None:
    class Spoilt(RememberingDecoder):
        spoilt = False

        def read(self, embeds: F32, places: I64, frames: I64, deepstack: F32 | None = None) -> F32:
            scores = super().read(embeds, places, frames, deepstack)
            return np.full_like(scores, np.nan) if self.spoilt else scores

    decoder = Spoilt()

    async def main() -> int:
        engine = Engine(decoder, InlineWorker(lambda what, ms: None), embed, (END,), DECLARED)
        await engine.prefill(laid([1, 2, 3]))
        decoder.spoilt = True
        with pytest.raises(FloatingPointError, match="not numbers"):
            await engine.prefill(laid([1, 2, 3, 4]))
        decoder.spoilt = False
        return await engine.prefill(laid([1, 2, 3, 4]))

    assert run_virtual(main()) == 0 and len(decoder.held) == 4  # all of it was read anew


def test_where_the_idle_policy_is_forbidden_the_models_thread_still_works(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_: Any) -> None:
        raise PermissionError("not in this sandbox")

    async def work() -> int:
        worker = ThreadWorker(_nothing)
        try:
            return await worker.run("job", lambda: 7, 0.0)
        finally:
            await worker.close()

    monkeypatch.setattr("os.sched_setscheduler", forbidden)
    assert asyncio.run(work()) == 7
