"""``handrail export --check --language DIR``: real weights of a language model through the decoder's export.

Its greedy text against that of transformers, and what weights in 8 and 4 bits cost in perplexity.
"""

from __future__ import annotations

import itertools
import math
import resource
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from handrail.export.backbones.text import TextOnly, open_text
from handrail.export.bundles.bundling import decoder_section, write_decoder
from handrail.export.graphs.quantise import Quant
from handrail.runtime.engine.decoder import Decoder
from handrail.runtime.machine import usable_cores
from handrail.streams.errors import SourceError

QUANTS: tuple[Quant, ...] = ("none", "w8", "w4")
PROMPT = "A person who is blind walks with a cane. The first thing to tell them about a street crossing is"
NEW_TOKENS = 64
TEXT_TOKENS = 2000
WINDOW = 500  # tokens that a perplexity looks back at most: each window starts anew


@dataclass
class LanguageReport:
    greedy_equal: bool
    text: str  # what both wrote
    perplexity: dict[str, float] = field(default_factory=dict)  # "transformers", then each quantisation
    megabytes: dict[str, float] = field(default_factory=dict)
    export_s: dict[str, float] = field(default_factory=dict)
    peak_mb: float = 0.0  # resident memory of the process, the model itself included
    tokens: int = 0  # that the perplexities are over

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def check_language(folder: str, text: str, step: Callable[[str], None] = lambda name: None) -> LanguageReport:
    """``text`` needs ``TEXT_TOKENS`` tokens at least for the perplexities to be comparable between runs."""
    backbone = open_text(folder)
    tokens = backbone.prompter.encode(text)[:TEXT_TOKENS]
    if len(tokens) < 2:
        raise SourceError(f"the text for the perplexities has {len(tokens)} tokens: expected {TEXT_TOKENS} or more")
    step("transformers")
    expected = _transformers_greedy(backbone, backbone.prompter.encode(PROMPT))
    report = LanguageReport(True, backbone.prompter.decode(expected), tokens=len(tokens))
    report.perplexity["transformers"] = _transformers_perplexity(backbone, tokens)
    for quant in QUANTS:
        with tempfile.TemporaryDirectory() as name:
            path = Path(name) / "decoder.onnx"
            step(f"export, {quant}")
            began = time.perf_counter()
            write_decoder(backbone, path, quant, "cpu")
            report.export_s[quant] = round(time.perf_counter() - began, 1)
            report.peak_mb = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1)
            report.megabytes[quant] = round(sum(f.stat().st_size for f in path.parent.iterdir()) / 1e6, 1)
            decoder = _Decoder(backbone, path, quant)
            if quant == "none":
                report.greedy_equal = decoder.greedy(backbone.prompter.encode(PROMPT)) == expected
            step(f"perplexity, {quant}")
            report.perplexity[quant] = decoder.perplexity(tokens)
    return report


@torch.no_grad()
def _transformers_greedy(backbone: TextOnly, prompt: list[int]) -> list[int]:
    out = backbone.model.generate(
        torch.tensor([prompt]), attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
        max_new_tokens=NEW_TOKENS, do_sample=False, pad_token_id=0,
    )  # fmt: skip
    tokens: list[int] = out[0, len(prompt):].tolist()
    return tokens


@torch.no_grad()
def _transformers_perplexity(backbone: TextOnly, tokens: list[int]) -> float:
    losses = []
    for window in _windows(tokens):
        ids = torch.tensor([window])
        logits = backbone.model(ids).logits[0, :-1]
        losses.append(torch.nn.functional.cross_entropy(logits.double(), ids[0, 1:], reduction="none"))
    return round(math.exp(float(torch.cat(losses).mean())), 4)


def _windows(tokens: list[int]) -> list[list[int]]:
    return [tokens[first : first + WINDOW] for first in range(0, len(tokens), WINDOW)]


class _Decoder:
    """The graph, a token at a time as in an answer."""

    def __init__(self, backbone: TextOnly, graph: Path, quant: Quant) -> None:
        self._table = backbone.embed(torch.arange(backbone.text_config.vocab_size)).detach().numpy()
        self._end = backbone.side.tokens.end
        self._decoder = Decoder.of_graph(graph, decoder_section(backbone, quant), threads=usable_cores())

    def greedy(self, prompt: list[int]) -> list[int]:
        self._decoder.rewind(0)
        scores, out = self._read(prompt), []
        for _ in range(NEW_TOKENS):
            out.append(int(scores.argmax()))
            if out[-1] in self._end:
                break
            scores = self._read(out[-1:])
        return out

    def perplexity(self, tokens: list[int]) -> float:
        losses = []
        for window in _windows(tokens):
            self._decoder.rewind(0)
            for token, following in itertools.pairwise(window):
                scores = self._read([token]).astype(np.float64)
                losses.append(np.logaddexp.reduce(scores) - scores[following])
        return round(math.exp(np.mean(losses)), 4)

    def _read(self, tokens: list[int]) -> Any:
        first, count = self._decoder.length, len(tokens)
        return self._decoder.read(self._table[tokens], np.arange(first, first + count)[None], np.full(count, -1))
