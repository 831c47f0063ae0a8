"""The answer path without the reflex, on virtual time: a recording's samples go in once, then questions are asked.

Everything but the scene is real: buffer, pictures, sensors, engine, words, speech queue, voice. Used to ask hundreds of
questions in minutes.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path

from handrail.benchmarks.damage import recordings
from handrail.device.open import open_speaker, open_voice
from handrail.runtime.answer.answers import Answers
from handrail.runtime.answer.building import build
from handrail.runtime.answer.opening import Loaded
from handrail.runtime.config import Config
from handrail.runtime.declared import load_declared
from handrail.runtime.engine.worker import InlineWorker
from handrail.runtime.events import Answered, AnyEvent
from handrail.runtime.speech.speech import Speech
from handrail.streams.buffer import RollingBuffer
from handrail.streams.clock import NS_PER_S, now_ns, run_virtual
from handrail.streams.samples import Notice, Sample
from handrail.streams.source import DecodePlan, SourceInfo, open_source

APART_NS = 300_000_000  # between rounds of the samples: the clip's length and a little


@dataclass(frozen=True, slots=True)
class Clip:
    """A short recording in memory, its pictures decoded."""

    info: SourceInfo
    samples: tuple[Sample, ...]  # by arrival, host times from 0


def clip(rgb_hz: float = 10.0) -> Clip:
    """Of the Gen 2 recording where it lies beside the project, else of the simulated world."""
    real = [path for path in recordings() if path.parent.name == "gen2"]
    uri = f"vrs:{real[0]}" if real else "world:7?seconds=2"

    async def read() -> Clip:
        async with open_source(uri, DecodePlan(stereo_hz=0.0, rgb_hz=rgb_hz)) as source:
            began_ns = now_ns()
            samples = [replace(s, host_ns=s.host_ns - began_ns) async for s in source.samples()
                       if not isinstance(s.payload, Notice)]  # fmt: skip
            return Clip(source.info, tuple(samples))

    return run_virtual(read())


class Stage:
    """``async with stage(clip, loaded) as s: await s.ask("what is ahead?")``"""

    def __init__(self, answers: Answers, speech: Speech, buffer: RollingBuffer, events: list[AnyEvent]) -> None:
        self.answers, self.speech, self.buffer, self.events = answers, speech, buffer, events

    async def ask(self, text: str) -> Answered:
        """Until it has been answered and said; the events so far are let go."""
        self.events.clear()
        self.answers.line(text)
        await self.answers.done()
        return self.answered()[-1]

    def answered(self) -> list[Answered]:
        return [e for e in self.events if isinstance(e, Answered)]

    def feed(self, samples: tuple[Sample, ...]) -> None:
        """All of them, at once, as if they had just arrived."""
        for sample in samples:
            arrived = replace(sample, host_ns=now_ns())
            if (usable := self.buffer.add(arrived)) is not None:
                self.answers.take(usable)


@contextlib.asynccontextmanager
async def stage(of: Clip, loaded: Loaded, config: Config | None = None) -> AsyncIterator[Stage]:
    """With the clip's samples arrived; on a virtual loop."""
    config, declared, start_ns = config or Config(), load_declared(), now_ns()
    events: list[AnyEvent] = []
    buffer = RollingBuffer()
    worker = InlineWorker(_nobody)
    async with contextlib.AsyncExitStack() as stack:
        voice = open_voice(config.audio.voice)
        stack.push_async_callback(voice.close)
        speaker = open_speaker("wav", Path(os.devnull))
        stack.push_async_callback(speaker.close)
        speech = Speech(config, voice, speaker, events.append, start_ns, declared.render_ms)
        answers = build(
            loaded, of.info, worker, declared, speech, events.append, start_ns, config.wearer, _nobody
        )
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(speech.run()), group.create_task(answers.run(buffer))]
            await asyncio.sleep(0.2)  # what is rendered beforehand
            on_stage = Stage(answers, speech, buffer, events)
            on_stage.feed(of.samples)
            await asyncio.sleep(of.samples[-1].host_ns / NS_PER_S)
            try:
                yield on_stage
            finally:
                for task in tasks:
                    task.cancel()


def _nobody(what: str, ms: float) -> None:
    """Times aren't looked at."""
