"""Frames, sensor streams and IMU windows as graphs; batches of frames and windows of any size."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from handrail.export.backbones.base import Backbone
from handrail.export.graphs.onnx_file import Input, save, to_graph
from handrail.export.graphs.quantise import Quant
from handrail.export.graphs.vision import for_cpu
from handrail.export.model.fusion import Fusion
from handrail.runtime.grid import BINS, STREAMS
from handrail.runtime.grid.imu import AXES, LENGTH
from handrail.runtime.preprocess import ImagePlan
from handrail.runtime.providers import Provider


class VisionGraph(nn.Module):
    """Pixels [F, ...] to features [F, T, d], with Qwen3-VL's deepstack [K, F, T, d] beside them."""

    def __init__(self, backbone: Backbone) -> None:
        super().__init__()
        self.backbone = backbone

    def forward(self, pixels: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        seen = self.backbone.see(pixels)
        return seen.features if seen.deepstack is None else (seen.features, seen.deepstack)


class FusionGraph(nn.Module):
    """The question [1, d], then values [1, 64, D] and validity [1, 64] of each stream in the order of ``STREAMS``."""

    def __init__(self, fusion: Fusion) -> None:
        super().__init__()
        self.fusion = fusion

    def forward(self, *inputs: Tensor) -> tuple[Tensor, Tensor]:
        question, *rest = inputs
        values = dict(zip(STREAMS, rest[::2], strict=True))
        valid = dict(zip(STREAMS, rest[1::2], strict=True))
        out = self.fusion(values, valid, question)
        return out.tokens, out.gates


def write_vision(backbone: Backbone, folder: Path, quant: Quant = "none", provider: Provider = "cpu") -> None:
    """With ONNX Runtime's operators for the CPU; as opset 20 alone has it for the others."""
    outputs = ["features", "deepstack"] if backbone.deepstack_layers else ["features"]
    graph = to_graph(VisionGraph(backbone), vision_inputs(backbone.side.image), outputs)
    save(for_cpu(graph, quant) if provider == "cpu" else graph, folder / "vision.onnx")


def write_fusion(fusion: Fusion, d_model: int, folder: Path) -> None:
    save(to_graph(FusionGraph(fusion), fusion_inputs(d_model), ["tokens", "gates"]), folder / "fusion.onnx")


def write_primus(primus: nn.Module, folder: Path) -> None:
    windows = Input("windows", torch.randn(2, AXES, LENGTH), (0,))
    save(to_graph(primus, [windows], ["features"]), folder / "primus.onnx")


def vision_inputs(plan: ImagePlan) -> list[Input]:
    return [Input("pixels", torch.zeros(2, *plan.shape), (0,))]


def fusion_inputs(d_model: int) -> list[Input]:
    inputs = [Input("question", torch.randn(1, d_model))]
    for stream, width in STREAMS.items():
        inputs.append(Input(stream, torch.randn(1, BINS, width)))
        inputs.append(Input(f"{stream}_valid", torch.ones(1, BINS, dtype=torch.bool)))
    return inputs
