"""How a decoder's matrices are held and multiplied: as they are, or in blocks of few bits.

A matrix is [N, K] as torch holds it: N outputs, K inputs. Those that read the same input are given together and come
out as one product, since a small model's time is the number of its products. Knows no model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray
from torch import nn

from handrail.export.graphs.blocks import blocked
from handrail.export.graphs.net import Net
from handrail.export.graphs.quantise import Quant

F32 = NDArray[np.float32]


class Linears(Protocol):
    def __call__(self, net: Net, x: ir.Value, name: str, modules: Sequence[nn.Linear]) -> ir.Value:
        """x [1, S, K] to [1, S, N], the outputs of ``modules`` one after the other."""
        ...


def rows(modules: Sequence[nn.Linear]) -> tuple[F32, F32 | None]:
    """Matrices [N, K] and biases [N] of several, joined."""
    weights = [m.weight.detach().float().cpu().numpy() for m in modules]
    joined = weights[0] if len(weights) == 1 else np.concatenate(weights)
    if all(m.bias is None for m in modules):
        return joined, None
    none = [np.zeros(len(w), np.float32) for w in weights]
    biases = [z if m.bias is None else m.bias.detach().float().cpu().numpy() for m, z in zip(modules, none, strict=True)]
    return joined, np.concatenate(biases)


class Whole:
    """In float32."""

    def __call__(self, net: Net, x: ir.Value, name: str, modules: Sequence[nn.Linear]) -> ir.Value:
        weight, bias = rows(modules)
        out = net.op("MatMul", x, net.weight(f"{name}.weight", weight.T))
        return out if bias is None else net.op("Add", out, net.weight(f"{name}.bias", bias))


@dataclass(frozen=True)
class Blocks:
    """MatMulNBits of ONNX Runtime; products are of 8-bit integers. ``head_bits``: of the last matrix."""

    bits: int
    block: int
    head_bits: int
    zero_points: bool = True

    def __call__(self, net: Net, x: ir.Value, name: str, modules: Sequence[nn.Linear]) -> ir.Value:
        weight, bias = rows(modules)
        bits = self.head_bits if name == "head" else self.bits
        n, k = weight.shape
        made = blocked(weight, bits, self.block, zero_points=self.zero_points)
        zero = None if made.zeros is None else net.weight(f"{name}.zeros", made.zeros)
        inputs: list[Any] = [x, net.weight(f"{name}.blocks", made.values), net.weight(f"{name}.scales", made.scales), zero]
        if bias is not None:
            inputs += [None, net.weight(f"{name}.bias", bias)]
        return net.op("ort.MatMulNBits", *inputs, K=k, N=n, bits=bits, block_size=self.block, accuracy_level=4)


def linears_of(quant: Quant) -> Linears:
    match quant:
        case "none":
            return Whole()
        case "w8":
            return Blocks(8, 32, 8)
        case "w4":
            return Blocks(4, 32, 4)
