"""From a torch module to an ONNX file: the one way through torch's exporter, with and without ONNX Runtime's own ops.

Weights lie beside the graph in one file, written straight from the module's tensors: no second copy in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx_ir as ir
import torch
from torch import Tensor, nn
from transformers.exporters.onnxruntime_fusions import fuse_for_onnxruntime

from handrail.export.quiet import quiet
from handrail.runtime.providers import OPSET


@dataclass(frozen=True, slots=True)
class Input:
    name: str
    example: Tensor
    free: tuple[int, ...] = ()  # axes whose size may change


def to_graph(module: nn.Module, inputs: Sequence[Input], outputs: Sequence[str]) -> ir.Model:
    """``module`` takes the inputs in order and returns a tensor or a tuple of as many as ``outputs``."""
    shapes = tuple({axis: torch.export.Dim.DYNAMIC for axis in i.free} or None for i in inputs)
    with torch.no_grad(), quiet():
        program = torch.onnx.export(
            module.eval(), tuple(i.example for i in inputs), input_names=[i.name for i in inputs],
            output_names=list(outputs), dynamic_shapes=_shaped(module, shapes), opset_version=OPSET, dynamo=True,
            verbose=False, optimize=True,
        )  # fmt: skip
    assert program is not None
    return program.model


def fused(model: ir.Model) -> ir.Model:
    """With ONNX Runtime's own operators for the CPU, in place."""
    with quiet():
        fuse_for_onnxruntime(model, "cpu")
    return model


def save(model: ir.Model, path: Path) -> list[Path]:
    """The graph and its weights; returns the files written."""
    data = path.name + ".data"
    ir.save(model, str(path), external_data=data)
    return [p for p in (path, path.with_name(data)) if p.exists()]


def let_go(model: ir.Model) -> None:
    """Free its weights: torch's exporter holds on to what it made, and fusing has copied two thirds of them."""
    for value in model.graph.initializers.values():
        value.const_value = None


def _shaped(module: nn.Module, shapes: tuple[Any, ...]) -> Any:
    """Modules with a variable number of inputs name them all together."""
    code = module.forward.__func__.__code__
    takes_any = bool(code.co_flags & 0x04)
    return {code.co_varnames[code.co_argcount]: shapes} if takes_any else shapes
