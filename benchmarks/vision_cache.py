"""What it is worth to encode frames as they come: time to the first token of a question about eight of them.

A bundle as large as SmolVLM2-256M with random weights: times need no trained ones. *Kept*: all but the newest frame's
features are at hand. *Encoded*: all eight when the question comes. Both then read the same prompt.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from handrail.benchmarks.engine_ratios import median, ratio
from handrail.runtime.bundle import Bundle, open_bundle
from handrail.runtime.engine.decoder import Decoder
from handrail.runtime.machine import usable_cores
from handrail.runtime.preprocess import positions
from handrail.runtime.preprocess.positions import frame_of
from handrail.runtime.preprocess.prompt import Prompter, TokenPlan
from handrail.runtime.providers import CHUNK, open_session
from handrail.streams.errors import HandrailError

SIZE = "random:smolvlm2-256m"
FRAMES, AIM = 8, 4.0
QUESTION = "What is in front of me?"
Array = NDArray[Any]


class Asked:
    """A question about eight frames, with the graphs that answer it."""

    def __init__(self, bundle: Bundle, ids: Array, threads: int) -> None:
        self.vision = open_session(bundle.path("vision.onnx"), "cpu", threads=threads, spin=threads > 1)
        self.decoder = Decoder(bundle, threads=threads, spin=threads > 1)
        self.table = bundle.embeddings()
        image = bundle.manifest.tokens["image"]
        self.ids, self.at, self.frames = ids, np.flatnonzero(ids == image), frame_of(ids, image)
        self.places = positions(ids, image, None).axes
        shape = bundle.manifest.vision["pixels"]
        self.pixels = np.random.default_rng(0).normal(size=(FRAMES, *shape)).astype(np.float32)

    def encode(self, frames: Array) -> Array:
        """One at a time, as they come: a batch of eight takes as long and eight times the memory."""
        return np.concatenate([self.vision.run(["features"], {"pixels": frame[None]})[0] for frame in frames])

    def first_token_ms(self, kept: Array) -> float:
        """``kept``: features of the older frames [F, T, d]; the others are encoded now."""
        began = time.perf_counter()
        features = np.concatenate([kept, self.encode(self.pixels[len(kept) :])])
        embeds = np.array(self.table[self.ids], np.float32)
        embeds[self.at] = features.reshape(-1, embeds.shape[1])
        self.decoder.rewind(0)
        scores = embeds[0]
        for i in range(0, len(embeds), CHUNK):
            piece = slice(i, i + CHUNK)
            scores = self.decoder.read(embeds[piece], self.places[:, piece], self.frames[piece])
        int(scores.argmax())
        return (time.perf_counter() - began) * 1e3


def vision_cache(rounds: int, quant: str = "w8") -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "random"
        command = ["export", SIZE, "--out", str(folder), "--quant", quant]
        done = subprocess.run(  # noqa: S603 - our own command
            [sys.executable, "-m", "handrail.runtime.cli", *command], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise HandrailError((done.stderr.strip().splitlines() or ["the export failed"])[-1])
        bundle = open_bundle(folder)
        asked = Asked(bundle, prompt(bundle), usable_cores())
        features = asked.encode(asked.pixels)
        asked.first_token_ms(features[:-1])
        kept, encoded = [], []
        for _ in range(rounds):
            kept.append({"ttft_ms": asked.first_token_ms(features[:-1])})
            encoded.append({"ttft_ms": asked.first_token_ms(features[:0])})
    return {
        "bundle": SIZE, "quantisation": quant, "frames": FRAMES, "prompt_tokens": len(asked.ids),
        "threads": usable_cores(), "kept_ttft_ms": round(median(kept, "ttft_ms"), 1),
        "encoded_ttft_ms": round(median(encoded, "ttft_ms"), 1), "speedup": ratio(kept, encoded, "ttft_ms"),
    }  # fmt: skip


def prompt(bundle: Bundle) -> Array:
    """The question's tokens, without sensors."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_str(bundle.read("tokenizer.json").decode())
    plan = msgspec.convert(bundle.manifest.tokens, TokenPlan)
    template = bundle.read("chat_template.jinja").decode()
    return np.array(Prompter(tokenizer, template, plan).ids(QUESTION, FRAMES, 0))
