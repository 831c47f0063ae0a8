"""``handrail export --check``: every graph against torch, for tiny models of all families or for a bundle's own."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from handrail.export.backbones import tiny
from handrail.export.bundles.bundling import Parts, decoder_section, write_decoder
from handrail.export.graphs.quantise import Quant
from handrail.export.graphs.sensors import write_fusion, write_primus, write_vision
from handrail.export.model.fused import FusedModel
from handrail.export.model.fusion import Fusion
from handrail.export.model.primus import Primus
from handrail.export.parity.compare import LOGITS_WITHIN, Graphs, Report, check, difference, random_batch
from handrail.runtime.grid.imu import AXES, LENGTH
from handrail.runtime.providers import Provider

STAGES = (1, 2)
PAPER_WIDTH = 896  # of the language model in seed 000
VARIANTS: dict[str, Provider] = {"fused": "cpu", "plain": "tensorrt"}


def check_tiny(family: str, step: Callable[[str], None] = lambda name: None) -> Iterator[Report]:
    """Both stages through both variants of the graphs; random weights from a fixed seed."""
    backbone = tiny.build(family)
    with tempfile.TemporaryDirectory() as name:
        folders = {variant: Path(name) / variant for variant in VARIANTS}
        for variant, provider in VARIANTS.items():
            folders[variant].mkdir()
            step(f"{family}: frames and decoder, {variant}")
            write_vision(backbone, folders[variant], "none", provider)
            write_decoder(backbone, folders[variant] / "decoder.onnx", "none", provider)
        torch.manual_seed(0)
        primus = Primus().eval()
        for folder in folders.values():
            write_primus(primus, folder)
        for stage in STAGES:
            torch.manual_seed(stage)
            fusion = Fusion(backbone.d_model, stage).eval()
            for variant, provider in VARIANTS.items():
                step(f"{family}: stage {stage}, {variant}")
                write_fusion(fusion, backbone.d_model, folders[variant])
                section = decoder_section(backbone, provider=provider)
                report = check(FusedModel(backbone, fusion), folders[variant], section, seed=stage)
                report.variant = variant
                report.max_abs_diff["primus"] = _primus_off(primus, folders[variant])
                yield report


class BundleCheck:
    """A trained model against the graphs of its own bundle. Made before the export, which merges its adapters."""

    def __init__(self, parts: Parts, quant: Quant, provider: Provider = "cpu") -> None:
        self._parts, self._quant, self._batch = parts, quant, random_batch(parts.model, 0)
        self._section = decoder_section(parts.model.backbone, quant, provider)
        self._before = self._scores()

    def __call__(self, folder: Path) -> Report:
        """``folder``: with all graphs of the bundle."""
        report = check(self._parts.model, folder, self._section)
        report.variant, report.lossy = "bundle", self._quant != "none"
        report.max_abs_diff["adapters merged"] = difference(self._scores().numpy(), self._before)
        report.within = LOGITS_WITHIN * max(1.0, float(self._before.abs().max()))  # large numbers round coarsely
        if self._parts.primus is not None:
            report.max_abs_diff["primus"] = _primus_off(self._parts.primus, folder)
        return report

    @torch.no_grad()
    def _scores(self) -> Tensor:
        scores: Tensor = self._parts.model(self._batch)
        return scores


def fusion_parameters(d_model: int, stage: int) -> int:
    with torch.device("meta"):
        return sum(p.numel() for p in Fusion(d_model, stage).parameters())


def _primus_off(primus: nn.Module, folder: Path) -> float:
    windows = np.random.default_rng(0).normal(size=(5, AXES, LENGTH)).astype(np.float32)
    theirs = Graphs(folder).run("primus", {"windows": windows})["features"]
    with torch.no_grad():
        return difference(theirs, primus(torch.tensor(windows)))
