"""Torch against ONNX Runtime: every graph on the same input, then a whole greedy answer with frames and sensors.

    report = check(model, bundle_folder)      # tokens_equal, and the largest difference of each graph
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from handrail.export.model.fused import Batch, FusedModel
from handrail.export.model.fusion import TOKENS_OUT
from handrail.runtime.engine.decoder import Decoder
from handrail.runtime.grid import BINS, STREAMS
from handrail.runtime.preprocess import positions
from handrail.runtime.preprocess.positions import frame_of
from handrail.runtime.providers import open_session

Array = NDArray[Any]
FRAMES = 8
LOGITS_WITHIN = 1e-4
LOSSY = ("vision", "decoder")  # graphs, where weights are in few bits


@dataclass
class Report:
    """Of one model. ``cases``: with all streams, with one missing, with none."""

    family: str
    stage: int
    tokens_equal: bool
    max_abs_diff: dict[str, float]  # graph -> over all cases
    tokens: dict[str, list[int]] = field(default_factory=dict)  # case -> greedy answer
    variant: str = "fused"
    lossy: bool = False  # weights are in few bits: how far ``LOSSY`` are off is told, not judged
    within: float = LOGITS_WITHIN

    @property
    def held(self) -> bool:
        judged = {graph: off for graph, off in self.max_abs_diff.items() if not (self.lossy and graph in LOSSY)}
        finite = all(math.isfinite(off) for off in self.max_abs_diff.values())
        return (self.tokens_equal or self.lossy) and finite and max(judged.values()) <= self.within

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "held": self.held}


class Graphs:
    """A bundle's graphs in ONNX Runtime, on the CPU; its decoder is opened apart."""

    def __init__(self, folder: Path) -> None:
        names = ("vision", "fusion", "primus")
        self.sessions = {n: open_session(f, "cpu") for n in names if (f := folder / f"{n}.onnx").exists()}

    def run(self, graph: str, inputs: Mapping[str, Array]) -> dict[str, Array]:
        session = self.sessions[graph]
        names = [o.name for o in session.get_outputs()]
        taken = {i.name for i in session.get_inputs()}
        return dict(zip(names, session.run(names, {k: v for k, v in inputs.items() if k in taken}), strict=True))


def check(
    model: FusedModel, folder: Path, section: Mapping[str, Any], *, new_tokens: int = 24, seed: int = 0
) -> Report:
    """Random frames, sensors and question; the streams all there, one missing, all missing. ``section``: what the
    manifest says, or would say, of the decoder."""
    graphs, backbone = Graphs(folder), model.backbone
    reader = Decoder.of_graph(folder / "decoder.onnx", section)
    stage = model.fusion.stage if model.fusion is not None else 0
    report = Report(backbone.family, stage, True, {})
    streams = list(STREAMS)
    missing = {"all streams": (), f"no {streams[seed % 5]}": (streams[seed % 5],), "no streams": tuple(streams)}
    for case, gone in missing.items():
        batch = random_batch(model, seed, gone)
        ours = torch_answer(model, batch, new_tokens)
        theirs = graph_answer(model, graphs, reader, batch, new_tokens, report.max_abs_diff)
        report.tokens[case] = theirs.tokens
        report.tokens_equal &= ours.tokens == theirs.tokens
        same = comparable(ours.tokens, theirs.tokens)
        off = difference(np.stack(theirs.logits[:same]), np.stack(ours.logits[:same]))
        _note(report.max_abs_diff, "decoder", off)
    return report


def comparable(ours: list[int], theirs: list[int]) -> int:
    """Steps whose scores are of the same text: to the first token that differs, that one included."""
    equal = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(ours, theirs, strict=False)))
    return min(equal + 1, len(ours), len(theirs))


@dataclass
class Answer:
    tokens: list[int]
    logits: list[Array]


def random_batch(model: FusedModel, seed: int, missing: tuple[str, ...] = ()) -> Batch:
    """One example: eight frames, five streams with random gaps, a question."""
    rng, backbone = np.random.default_rng(seed), model.backbone
    sensor_tokens = 0 if model.fusion is None else TOKENS_OUT[model.fusion.stage]
    question = "What is in front of me?"
    ids = backbone.prompt(question, FRAMES, sensor_tokens)
    asked = backbone.prompter.encode(question)
    pixels = rng.normal(size=(FRAMES, *backbone.side.image.shape)).astype(np.float32)
    values, valid = {}, {}
    for stream, width in STREAMS.items():
        there = (rng.random(BINS) < 0.7) & (stream not in missing)
        valid[stream] = torch.tensor(there[None])
        values[stream] = torch.tensor((rng.normal(size=(BINS, width)) * there[:, None])[None], dtype=torch.float32)
    return Batch(
        torch.tensor([ids]), torch.ones(1, len(ids), dtype=torch.bool), torch.full((1, len(ids)), -100),
        torch.tensor([asked]), torch.ones(1, len(asked), dtype=torch.bool), torch.tensor(pixels), values, valid,
    )  # fmt: skip


@torch.no_grad()
def torch_answer(model: FusedModel, batch: Batch, new_tokens: int) -> Answer:
    """Greedy, the whole sequence anew for each token: slow, and without a cache that could be wrong."""
    backbone, out = model.backbone, Answer([], [])
    embeds, deepstack = model.embedded(batch)
    ids = batch.ids
    for _ in range(new_tokens):
        hidden = backbone.hidden(embeds, backbone.asked(ids, torch.ones_like(ids, dtype=torch.bool)), deepstack)
        scores = backbone.logits(hidden[:, -1])[0]
        token = int(scores.argmax())
        out.tokens.append(token)
        out.logits.append(scores.numpy())
        if token in backbone.side.tokens.end:
            break
        ids = torch.cat([ids, torch.tensor([[token]])], dim=1)
        embeds = torch.cat([embeds, backbone.embed(torch.tensor([[token]]))], dim=1)
        if deepstack is not None:
            deepstack = torch.cat([deepstack, torch.zeros_like(deepstack[:, :, :1])], dim=2)
    return out


def graph_answer(
    model: FusedModel, graphs: Graphs, decoder: Decoder, batch: Batch, new_tokens: int, off: dict[str, float]
) -> Answer:
    """Greedy through the graphs; notes in ``off`` how far each graph is from torch."""
    embeds, deepstack = _placed(model, graphs, batch, off)
    backbone, ids = model.backbone, batch.ids[0].numpy()
    place, frames = positions(ids, backbone.image_id, backbone.frame_grid), frame_of(ids, backbone.image_id)
    decoder.rewind(0)
    scores = decoder.read(embeds[0], place.axes, frames, None if deepstack is None else deepstack[:, 0])
    out = Answer([], [])
    for following in itertools.count(place.next):
        token = int(scores.argmax())
        out.tokens.append(token)
        out.logits.append(scores.copy())
        if token in backbone.side.tokens.end or len(out.tokens) == new_tokens:
            break
        embedded = backbone.embed(torch.tensor([token])).detach().numpy()
        scores = decoder.read(embedded, np.full((len(place.axes), 1), following), np.array([-1]))
    return out


def _placed(model: FusedModel, graphs: Graphs, batch: Batch, off: dict[str, float]) -> tuple[Array, Array | None]:
    """Embeddings with frames and sensors in place, from the graphs."""
    backbone = model.backbone
    assert batch.pixels is not None
    ids = batch.ids[0].numpy()
    embeds = backbone.embed(batch.ids).detach().numpy().copy()
    with torch.no_grad():
        seen = backbone.see(batch.pixels)
    vision = graphs.run("vision", {"pixels": batch.pixels.numpy()})
    _note(off, "vision", difference(vision["features"], seen.features))
    at = ids == backbone.image_id
    embeds[0, at] = vision["features"].reshape(-1, embeds.shape[-1])
    deepstack = None
    if seen.deepstack is not None:
        _note(off, "vision", difference(vision["deepstack"], seen.deepstack))
        deepstack = np.zeros((len(vision["deepstack"]), *embeds.shape), embeds.dtype)
        deepstack[:, 0, at] = vision["deepstack"].reshape(len(deepstack), -1, embeds.shape[-1])
    if model.fusion is not None:
        fed = {"question": model.asked_for(batch).detach().numpy()}
        for stream in STREAMS:
            fed[stream], fed[f"{stream}_valid"] = batch.values[stream].numpy(), batch.streams_valid[stream].numpy()
        fused = graphs.run("fusion", fed)
        with torch.no_grad():
            ours = model.fusion(batch.values, batch.streams_valid, model.asked_for(batch))
        _note(off, "fusion", difference(fused["tokens"], ours.tokens))
        _note(off, "fusion", difference(fused["gates"], ours.gates))
        embeds[0, ids == backbone.sensor_id] = fused["tokens"][0]
    return embeds, deepstack


def difference(theirs: Array, ours: Tensor | Array) -> float:
    """The largest; infinite where either isn't a number."""
    found = np.abs(theirs - (ours.detach().numpy() if isinstance(ours, Tensor) else ours)).max()
    return float(found) if np.isfinite(found) else math.inf


def _note(off: dict[str, float], graph: str, found: float) -> None:
    off[graph] = max(off.get(graph, 0.0), found)
