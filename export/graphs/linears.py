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

from handrail.export.graphs.blocks import blocked, unblocked
from handrail.export.graphs.eight_bits import ByToken
from handrail.export.graphs.net import Net
from handrail.export.graphs.quantise import Quant

F32 = NDArray[np.float32]


class Linears(Protocol):
    def __call__(self, net: Net, x: ir.Value, name: str, modules: Sequence[nn.Linear]) -> ir.Value:
        """x [1, S, K] to [1, S, N], the outputs of ``modules`` one after the other."""
        ...

    def apart(self, net: Net, x: ir.Value, name: str, modules: Sequence[nn.Linear]) -> Sequence[ir.Value]:
        """The same, each on its own."""
        ...


class _Joined:
    """One product, then split: a few tokens' outputs are copied sooner than another product begins."""

    def apart(self, net: Net, x: ir.Value, name: str, modules: Sequence[nn.Linear]) -> Sequence[ir.Value]:
        widths = [m.weight.shape[0] for m in modules]
        return net.all("Split", [self(net, x, name, modules), net.ints(*widths)], len(modules), axis=-1)

    def __call__(self, net: Net, x: ir.Value, name: str, modules: Sequence[nn.Linear]) -> ir.Value:
        raise NotImplementedError


def rows(modules: Sequence[nn.Linear]) -> tuple[F32, F32 | None]:
    """Matrices [N, K] and biases [N] of several, joined."""
    weights = [m.weight.detach().float().cpu().numpy() for m in modules]
    joined = weights[0] if len(weights) == 1 else np.concatenate(weights)
    if all(m.bias is None for m in modules):
        return joined, None
    biases = [
        np.zeros(len(m.weight), np.float32) if m.bias is None else m.bias.detach().float().cpu().numpy()
        for m in modules
    ]
    return joined, np.concatenate(biases)


class Whole(_Joined):
    """In float32."""

    def __call__(self, net: Net, x: ir.Value, name: str, modules: Sequence[nn.Linear]) -> ir.Value:
        weight, bias = rows(modules)
        out = net.op("MatMul", x, net.weight(f"{name}.weight", weight.T))
        return out if bias is None else net.op("Add", out, net.weight(f"{name}.bias", bias))


@dataclass(frozen=True)
class Blocks(_Joined):
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
        values, scales = net.weight(f"{name}.blocks", made.values), net.weight(f"{name}.scales", made.scales)
        inputs: list[Any] = [x, values, scales, zero]
        if bias is not None:
            inputs += [None, net.weight(f"{name}.bias", bias)]
        return net.op("ort.MatMulNBits", *inputs, K=k, N=n, bits=bits, block_size=self.block, accuracy_level=4)


class Rows:
    """For many tokens at a time (``eight_bits``), of the weights that are left of ``blocks``. The head, which reads one
    token, stays in blocks."""

    def __init__(self, blocks: Blocks) -> None:
        self.blocks = blocks
        self._by_token = ByToken()

    def __call__(self, net: Net, x: ir.Value, name: str, modules: Sequence[nn.Linear]) -> ir.Value:
        if name == "head":
            return self.blocks(net, x, name, modules)
        return self._product(net, x, name, *rows(modules))

    def apart(self, net: Net, x: ir.Value, name: str, modules: Sequence[nn.Linear]) -> Sequence[ir.Value]:
        return [self._product(net, x, f"{name}.{i}", *rows([m])) for i, m in enumerate(modules)]

    def _product(self, net: Net, x: ir.Value, name: str, weight: F32, bias: F32 | None) -> ir.Value:
        left = unblocked(weight, self.blocks.bits, self.blocks.block, self.blocks.zero_points)
        out = self._by_token.product(net, x, name, left)
        return out if bias is None else net.op("Add", out, net.weight(f"{name}.bias", bias))


def linears_of(quant: Quant) -> Whole | Blocks:
    match quant:
        case "none":
            return Whole()
        case "w8":
            # SmolLM2-135M on the README: 0.7 % of perplexity. With zero points 0.9 % and a tenth slower; of 128: 2 %.
            return Blocks(8, 64, 8, zero_points=False)
        case "w4":
            # A head in 4 bits would cost 15 % of perplexity, and no zero points 12 %; both are 3 % faster.
            return Blocks(4, 32, 8)
