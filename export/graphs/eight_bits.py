"""Products of whole numbers of 8 bits on both sides, which the processor multiplies in tiles (AMX): for many tokens.

A matrix has a scale an output. Each token has a scale of its own, so that no result depends on which tokens are read
together, and one token's outlier costs no other its bits. Knows no model.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from handrail.export.graphs.blocks import MIDDLE, TOP, in_eight_bits
from handrail.export.graphs.net import Net

F32 = NDArray[np.float32]
TINY = 1e-20  # a token of zeros


class ByToken:
    """``product(net, x, "fc", weight)``; what several products read is made whole numbers once."""

    def __init__(self) -> None:
        self._whole: dict[str, tuple[ir.Value, ir.Value]] = {}

    def product(self, net: Net, x: ir.Value, name: str, weight: F32) -> ir.Value:
        """x [..., K] with a matrix [N, K]: [..., N]"""
        whole, largest = self._whole_numbers(net, x, weight.shape[1])
        values, scales = in_eight_bits(weight)
        out = net.op(
            "ort.MatMulIntegerToFloat", whole, net.weight(f"{name}.values", values), net.number(1 / TOP),
            net.weight(f"{name}.scales", scales), net.weight("middle", np.array(MIDDLE, np.uint8)),
        )  # fmt: skip
        return net.op("Mul", out, largest)

    def _whole_numbers(self, net: Net, x: ir.Value, width: int) -> tuple[ir.Value, ir.Value]:
        """x in 8 bits, and each token's largest [..., 1]."""
        assert x.name is not None
        if x.name not in self._whole:
            largest = net.op("Max", net.op("ReduceMax", net.op("Abs", x), net.ints(-1)), net.number(TINY))
            scale = net.op("Mul", net.op("Reshape", largest, net.ints(-1)), net.number(1 / TOP))
            middle = net.op("Expand", net.weight("middle", np.array(MIDDLE, np.uint8)), net.op("Shape", scale))
            rows = net.op("Reshape", x, net.ints(-1, width))
            whole = net.op("QuantizeLinear", rows, scale, middle, axis=0)
            self._whole[x.name] = net.op("Reshape", whole, net.op("Shape", x)), largest
        return self._whole[x.name]
