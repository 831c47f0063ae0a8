"""Weights in 8 or 4 bits for the decoder, whose time is the reading of its weights.

MatMulNBits of ONNX Runtime, blocks of 32 with a scale and a zero point each; products are of 8-bit integers. Measured
on SmolLM2-135M: 8 bits keep perplexity (24.48 to 24.56), 4 cost (30.8); dynamic int8 costs most (38.7) and isn't
offered.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import onnx
from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

Quant = Literal["none", "w8", "w4"]
BITS = {"w8": 8, "w4": 4}
BLOCK = 32


def quantise(source: Path, target: Path, quant: Quant) -> None:
    """The graph at ``source`` (weights beside it) with its constant matrices in blocks of few bits, to ``target``."""
    quantiser = MatMulNBitsQuantizer(str(source), bits=BITS[quant], block_size=BLOCK, accuracy_level=4)
    quantiser.process()
    onnx.save(
        quantiser.model.model, str(target), save_as_external_data=True, all_tensors_to_one_file=True,
        location=f"{target.name}.data", size_threshold=1024,
    )  # fmt: skip
