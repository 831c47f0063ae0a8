"""Colour pictures as they arrive: encoded once, within their share, and never in the way of a question."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

from handrail.runtime.answer.pictures import MOST_FAILURES, SHARE, Looker, Picture, Pictures
from handrail.runtime.engine.prompt import Features
from handrail.runtime.engine.worker import InlineWorker
from handrail.streams.clock import NS_PER_S, now_ns, run_virtual
from handrail.streams.samples import ImageFrame, Kind, Sample, Stream

RGB = Stream("camera-rgb", Kind.RGB)
ENCODE_MS = 500.0


def picture(t_s: float, *, decoded: bool = True, stream: Stream = RGB) -> Sample:
    pixels = np.full((4, 6, 3), round(t_s * 10) % 255, np.uint8) if decoded else None
    t_ns = round(t_s * NS_PER_S)
    return Sample(stream, t_ns, t_ns, ImageFrame(pixels, 6, 4, 0.01, 1.0, 0))


class Encoder:
    def __init__(self) -> None:
        self.seen: list[int] = []

    def __call__(self, pixels: Any) -> Features:
        self.seen.append(int(pixels[0, 0, 0]))
        return Features(len(self.seen), np.zeros((1, 2), np.float32))


def play(steps: Any, generation: int = 2) -> tuple[Encoder, Pictures, list[str]]:
    encoder, failed = Encoder(), []
    kept: list[Pictures] = []

    async def main() -> None:
        worker = InlineWorker(lambda what, ms: None)
        pictures = Pictures(generation, worker, encoder, ENCODE_MS, lambda what, e: failed.append(f"{what}: {e}"))
        kept.append(pictures)
        task = asyncio.create_task(pictures.run())
        await steps(pictures)
        task.cancel()

    run_virtual(main())
    return encoder, kept[0], failed


async def arrive(pictures: Pictures, from_s: float, to_s: float, every_s: float) -> None:
    for k in range(round((to_s - from_s) / every_s)):
        pictures.take(picture(from_s + k * every_s))
        await asyncio.sleep(every_s)


def test_frames_are_encoded_as_they_arrive_within_a_quarter_of_a_core() -> None:
    encoder, pictures, _ = play(lambda p: arrive(p, 0, 60, 0.5))
    assert len(encoder.seen) * ENCODE_MS / 60_000 == pytest.approx(SHARE, abs=0.02)
    assert len(pictures.features) == len(encoder.seen)


def test_a_question_pays_for_the_newest_frame_at_most_and_not_twice() -> None:
    async def steps(p: Pictures) -> None:
        await arrive(p, 0, 3, 0.5)
        began_ns = now_ns()
        with p.held():
            first = await p.encode_newest()
            assert first and now_ns() - began_ns <= 2 * ENCODE_MS * 1e6
            again_ns = now_ns()
            assert not await p.encode_newest() and now_ns() == again_ns

    encoder, _, _ = play(steps)
    assert len(set(encoder.seen)) == len(encoder.seen) and encoder.seen[-1] == 25


def test_a_frame_whose_encoding_is_under_way_is_waited_for_and_not_encoded_again() -> None:
    async def steps(p: Pictures) -> None:
        p.take(picture(0))
        await asyncio.sleep(0.1)
        assert not await p.encode_newest()
        assert now_ns() == round(ENCODE_MS * 1e6)

    assert play(steps)[0].seen == [0]


def test_nothing_is_begun_while_a_question_is_answered() -> None:
    async def steps(p: Pictures) -> None:
        with p.held():
            await arrive(p, 0, 10, 0.5)
        assert not p.features
        await arrive(p, 10, 11, 0.5)

    assert len(play(steps)[0].seen) == 1


def test_a_result_that_comes_after_a_seam_is_of_another_place_and_dropped() -> None:
    async def steps(p: Pictures) -> None:
        p.take(picture(5))
        await asyncio.sleep(0.1)
        p.seam()
        await asyncio.sleep(2.0)
        assert not p.features and p.newest is None
        assert not await p.encode_newest()

    assert play(steps)[0].seen == [50]


def test_a_looker_that_fails_is_told_of_and_after_three_pictures_in_a_row_looks_no_more() -> None:
    looked: list[int] = []

    async def broken(p: Picture) -> None:
        looked.append(p.device_ns)
        raise OSError("no memory")

    async def steps(p: Pictures) -> None:
        p.look_with(Looker("labels", broken))
        await arrive(p, 0, 10, 1.0)

    _, pictures, failed = play(steps)
    assert failed == ["labels: no memory"] * MOST_FAILURES and len(looked) == MOST_FAILURES
    assert len(pictures.features) >= 4  # the others go on


def test_late_undecoded_and_other_frames_are_passed_over() -> None:
    async def steps(p: Pictures) -> None:
        p.take(picture(2))
        p.take(picture(1))
        p.take(picture(3, decoded=False))
        p.take(picture(4, stream=Stream("slam-front-left", Kind.SLAM)))
        assert p.newest is not None and p.newest.device_ns == 2 * NS_PER_S

    play(steps)


def test_pictures_of_gen_1_are_turned_upright() -> None:
    async def steps(p: Pictures) -> None:
        p.take(picture(1))
        assert p.newest is not None and p.newest.pixels.shape == (6, 4, 3)

    play(steps, generation=1)


def test_how_often_follows_from_what_the_last_one_took() -> None:
    took_s = [0.1, 0.25, 1.2, 0.0]
    looked_s: list[float] = []

    async def slower(p: Picture) -> None:
        looked_s.append(p.device_ns / NS_PER_S)
        await asyncio.sleep(took_s[min(len(looked_s), len(took_s)) - 1])

    async def steps(p: Pictures) -> None:
        p.look_with(Looker("texts", slower))
        await arrive(p, 0, 10, 0.2)

    play(steps)
    assert np.diff(looked_s)[:3] == pytest.approx([1.0, 1.0, 4.8])


def test_frames_that_are_encoded_for_a_question_count_for_the_share() -> None:
    async def steps(p: Pictures) -> None:
        p.take(picture(0))
        await asyncio.sleep(1.0)
        for k in range(20):
            p.take(picture(1 + 2 * k))
            with p.held():
                await p.encode_newest()
            await arrive(p, 1.5 + 2 * k, 3 + 2 * k, 0.5)

    assert len(play(steps)[0].seen) == 21, "one for each question keeps the encoder as busy as it may be"


def test_a_result_from_before_a_seam_is_dropped_also_when_newer_pictures_have_come_since() -> None:
    async def steps(p: Pictures) -> None:
        p.take(picture(5))
        await asyncio.sleep(0.1)
        p.seam()
        p.take(picture(6))
        await asyncio.sleep(2.0)
        assert [e.device_ns for e in p.features._held] == [6 * NS_PER_S]

    assert play(steps)[0].seen == [50, 60]


def test_a_picture_that_came_after_asking_is_not_encoded_for_the_question() -> None:
    async def steps(p: Pictures) -> None:
        with p.held():
            p.take(picture(5))
            assert not await p.encode_newest(by_ns=4 * NS_PER_S)

    assert not play(steps)[0].seen
