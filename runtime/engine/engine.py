"""A prompt in, tokens out: prefill in pieces, greedy decoding, what is in the cache already reused.

    async for token in engine.tokens(laid, most=160):
        ...                                            # leave the loop, or cancel: nothing more is computed

Every piece of the prompt and every token is one job of the worker, so the loop's thread is free in between and a
cancelled answer stops within one job. Tokens are chosen by the largest score: the same prompt gives the same answer.
Knows no frames, no words and no speech.
"""

from __future__ import annotations

import functools
from collections.abc import AsyncGenerator, Callable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from handrail.runtime.declared import Declared
from handrail.runtime.engine.prompt import Laid, pieces, shared
from handrail.runtime.engine.worker import Worker
from handrail.streams.errors import InputError

F32 = NDArray[np.float32]
I64 = NDArray[np.int64]

PIECE = 256  # tokens of a prompt read in one job
NOTHING = np.empty(0, np.int64)


class Decodes(Protocol):
    """``decoder.Decoder``, or what stands in for it."""

    context: int

    def rewind(self, length: int) -> None: ...

    def read(self, embeds: F32, places: I64, frames: I64, deepstack: F32 | None = None) -> F32: ...


class Engine:
    """``embed`` gives the embeddings of ids; ``ends`` are the tokens that end an answer. One answer at a time."""

    def __init__(
        self, decoder: Decodes, worker: Worker, embed: Callable[[list[int]], F32], ends: tuple[int, ...],
        declared: Declared, *, axes: int = 1, deepstack_layers: int = 0, whole_frames: bool = False,
    ) -> None:  # fmt: skip
        self._decoder, self._worker, self._embed, self._ends = decoder, worker, embed, frozenset(ends)
        self._declared = declared
        self._axes, self._deepstack_layers, self._whole_frames = axes, deepstack_layers, whole_frames
        self._held: list[int] = []  # keys of the tokens that the decoder holds; written where it computes
        self._next = 0

    @property
    def context(self) -> int:
        """Most tokens of prompt and answer together."""
        return self._decoder.context

    def reusable(self, laid: Laid) -> int:
        """How many tokens of a prompt needn't be read: the last one is always read, for its scores."""
        return min(shared(np.array(self._held, np.int64), laid.keys), len(laid) - 1)

    async def prefill(self, laid: Laid) -> int:
        """Read what isn't held yet; returns how many tokens needn't be read.

        Raises InputError for a prompt that leaves no room for an answer.
        """
        if not len(laid) or len(laid) >= self.context:
            raise InputError(f"the prompt has {len(laid)} tokens: expected 1 to {self.context - 1}")
        # In a job, since a cancelled one before it may still be at work on what is held.
        kept = await self._worker.run("answer.reuse", lambda: self.reusable(laid), 0.0)
        for piece in pieces(laid.frames, kept, PIECE, whole_frames=self._whole_frames):
            count = piece.stop - piece.start
            await self._worker.run(
                "answer.prefill", functools.partial(self._read, laid, piece), count * self._declared.prefill_ms
            )
        return kept

    async def tokens(self, laid: Laid, most: int) -> AsyncGenerator[int, None]:
        """The greedy answer to a prompt that was prefilled, without the token that ends it; at most ``most``."""
        place = laid.next_place
        for _ in range(min(most, self.context - len(laid))):
            token = self._next
            if token in self._ends:
                return
            yield token
            await self._worker.run(
                "answer.token", functools.partial(self._read_back, token, place), self._declared.token_ms
            )
            place += 1

    async def forget(self) -> None:
        """What is held belongs to another place or wearer."""
        await self._worker.run("answer.forget", lambda: self._rewind(0), 0.0)

    # Jobs: these run where the worker computes.

    def _read(self, laid: Laid, at: slice) -> None:
        self._rewind(at.start)
        deepstack = None if laid.deepstack is None else laid.deepstack[:, at]
        if deepstack is None and self._deepstack_layers:
            deepstack = np.zeros((self._deepstack_layers, *laid.embeds[at].shape), np.float32)
        self._extend(laid.embeds[at], laid.places[:, at], laid.frames[at], deepstack, laid.keys[at].tolist())

    def _read_back(self, token: int, place: int) -> None:
        embeds = self._embed([token])
        layers = self._deepstack_layers
        deepstack = np.zeros((layers, *embeds.shape), np.float32) if layers else None
        places, frames = np.full((self._axes, 1), place), np.full(1, -1)
        self._extend(embeds, places, frames, deepstack, [token])

    def _extend(self, embeds: F32, places: I64, frames: I64, deepstack: F32 | None, keys: list[int]) -> None:
        scores = self._decoder.read(embeds, places, frames, deepstack)
        best = int(scores.argmax())  # of NaN, where there is one
        if np.isnan(scores[best]):
            self._rewind(0)  # what is held is spoilt, and would spoil every answer after this
            raise FloatingPointError("the model's scores are not numbers")
        self._held.extend(keys)
        self._next = best

    def _rewind(self, length: int) -> None:
        """Also after a job that failed half way."""
        del self._held[length:]
        self._decoder.rewind(length)
