"""``handrail export --check``: every graph against torch, for tiny models of all families or for a bundle's own."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch

from handrail.export.backbones import tiny
from handrail.export.bundles.bundling import Parts, write_decoder, write_graphs
from handrail.export.graphs.onnx_file import save, to_graph
from handrail.export.graphs.sensors import (
    FusionGraph,
    VisionGraph,
    fusion_inputs,
    primus_inputs,
    vision_inputs,
    vision_outputs,
)
from handrail.export.model.fused import FusedModel
from handrail.export.model.fusion import Fusion
from handrail.export.model.primus import Primus
from handrail.export.parity.compare import Graphs, Report, check, random_batch

STAGES = (1, 2)
DECODERS = {"fused": "decoder.onnx", "plain": "decoder-plain.onnx"}


def check_tiny(family: str, step: Callable[[str], None] = lambda name: None) -> Iterator[Report]:
    """Both stages through both variants of the decoder; random weights from a fixed seed."""
    backbone = tiny.build(family)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        step(f"{family}: decoder")
        write_decoder(backbone, folder / DECODERS["fused"], "none", "cpu")
        write_decoder(backbone, folder / DECODERS["plain"], "none", "tensorrt")
        step(f"{family}: frames and sensors")
        save(to_graph(VisionGraph(backbone), vision_inputs(backbone.side.image), vision_outputs(backbone)),
             folder / "vision.onnx")  # fmt: skip
        off_primus = _check_primus(folder)
        for stage in STAGES:
            torch.manual_seed(stage)
            fusion = Fusion(backbone.d_model, stage).eval()
            save(to_graph(FusionGraph(fusion), fusion_inputs(backbone.d_model), ["tokens", "gates"]),
                 folder / "fusion.onnx")  # fmt: skip
            for variant, decoder in DECODERS.items():
                step(f"{family}: stage {stage}, {variant}")
                report = check(FusedModel(backbone, fusion), folder, seed=stage, decoder=decoder)
                report.variant = variant
                report.max_abs_diff["primus"] = off_primus
                yield report


def check_parts(parts: Parts, step: Callable[[str], None] = lambda name: None) -> Iterator[Report]:
    """A trained model's own graphs, both variants of the decoder; its adapters are merged."""
    with tempfile.TemporaryDirectory() as name:
        folder, batch = Path(name), random_batch(parts.model, 0)
        with torch.no_grad():
            before = parts.model(batch)
        write_graphs(parts, folder, "none", "cpu", step)
        with torch.no_grad():
            merged = float((parts.model(batch) - before).abs().max())
        write_decoder(parts.model.backbone, folder / DECODERS["plain"], "none", "tensorrt")
        for variant, decoder in DECODERS.items():
            report = check(parts.model, folder, decoder=decoder)
            report.variant = variant
            report.max_abs_diff["adapters merged"] = merged
            yield report


def _check_primus(folder: Path) -> float:
    torch.manual_seed(0)
    primus = Primus().eval()
    save(to_graph(primus, primus_inputs(), ["features"]), folder / "primus.onnx")
    windows = np.random.default_rng(0).normal(size=(5, 6, 250)).astype(np.float32)
    theirs = Graphs(folder, DECODERS["fused"]).run("primus", {"windows": windows})["features"]
    with torch.no_grad():
        return float(np.abs(theirs - primus(torch.tensor(windows)).numpy()).max())
