"""A recording or simulated walk through the whole path: what the wearer would have heard, when, and why.

On virtual time (the default) every stage takes its declared time and the result is the same bit for bit; with
speed "real" the reflex runs in its worker process and everything takes what it takes. Writes nothing but the sound;
``replay_command`` adds logs, report and summary.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from handrail.device.open import SpeakerKind, open_speaker, open_voice
from handrail.device.sound import Speaker, Voice
from handrail.runtime.config import Config
from handrail.runtime.declared import Declared, load_declared
from handrail.runtime.engine.worker import InlineWorker, ThreadWorker
from handrail.runtime.events import AnyEvent
from handrail.runtime.guard import Guard
from handrail.runtime.health import Watch
from handrail.runtime.log import Timing
from handrail.runtime.reflex.runner import InlineRunner, ProcessRunner, ReflexRunner, Seen
from handrail.runtime.session import Session
from handrail.runtime.speech.speech import Speech
from handrail.streams.clock import NS_PER_S, now_ns, run_virtual
from handrail.streams.errors import SourceError
from handrail.streams.samples import Sample
from handrail.streams.source import DecodePlan, Source, SourceInfo, open_source

if TYPE_CHECKING:
    from handrail.runtime.answer.opening import Loaded

Speed = Literal["virtual", "real"]

PICTURES_HZ = 1.0  # of the RGB camera, where something looks at its pictures: decoding one takes 100 to 150 ms


@dataclass(slots=True)
class Hooks:
    """What a caller wants to see of a replay while it runs. All are called on the session's own thread; one that raises
    ends the session, which says so aloud first (``on_open`` and ``wrap`` come before there is a speaker)."""

    on_open: Callable[[SourceInfo], None] = lambda info: None
    on_event: Callable[[AnyEvent], None] = lambda event: None
    on_seen: Callable[[Seen], None] = lambda seen: None
    on_sample: Callable[[Sample], None] = lambda sample: None
    on_timing: Callable[[Timing], None] = lambda timing: None
    wrap: Callable[[Source], Source] = lambda source: source  # faults and mirrors


@dataclass(frozen=True, slots=True)
class Replayed:
    info: SourceInfo
    duration_s: float  # on the recording's time line, last words included
    took_s: float  # of real time, opening and closing not counted
    hooks: Hooks = field(repr=False)

    @property
    def realtime_factor(self) -> float:
        return self.duration_s / max(self.took_s, 1e-9)


def replay(
    uri: str,
    *,
    config: Config | None = None,
    plan: DecodePlan | None = None,
    speed: Speed = "virtual",
    sound: SpeakerKind = "wav",
    wav: Path | None = None,
    hooks: Hooks | None = None,
    loaded: Loaded | None = None,
) -> Replayed:
    """Run one replay to its end. Raises SourceError, ConfigError, OutputError, MissingDependencyError or DeviceError.

    ``wav`` None with ``sound="wav"`` throws the sound away (it is still timed as if heard). ``loaded``: what answers
    questions, and which are asked; without a ``plan`` colour pictures are decoded for it.
    """
    run = run_virtual if speed == "virtual" else asyncio.run
    if plan is None:
        plan = DecodePlan() if loaded is None else DecodePlan(rgb_hz=PICTURES_HZ)
    return run(_replay(uri, config or Config(), plan, speed, sound, wav, hooks or Hooks(), loaded))


async def _replay(
    uri: str, config: Config, plan: DecodePlan, speed: Speed, sound: SpeakerKind, wav: Path | None, hooks: Hooks,
    loaded: Loaded | None,
) -> Replayed:
    declared = load_declared()
    async with open_source(uri, plan) as opened, contextlib.AsyncExitStack() as stack:
        source = hooks.wrap(opened)
        if loaded is not None:
            from handrail.runtime.answer.building import check_times

            check_times(loaded.options, source.info)
        hooks.on_open(source.info)
        voice = open_voice(config.audio.voice)
        stack.push_async_callback(voice.close)
        runner = await _runner(source, speed, declared)
        stack.push_async_callback(runner.close)
        speaker = open_speaker(sound, wav or Path(os.devnull), config.audio.period_ms)
        stack.push_async_callback(speaker.close)
        began_s, start_ns = time.perf_counter(), now_ns()
        parts = _Parts(source, runner, voice, speaker, config, declared, speed == "virtual", hooks)
        await _session(parts, loaded)
        return Replayed(source.info, (now_ns() - start_ns) / NS_PER_S, time.perf_counter() - began_s, hooks)


async def _runner(source: Source, speed: Speed, declared: Declared) -> ReflexRunner:
    if source.info.rig.stereo_pair is None:
        raise SourceError(f"{source.info.uri}: depth can't be measured: {'; '.join(source.info.notes)}")
    if speed == "virtual":
        return InlineRunner(source.info.rig, declared.reflex_ms)
    runner = ProcessRunner(source.info.rig)
    await runner.start()
    return runner


@dataclass(frozen=True, slots=True)
class _Parts:
    source: Source
    runner: ReflexRunner
    voice: Voice
    speaker: Speaker
    config: Config
    declared: Declared
    virtual: bool
    hooks: Hooks


async def _session(p: _Parts, loaded: Loaded | None) -> None:
    start_ns = now_ns()
    guard = Guard()
    emit = guard.around(p.hooks.on_event)
    speech = Speech(p.config, p.voice, p.speaker, emit, start_ns, p.declared.render_ms if p.virtual else 0.0)
    watch = Watch(speech, emit, start_ns)
    on_timing = guard.around(p.hooks.on_timing)

    def took(what: str, ms: float) -> None:
        on_timing(Timing(what, ms=round(ms, 4), t_ns=now_ns() - start_ns))

    worker = (InlineWorker if p.virtual else ThreadWorker)(took)
    answers = None
    if loaded is not None:
        from handrail.runtime.answer.building import build  # needs what a replay without questions doesn't

        answers = build(
            loaded, p.source.info, worker, p.declared, speech, emit, start_ns, p.config.wearer, took
        )
    try:
        await Session(
            p.source, p.runner, speech, watch, emit, start_ns, guard, version=version("handrail"),
            on_seen=p.hooks.on_seen, on_sample=p.hooks.on_sample, answers=answers,
        ).run()
    finally:
        await worker.close()
