"""A bundle under questions: the same answer every time, silence when it is cancelled, memory that stays flat.

    repeat   the same question on a fresh stage, 20 times: one sequence of tokens
    caches   the same question after others, and on a fresh stage: the same tokens, whatever was held
    cancel   hushed at every token index: how many more tokens were computed, and how soon nothing sounded
    memory   200 questions in a row, pictures arriving between them: resident memory

On virtual time, with a real recording where there is one. Times are those that are declared; what is measured here is
what is written and held, not how fast.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from handrail.benchmarks.answer_stage import Clip, Stage, clip, stage
from handrail.benchmarks.buffer import FLAT_MIB, resident_mib
from handrail.benchmarks.command import Outcome, from_1
from handrail.runtime.answer.opening import Loaded, Options, load
from handrail.runtime.events import Answered, SoundEnded, SoundStarted
from handrail.runtime.progress import CountBar
from handrail.streams.clock import NS_PER_S, now_ns, run_virtual
from handrail.streams.damage import shifted
from handrail.streams.samples import Sample

QUESTION = "What is in front of me?"
OTHERS = ("What is on my left?", "Is anything at head height?", "Where am I looking?", "Which way is the door?")
SILENT_MS = 100.0
SETTLED = 60  # questions, until what is kept is full: features, a minute of phrases, 17 s of readings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", type=Path, required=True, metavar="BUNDLE", help="what `handrail export` wrote")
    parser.add_argument("--count", type=from_1, default=200, help="questions in a row (200)")
    parser.add_argument("--repeat", type=from_1, default=20, help="runs of the same question (20)")


def run(args: argparse.Namespace) -> Outcome:
    loaded = load(Options(args.model, labels=False, ocr="off"))
    of = clip()
    figures: dict[str, Any] = {"bundle": args.model.name, "clip": of.info.uri.rsplit("/", 1)[-1]}
    with CountBar("asked", args.count + args.repeat) as bar:
        tokens = [_run(alone(of, loaded), bar) for _ in range(args.repeat)]
        figures["repeat"] = {"runs": args.repeat, "different": len(set(tokens)), "tokens": len(tokens[0])}
        figures["caches"] = run_virtual(caches(of, loaded, tokens[0]))
        figures["cancel"] = [run_virtual(cancelled(of, loaded, at)) for at in range(len(tokens[0]))]
        figures["memory"] = run_virtual(memory(of, loaded, args.count, bar))
    held = (
        figures["repeat"]["different"] == 1 and figures["caches"]["equal"] and figures["memory"]["flat"]
        and all(c["more_tokens"] <= 1 and c["silent_ms"] <= SILENT_MS for c in figures["cancel"])
    )  # fmt: skip
    silent_ms = max((c["silent_ms"] for c in figures["cancel"]), default=0.0)
    line = (
        f"{args.repeat} runs: {figures['repeat']['different']} answer; the same with and without caches: "
        f"{'yes' if figures['caches']['equal'] else 'no'}; cancelled at {len(figures['cancel'])} tokens: silent within "
        f"{silent_ms:.0f} ms; {args.count} questions: {figures['memory']['growth_mib']:+.1f} MiB"
    )
    return Outcome(figures, held, line)


def _run(work: Coroutine[Any, Any, Answered], bar: CountBar) -> tuple[int, ...]:
    answered = run_virtual(work)
    bar.step()
    return answered.tokens


async def alone(of: Clip, loaded: Loaded) -> Answered:
    """The question on a fresh stage: nothing of it was read before."""
    await _forget(loaded)
    async with stage(of, loaded) as on:
        return await on.ask(QUESTION)


async def caches(of: Clip, loaded: Loaded, expected: tuple[int, ...]) -> dict[str, Any]:
    """The question again and again, after others, with what they left in the caches."""
    found: list[tuple[int, ...]] = []
    for other in OTHERS:
        async with stage(of, loaded) as on:
            await on.ask(other)
        async with stage(of, loaded) as on:  # a new conversation; the decoder holds what it held
            found.append((await on.ask(QUESTION)).tokens)
    return {"runs": len(found), "equal": set(found) == {expected}}


async def cancelled(of: Clip, loaded: Loaded, at: int) -> dict[str, Any]:
    """Hushed once ``at`` + 1 tokens are written."""
    async with stage(of, loaded) as on:
        on.events.clear()
        on.answers.line(QUESTION)
        while on.answers.tokens_written <= at and not on.answered():  # noqa: ASYNC110 - on virtual time
            await asyncio.sleep(0.001)
        written, hushed_ns = on.answers.tokens_written, now_ns()
        on.answers.hush()
        await asyncio.sleep(2.0)
        answered = on.answered()
        more = 0 if not answered else len(answered[-1].tokens) - written
        return {"at": at, "more_tokens": max(0, more), "silent_ms": _silent_ms(on, hushed_ns)}


def _silent_ms(on: Stage, hushed_ns: int) -> float:
    """From the hush to the last word; the acknowledging earcon doesn't count."""
    last_ns = hushed_ns
    for e in on.events:
        if isinstance(e, SoundStarted) and e.sound == "speech" and e.audible_ns > hushed_ns:
            last_ns = max(last_ns, e.audible_ns + round(e.duration_s * NS_PER_S))
        if isinstance(e, SoundEnded) and e.sound == "speech":
            last_ns = max(last_ns, e.t_ns)
    return (last_ns - hushed_ns) / 1e6


async def memory(of: Clip, loaded: Loaded, count: int, bar: CountBar) -> dict[str, Any]:
    """Questions in a row, each after new pictures and readings; every tenth is cancelled half way."""
    memory_mib: list[float] = []
    async with stage(of, loaded) as on:
        for n in range(count):
            on.feed(_later(of.samples, n + 1))
            if n % 10 == 9:
                on.answers.line(OTHERS[n % len(OTHERS)])
                await asyncio.sleep(0.5)
                on.answers.hush()
                await asyncio.sleep(1.0)
            await on.ask(f"{OTHERS[n % len(OTHERS)]} {n}")
            memory_mib.append(resident_mib())
            bar.step()
    settled = memory_mib[min(SETTLED, count - 1) :]
    growth = max(settled) - settled[0]
    return {
        "questions": count, "resident_mib": [round(m, 1) for m in memory_mib[:: max(1, count // 20)]],
        "growth_mib": round(growth, 2), "flat": growth <= FLAT_MIB,
    }  # fmt: skip


def _later(samples: tuple[Sample, ...], rounds: int) -> tuple[Sample, ...]:
    """The samples again, captured that many rounds later."""
    span_ns = max(s.device_ns for s in samples) - min(s.device_ns for s in samples) + 20_000_000
    return tuple(shifted(s, rounds * span_ns) for s in samples)


async def _forget(loaded: Loaded) -> None:
    if loaded.decoder is not None:
        loaded.decoder.rewind(0)
