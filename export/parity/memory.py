"""``handrail export --check --random MILLIONS``: time and peak memory of a decoder's export, on random weights.

What counts is memory that belongs to the process alone: pages of a mapped file are given back when they are needed.
"""

from __future__ import annotations

import gc
import multiprocessing
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from handrail.export.backbones.text import TextOnly, text_side
from handrail.export.backbones.tiny import byte_tokenizer
from handrail.export.bundles.bundling import write_decoder
from handrail.export.graphs.quantise import Quant

WIDTH, INNER, HEAD, VOCABULARY = 1536, 4096, 64, 49152
KV_HEADS = 8
PER_LAYER = 2 * WIDTH * WIDTH + 2 * WIDTH * KV_HEADS * HEAD + 3 * WIDTH * INNER
LEAST = (VOCABULARY * WIDTH + PER_LAYER) // 10**6 + 1  # millions of parameters
SAMPLE_S = 0.02
GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class Measured:
    parameters: int
    quant: Quant
    weights_gib: float  # in float32
    peak_gib: float  # of all that the process held
    copies: float  # of the weights: what the peak lies above an empty process, over their size
    seconds: float


def check_memory(
    millions: Sequence[int], quants: Sequence[Quant], step: Callable[[str], None] = lambda name: None
) -> Iterator[Measured]:
    """Each in a process of its own: what torch keeps of one export would count in the next."""
    for n in millions:
        for quant in quants:
            step(f"{n} million parameters, {quant}")
            with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as alone:
                yield alone.submit(_measured, n, quant).result()


def _measured(millions: int, quant: Quant) -> Measured:
    gc.collect()
    empty = _own_memory()
    with tempfile.TemporaryDirectory() as folder, _watched() as peaks:
        model = _random(millions)
        parameters = sum(p.numel() for p in model.model.parameters())
        began = time.perf_counter()
        write_decoder(model, Path(folder) / "decoder.onnx", quant, "cpu")
        seconds = time.perf_counter() - began
    weights, peak = parameters * 4, max(peaks)
    return Measured(
        parameters, quant, round(weights / GIB, 3), round(peak / GIB, 3), round((peak - empty) / weights, 2),
        round(seconds, 1),
    )  # fmt: skip


def _random(millions: int) -> TextOnly:
    """A Llama as wide as those of 2B, with as many layers as it takes."""
    layers = max(1, round((millions * 10**6 - VOCABULARY * WIDTH) / PER_LAYER))
    config = LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=WIDTH, intermediate_size=INNER, num_hidden_layers=layers,
        num_attention_heads=WIDTH // HEAD, num_key_value_heads=KV_HEADS, tie_word_embeddings=True,
    )  # fmt: skip
    torch.manual_seed(0)
    model = LlamaForCausalLM(config).eval()
    model.config.text_config = model.config
    tokenizer = byte_tokenizer(())
    return TextOnly(model, tokenizer, text_side(tokenizer))


@contextmanager
def _watched() -> Iterator[list[int]]:
    peaks, over = [_own_memory()], threading.Event()

    def watch() -> None:
        while not over.wait(SAMPLE_S):
            peaks[0] = max(peaks[0], _own_memory())

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield peaks
    finally:
        over.set()
        thread.join()


def _own_memory() -> int:
    """Bytes of this process alone (RssAnon)."""
    with open("/proc/self/status", encoding="ascii") as lines:
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon"))
