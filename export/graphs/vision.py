"""The vision encoder as ONNX Runtime's CPU is fastest with it: attention as one operator, products in 8 bits if asked.

A frame of SmolVLM2-256M's size, one thread: traced 1.0, fused 0.65, with 8-bit products 0.37. The graph is traced and
then rewritten in place; what isn't recognised stays as it was traced.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray
from onnx_ir.passes.common import RemoveUnusedNodesPass

from handrail.export.graphs.eight_bits import ByToken
from handrail.export.graphs.net import Net
from handrail.export.graphs.onnx_file import fused
from handrail.export.graphs.quantise import Quant
from handrail.export.quiet import quiet

F32 = NDArray[np.float32]
NARROWEST = 16  # matrices below are no layers' but of positions


def for_cpu(traced: ir.Model, quant: Quant) -> ir.Model:
    """In place."""
    model = fused(traced)
    net = Net("vision")
    for node in list(model.graph):
        if node.op_type == "SkipLayerNormalization":
            _sum_apart(net, node)
    if quant != "none":
        _in_eight_bits(net, model.graph)
    with quiet():
        RemoveUnusedNodesPass()(model)
    return model


def _sum_apart(net: Net, node: ir.Node) -> None:
    """As two operators: the one that does both takes thrice as long."""
    x, residual, weight, bias, *more = node.inputs
    if more and more[0] is not None:
        x = net.op("Add", x, more[0])
    total = net.op("Add", x, residual)
    normed = net.op("LayerNormalization", total, weight, bias, axis=-1, epsilon=node.attributes["epsilon"].as_float())
    _replace(net, node, {0: normed, 3: total})


def _in_eight_bits(net: Net, graph: ir.Graph) -> None:
    by_token = ByToken()
    for node in list(graph):
        match node.op_type:
            case "MatMul" | "Gemm":
                _linear(net, node, by_token)
            case "Attention":
                _attention(net, node, by_token)


def _linear(net: Net, node: ir.Node, by_token: ByToken) -> None:
    """MatMul, or Gemm as torch's exporter writes a linear layer: [R, K] with a bias."""
    attributes = {name: a.value for name, a in node.attributes.items()}
    turned = attributes.pop("transB", 0)
    x, weights = node.inputs[0], list(_matrices(node.inputs[1]))
    plain = all(attributes.get(name, usual) == usual for name, usual in (("alpha", 1.0), ("beta", 1.0), ("transA", 0)))
    if x is None or len(weights) != 1 or min(weights[0].shape) < NARROWEST or not plain:
        return
    out = by_token.product(net, x, _name(node), weights[0] if turned else weights[0].T)
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    _replace(net, node, {0: out if bias is None else net.op("Add", out, bias)})


def _attention(net: Net, node: ir.Node, by_token: ByToken) -> None:
    """The products of queries, keys and values taken out of it."""
    x, weights = node.inputs[0], list(_matrices(node.inputs[1]))
    attributes = {name: a.value for name, a in node.attributes.items()}
    widths = attributes.pop("qkv_hidden_sizes", None)
    if len(weights) == 1 and widths is not None:
        weights = np.split(weights[0], np.cumsum(widths)[:-1], axis=1)
    if x is None or any(node.inputs[3:]) or not set(attributes) <= {"num_heads", "scale"} or len(weights) != 3:
        return
    fed = [by_token.product(net, x, f"{_name(node)}.{i}", w.T) for i, w in enumerate(weights)]
    _replace(net, node, {0: net.op("ort.MultiHeadAttention", *fed, node.inputs[2], **attributes)})


def _matrices(value: ir.Value | None) -> Iterator[F32]:
    """A constant [K, N], or those that it is made of side by side; none if it is no constant."""
    if value is None:
        return
    made_by = value.producer()
    parts = [value] if made_by is None or made_by.op_type != "Concat" else list(made_by.inputs)
    found = [p.const_value.numpy() for p in parts if p is not None and p.const_value is not None]
    if len(found) == len(parts) and all(f.ndim == 2 for f in found):
        yield from found


def _replace(net: Net, node: ir.Node, outputs: dict[int, ir.Value]) -> None:
    graph = node.graph
    assert graph is not None
    net.put_before(node)
    for at, new in outputs.items():
        if at < len(node.outputs):
            old = node.outputs[at]
            if old.is_graph_output():
                old.name, new.name = None, old.name
            old.replace_all_uses_with(new, replace_graph_outputs=True)
    graph.remove(node, safe=True)


def _name(node: ir.Node) -> str:
    return f"eight_bits_{node.outputs[0].name}"
