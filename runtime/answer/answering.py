"""One query from asking to the last clause: frames, sensors and scene into a prompt, the model's tokens into words.

    answering = Answering(means, query, ...)
    outcome = await answering.run()

Causal: frames and readings up to the newest capture that had arrived when it was asked. Each step is a part of the
answer's time (``Stopwatch``), so that the parts add up. What the model may be asked for, and when, isn't decided here.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from handrail.runtime import config
from handrail.runtime.answer.pictures import Pictures
from handrail.runtime.answer.query import Outcome, Query, Stopwatch
from handrail.runtime.answer.telling import Clause, Words
from handrail.runtime.declared import Declared
from handrail.runtime.engine.engine import Engine
from handrail.runtime.engine.features import Encoded, Sampling
from handrail.runtime.engine.model import Felt, Model
from handrail.runtime.engine.prompt import Features, Laid, Sensed
from handrail.runtime.engine.worker import Worker
from handrail.runtime.preprocess.prompt import Turn
from handrail.streams.buffer import Snapshot
from handrail.streams.cameras import Rig
from handrail.streams.clock import NS_PER_S
from handrail.streams.errors import InputError
from handrail.streams.samples import Kind as Stream
from handrail.streams.samples import Sample

WINDOW_S = 10.0  # of the sensors: what the model is trained with in runtime mode
MOST_TOKENS = {"brief": 64, "normal": 128, "full": 224}  # of an answer, by the wearer's detail level
FELT = (Stream.IMU, Stream.MAG, Stream.BARO, Stream.GAZE, Stream.HANDS, Stream.POSE)


@dataclass(frozen=True, slots=True)
class Means:
    """What answers are made with; the same for all of a session."""

    model: Model
    engine: Engine
    pictures: Pictures
    worker: Worker
    declared: Declared
    rig: Rig
    streams: tuple[str, ...]  # labels of those that the model feels
    took: Callable[[str, float], None]  # told of measured stage times
    sampling: Sampling


@dataclass(slots=True)
class Conversation:
    """Turns that the model is shown again, with their frames and sensors; the last one's answer is still to come."""

    turns: list[Turn] = field(default_factory=list)
    frames: list[Features] = field(default_factory=list)
    sensed: list[Sensed] = field(default_factory=list)
    newest_ns: int = -1  # capture of the newest frame shown

    def copy(self) -> Conversation:
        return Conversation(list(self.turns), list(self.frames), list(self.sensed), self.newest_ns)


@dataclass(frozen=True, slots=True)
class Shown:
    """What the model is about to be shown."""

    frames: tuple[Encoded, ...]
    encoded: int  # of them, for this question
    felt: Felt | None
    prompt_tokens: int
    reused_tokens: int


@dataclass(frozen=True, slots=True)
class Asking:
    """A query in the words of the prompt."""

    query: Query
    before: str  # the fixed part, shown once a conversation
    text: str  # the rest: facts, texts, question
    plain: str  # the question alone: what the fusion is conditioned on


class Answering:
    """``shown`` is told what the prompt holds before the first token, ``said`` gets each clause as it is whole."""

    def __init__(
        self, means: Means, asking: Asking, past: Conversation, snapshot: Snapshot, wearer: config.Wearer,
        watch: Stopwatch, *, shown: Callable[[Shown], None], said: Callable[[Clause], None],
    ) -> None:  # fmt: skip
        self._means, self._asking, self._snapshot, self._wearer = means, asking, snapshot, wearer
        self._watch, self._shown, self._said = watch, shown, said
        self.talk = past.copy()
        self.words = Words(means.model.prompter.decode, wearer)

    async def run(self) -> Outcome:
        """Raises InputError when the question doesn't fit in the context."""
        encoded = await self._means.pictures.encode_newest(self._snapshot.device_ns)
        self._watch.mark("encode")
        felt = await self._feel()
        self._watch.mark("sensors")
        frames, laid = await self._lay(felt)
        if (room := self._means.engine.context - MOST_TOKENS[self._wearer.detail]) < len(laid):
            raise InputError(f"the prompt has {len(laid)} tokens: expected {room} at most")
        self._watch.mark("prompt")
        reused = await self._means.engine.prefill(laid)
        self._watch.mark("prefill")
        self._shown(Shown(tuple(frames), int(encoded), felt, len(laid), reused))
        outcome = await self._write(laid)
        self.talk.turns[-1] = replace(self.talk.turns[-1], answer=self.words.text)
        return outcome

    # Steps

    async def _feel(self) -> Felt | None:
        means, end_ns = self._means, self._snapshot.device_ns + 1
        if not means.model.sensor_tokens:
            return None
        start_ns = end_ns - round(WINDOW_S * NS_PER_S)
        samples = felt_samples(self._snapshot, means.streams, start_ns - means.model.history_ns, end_ns - 1)
        felt = await means.worker.run(
            "answer.sensors", lambda: means.model.feel(samples, means.rig, start_ns, end_ns, self._asking.plain),
            means.declared.sensors_ms,
        )  # fmt: skip
        for part, ms in () if felt is None else felt.times_ms.items():
            means.took(f"answer.sensors.{part}", ms)
        return felt

    async def _lay(self, felt: Felt | None) -> tuple[list[Encoded], Laid]:
        """A follow-up shows only what is new since the turn before; a first turn what its sampling asks for."""
        means, talk = self._means, self.talk
        picked = means.pictures.features.pick(means.sampling, self._snapshot.device_ns)
        if talk.turns:
            picked = [e for e in picked[-1:] if e.device_ns > talk.newest_ns]
        sensor_tokens = 0 if felt is None else len(felt.sensed.tokens)
        before = "" if talk.turns else self._asking.before
        talk.turns.append(Turn(self._asking.text, len(picked), sensor_tokens, before))
        talk.frames += [e.features for e in picked]
        talk.sensed += [] if felt is None else [felt.sensed]
        talk.newest_ns = max([talk.newest_ns, *(e.device_ns for e in picked)])
        laid = await means.worker.run(  # eight frames of a large model are a hundred megabytes
            "answer.lay", lambda: means.model.lay(talk.turns, talk.frames, talk.sensed), 0.0
        )
        return picked, laid

    async def _write(self, laid: Laid) -> Outcome:
        outcome, most = Outcome.LIMIT, MOST_TOKENS[self._wearer.detail]
        tokens = self._means.engine.tokens(laid, most)
        try:
            async with contextlib.aclosing(tokens):
                async for token in tokens:
                    self._watch.token()
                    self._tell(self.words.add(token))
                    if self.words.over:
                        outcome = Outcome.REPEATED
                        break
            if outcome is Outcome.LIMIT and len(self.words.tokens) < most:
                outcome = Outcome.SAID
        finally:
            self._watch.mark("decode")
        self._tell(self.words.end())
        return Outcome.SILENT if outcome is Outcome.SAID and not self.words.text.strip() else outcome

    def _tell(self, clauses: Sequence[Clause]) -> None:
        for clause in clauses:
            self._said(clause)


def felt_samples(snapshot: Snapshot, labels: Sequence[str], from_ns: int, to_ns: int) -> list[Sample]:
    """What a snapshot holds of the streams that the model feels: views, no copy."""
    return [sample for label in labels for sample in snapshot.window(label, from_ns, to_ns)]


