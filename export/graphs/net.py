"""An ONNX graph written node by node, for those that are made for one runtime rather than traced from torch.

Values are ``ir.Value``; weights are added where they are used. Knows no model.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

ORT = "com.microsoft"
OPSETS = {"": 20, ORT: 1}

Shape = Sequence[int | str]


class Net:
    def __init__(self, name: str) -> None:
        self.name = name
        self.inputs: list[ir.Value] = []
        self.outputs: list[ir.Value] = []
        self._nodes: list[ir.Node] = []
        self._count = 0
        self._weights: dict[str, ir.Value] = {}

    def input(self, name: str, dtype: ir.DataType, shape: Shape) -> ir.Value:
        value = ir.Value(name=name, type=ir.TensorType(dtype), shape=ir.Shape(shape))
        self.inputs.append(value)
        return value

    def output(self, value: ir.Value, name: str, shape: Shape) -> None:
        value.name, value.shape, value.type = name, ir.Shape(shape), ir.TensorType(ir.DataType.FLOAT)
        self.outputs.append(value)

    def weight(self, name: str, array: NDArray[Any]) -> ir.Value:
        """A constant; the same name twice is the same constant."""
        if name not in self._weights:
            tensor = ir.tensor(array, name=name)
            self._weights[name] = ir.Value(
                name=name, type=ir.TensorType(tensor.dtype), shape=ir.Shape(array.shape), const_value=tensor
            )
        return self._weights[name]

    def ints(self, *numbers: int) -> ir.Value:
        return self.weight("ints_" + "_".join(map(str, numbers)), np.array(numbers, np.int64))

    def number(self, value: float) -> ir.Value:
        return self.weight(f"number_{value!r}", np.array(value, np.float32))

    def all(self, op: str, inputs: Sequence[ir.Value | None], outputs: int, **attributes: Any) -> Sequence[ir.Value]:
        """``op`` of ONNX itself, or of ONNX Runtime where it begins with ``ort.``"""
        domain, kind = (ORT, op.removeprefix("ort.")) if op.startswith("ort.") else ("", op)
        node = ir.node(kind, inputs, attributes, domain=domain, num_outputs=outputs, name=f"{kind}_{self._count}")
        for i, value in enumerate(node.outputs):
            value.name = f"{node.name}_{i}"
        self._count += 1
        self._nodes.append(node)
        return node.outputs

    def op(self, op: str, *inputs: ir.Value | None, **attributes: Any) -> ir.Value:
        return self.all(op, inputs, 1, **attributes)[0]

    def put_before(self, node: ir.Node) -> None:
        """What was written since the last time goes into the graph of ``node``, in front of it, with its weights."""
        graph = node.graph
        assert graph is not None
        graph.insert_before(node, self._nodes)
        graph.opset_imports.update(OPSETS)
        for name, weight in self._weights.items():
            graph.initializers.setdefault(name, weight)
        self._nodes = []

    def model(self) -> ir.Model:
        graph = ir.Graph(
            self.inputs, self.outputs, nodes=self._nodes, initializers=list(self._weights.values()),
            opset_imports=OPSETS, name=self.name,
        )  # fmt: skip
        return ir.Model(graph, ir_version=10, producer_name="handrail")
