"""Weights in 8 or 4 bits for a traced decoder (Gemma 3's): MatMulNBits of ONNX Runtime, blocks of 32 with a scale and a
zero point each; products are of 8-bit integers. Those that are written for the CPU have ``linears`` instead.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import onnx
from onnx.external_data_helper import load_external_data_for_model, uses_external_data
from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

from handrail.export.quiet import quiet

Quant = Literal["none", "w8", "w4"]
BITS = {"w8": 8, "w4": 4}
BLOCK = 32


def quantise(source: Path, target: Path, quant: Quant) -> None:
    """The graph at ``source`` (weights beside it) with its constant matrices in blocks of few bits, to ``target``.

    One matrix at a time is in memory as it was: the others stay in their file, which is mapped.
    """
    graph = onnx.load(str(source), load_external_data=False)
    outside = {t.name: t for t in graph.graph.initializer if uses_external_data(t)}
    files = {name: _moved(t, source.parent) for name, t in outside.items()}
    quantiser = MatMulNBitsQuantizer(graph, bits=BITS[quant], block_size=BLOCK, accuracy_level=4)
    with quiet():
        quantiser.process()
    done = quantiser.model.model
    for tensor in done.graph.initializer:
        if tensor.name in files and uses_external_data(tensor):  # what is no matrix stays as it is
            _point(tensor, files[tensor.name])
    load_external_data_for_model(done, str(source.parent))
    onnx.save(
        done, str(target), save_as_external_data=True, all_tensors_to_one_file=True,
        location=f"{target.name}.data", size_threshold=1024,
    )  # fmt: skip


def _moved(tensor: onnx.TensorProto, folder: Path) -> str:
    """Named with its folder: the quantiser looks for it from where the process stands. Returns the name it had."""
    name = next(e.value for e in tensor.external_data if e.key == "location")
    _point(tensor, str((folder / name).resolve()))
    return name


def _point(tensor: onnx.TensorProto, file: str) -> None:
    next(e for e in tensor.external_data if e.key == "location").value = file
