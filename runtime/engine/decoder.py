"""The language model of a bundle, token after token: embeddings in, scores of the next token out.

    decoder = Decoder(bundle)
    scores = decoder.read(embeds, places, frames)      # a prompt, in as many pieces as the caller likes
    scores = decoder.read(table[[token]], ...)         # then a token at a time
    decoder.rewind(prefix)                             # the next question keeps what is the same

All memory that grows with the text is taken when it is opened. Looking up embeddings, where frames' features go and
which token is taken is the caller's. Knows no torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from handrail.runtime.bundle import Bundle
from handrail.runtime.engine.cache import Cache, GrownCache, SharedCache, bind_input, bind_output
from handrail.runtime.preprocess import mask
from handrail.runtime.providers import CHUNK, LONGEST, Provider, open_session
from handrail.streams.errors import InputError

PREFILL = "prefill.onnx"  # reads many tokens at a time where weights are in few bits

F32 = NDArray[np.float32]
I64 = NDArray[np.int64]


class _Run(NamedTuple):
    session: Any
    binding: Any


class Decoder:
    """Keys and values of one conversation; reads embeddings, gives scores of the next token."""

    def __init__(
        self, bundle: Bundle, provider: Provider = "cpu", *, threads: int = 1, spin: bool = False,
        options: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        """``options``: of the provider. Raises BundleError, MissingDependencyError."""
        section = bundle.manifest.decoder
        prefill = bundle.path(PREFILL) if section.get("prefill") else None
        self._open(bundle.path("decoder.onnx"), prefill, section, provider, threads, spin, options)

    @classmethod
    def of_graph(
        cls, graph: Path, section: Mapping[str, Any], *, threads: int = 1, spin: bool = False
    ) -> Decoder:
        """Of a graph on the CPU that is no bundle's; ``section``: what a manifest's ``decoder`` would say."""
        made = cls.__new__(cls)
        prefill = graph.with_name(PREFILL) if section.get("prefill") else None
        made._open(graph, prefill, section, "cpu", threads, spin, None)
        return made

    def _open(
        self, graph: Path, prefill: Path | None, section: Mapping[str, Any], provider: Provider, threads: int,
        spin: bool, options: Mapping[str, str] | None,
    ) -> None:  # fmt: skip
        one = open_session(graph, provider, options, threads, spin=spin)
        # Spinning after a prompt, its threads would take the first tokens' cores.
        many = one if prefill is None else open_session(prefill, provider, options, threads)
        self.context, self.length = LONGEST, 0
        self._d, self._axes, self._deep = section["d_model"], section["axes"], section["deepstack"]
        self._shared = section.get("cache", "grown") == "shared"
        self._masks: dict[str, int | None] = {} if self._shared else dict(section["masks"])
        self._both_ways = bool(section["both_ways"])
        self._frames = np.full(self.context, -1, np.int64)
        names = [f"{n}.{part}" for n in range(section["layers"]) for part in ("key", "value")]
        kind = SharedCache if self._shared else GrownCache
        self._cache: Cache = kind(names, section["kv_heads"], section["head_dim"], self.context)
        vocabulary = one.get_outputs()[0].shape[-1]
        self._scores = np.zeros((1, 1, vocabulary), np.float32)
        self._filled, self._total = np.zeros(1, np.int32), np.zeros((), np.int32)
        self._one_embed = np.zeros((1, 1, self._d), np.float32)
        self._one_place = np.zeros((self._axes, 1, 1), np.int64)
        self._one_deep = np.zeros((self._deep, 1, 1, self._d), np.float32)
        self._one, self._many = (_Run(session, session.io_binding()) for session in (one, many))
        for run in (self._one, self._many):
            self._bind_fixed(run.binding)
        self._bind_new(self._one.binding, self._one_embed, self._one_place, self._one_deep)

    def read(self, embeds: F32, places: I64, frames: I64, deepstack: F32 | None = None) -> F32:
        """Append S tokens: embeddings [S, d], positions [1 or 3, S], the frame that each token is of (-1: none; as
        ``positions.frame_of``) [S], and for Qwen3-VL deepstack [K, S, d] (None: zero).

        Returns scores [V] of the next token: a view, valid until the next read. Raises InputError where they don't fit
        in the context, or begin amid a frame whose tokens see each other both ways.
        """
        new = len(embeds)
        self._refuse_unfit(new, frames)
        self._frames[self.length : self.length + new] = frames
        if new == 1:
            self._one_embed[0] = embeds
            self._one_place[:, 0] = places
            self._one_deep[:, 0] = 0.0 if deepstack is None else deepstack
            self._run(self._one, 1)
        else:
            deep = np.zeros((self._deep, new, self._d), np.float32) if deepstack is None else deepstack
            kept = (
                np.ascontiguousarray(embeds[None], np.float32), np.ascontiguousarray(places[:, None], np.int64),
                np.ascontiguousarray(deep[:, None], np.float32),
            )  # fmt: skip
            self._bind_new(self._many.binding, *kept)
            self._run(self._many, new)
        scores: F32 = self._scores[0, 0]
        return scores

    def rewind(self, length: int) -> None:
        """Forget everything after the first ``length`` tokens. Raises InputError for more than there are, or amid a
        frame whose tokens see each other both ways."""
        if not 0 <= length <= self.length:
            raise InputError(f"rewind to {length} tokens: expected 0 to {self.length}")
        if 0 < length < self.length and self._amid_frame(length, self._frames[length]):
            raise InputError(f"rewind to {length} tokens: this model takes frames whole, and one would be cut")
        self._cache.rewind(length)
        self.length = length

    def warm_up(self) -> None:
        """A chunk of a prompt and one token, of nothing; then forget them."""
        for new in (CHUNK, 1):
            nothing, none = np.zeros((new, self._d), np.float32), np.full(new, -1)
            places = np.broadcast_to(np.arange(new), (self._axes, new))
            self.rewind(0)
            self.read(nothing, places, none)
        self.rewind(0)

    def _refuse_unfit(self, new: int, frames: I64) -> None:
        if not 0 < new <= self.context - self.length:
            raise InputError(
                f"{new} tokens after {self.length}: expected 1 to {self.context - self.length}; the context holds "
                f"{self.context}"
            )
        if self.length and self._amid_frame(self.length, frames[0]):
            raise InputError("a piece of a prompt begins amid a frame: this model takes frames whole")

    def _amid_frame(self, at: int, frame: np.int64) -> bool:
        return bool(self._both_ways and frame >= 0 and self._frames[at - 1] == frame)

    def _run(self, run: _Run, new: int) -> None:
        binding, total = run.binding, self.length + new
        kept: list[Any] = []
        if self._shared:
            self._filled[0], self._total[...] = total - 1, total
        else:
            for name, window in self._masks.items():
                seen = mask(self._frames[:total], new, both_ways=self._both_ways, window=window)[None, None]
                bind_input(binding, name, seen)
                kept.append(seen)
            self._cache.bind(binding, new)
        run.session.run_with_iobinding(binding)
        self._cache.added(new)
        self.length = total

    def _bind_fixed(self, binding: Any) -> None:
        bind_output(binding, "logits", self._scores)
        if self._shared:
            bind_input(binding, "seqlens_k", self._filled)
            bind_input(binding, "total_sequence_length", self._total)
            self._cache.bind(binding, 1)

    def _bind_new(self, binding: Any, embeds: F32, places: I64, deep: F32) -> None:
        bind_input(binding, "inputs_embeds", embeds)
        bind_input(binding, "position_ids", places)
        if self._deep:
            bind_input(binding, "deepstack", deep)
