"""``handrail export --check``: every graph against torch, for tiny models of all families or for a bundle's own."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from torch import nn

from handrail.export.backbones import tiny
from handrail.export.bundles.bundling import Parts, write_decoder, write_graphs
from handrail.export.graphs.sensors import write_fusion, write_primus, write_vision
from handrail.export.model.fused import FusedModel
from handrail.export.model.fusion import Fusion
from handrail.export.model.primus import Primus
from handrail.export.parity.compare import Graphs, Report, check, random_batch
from handrail.runtime.grid.imu import AXES, LENGTH

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
        write_vision(backbone, folder)
        torch.manual_seed(0)
        primus = Primus().eval()
        write_primus(primus, folder)
        off_primus = _primus_off(primus, folder)
        for stage in STAGES:
            torch.manual_seed(stage)
            fusion = Fusion(backbone.d_model, stage).eval()
            write_fusion(fusion, backbone.d_model, folder)
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
            if parts.primus is not None:
                report.max_abs_diff["primus"] = _primus_off(parts.primus, folder)
            yield report


def _primus_off(primus: nn.Module, folder: Path) -> float:
    windows = np.random.default_rng(0).normal(size=(5, AXES, LENGTH)).astype(np.float32)
    theirs = Graphs(folder).run("primus", {"windows": windows})["features"]
    with torch.no_grad():
        return float(np.abs(theirs - primus(torch.tensor(windows)).numpy()).max())
