"""NanoDet's TensorFlow.js graph turned round: channels first, padding and biases inside the convolutions.

The graph came from ONNX through TensorFlow, with a turn of axes and a padding before each convolution. Turns cancel by
keeping count of them (``_Value.last``), padding goes into what it stands before, biases into their convolutions: what
is left has no arithmetic on weights that could round otherwise elsewhere. Anything unexpected is refused: the files are
pinned, so nothing else should come.
Knows no files and no ONNX beyond the names of its operators.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from handrail.export.weights.tfjs import Array, Node, TfjsGraph
from handrail.runtime.labels.detector import SIDE_PX
from handrail.streams.errors import ModelError

MEAN_RGB, STD_RGB = (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)
_FIRST, _LAST = (0, 3, 1, 2), (0, 2, 3, 1)  # the turns of axes that put channels first and last


@dataclass(frozen=True, slots=True)
class _Value:
    """A tensor of the TensorFlow graph, as it is in ours: four axes always lie there with channels first."""

    name: str
    last: bool = False  # TensorFlow has its channels last
    pad_px: int = 0  # padding that its consumer still has to do
    pad_with: float = 0.0


@dataclass(frozen=True, slots=True)
class _Convolution:
    """Waits for its bias."""

    inputs: list[str]
    attributes: dict[str, Any]


class Conversion:
    """``nodes``: (operator, inputs, outputs, attributes) in order; ``arrays``: their constants.

    From ``picture`` to ``scores`` and ``bins``, see ``nanodet``. Raises ModelError for anything unexpected.
    """

    def __init__(self, graph: TfjsGraph) -> None:
        self.nodes: list[tuple[str, list[str], list[str], dict[str, Any]]] = []
        self.arrays: dict[str, Array] = {}
        self._constants = dict(graph.constants)
        self._values: dict[str, _Value] = {}
        self._convolutions: dict[str, _Convolution] = {}
        self._ops: dict[str, Callable[[Node], None]] = {
            "Placeholder": self._placeholder, "Transpose": self._transpose, "Pad": self._pad, "PadV2": self._pad,
            "Conv2D": self._convolution, "Add": self._add, "AddV2": self._shape_sum, "MaxPool": self._pool,
            "LeakyRelu": self._unary, "Sigmoid": self._unary, "Identity": self._identity, "ConcatV2": self._concat,
            "ResizeBilinear": self._resize, "SplitV": self._split, "Reshape": self._reshape,
            "SparseToDense": self._dense,
        }  # fmt: skip
        for node in graph.nodes:
            if node.op == "Const":
                continue
            if node.op not in self._ops:
                raise ModelError(f"{node.name}: {node.op} is not an operator that NanoDet has")
            try:
                self._ops[node.op](node)
            except KeyError as e:
                raise ModelError(f"{node.name}: expected {e.args[0]} before it, it isn't there") from e
        self._outputs(graph.outputs)

    # The picture and the results

    def _placeholder(self, node: Node) -> None:
        mean, std = (np.array(v, np.float32).reshape(1, 3, 1, 1) for v in (MEAN_RGB, STD_RGB))
        self._emit("Cast", ["picture"], "levels", to=1)
        self._emit("Transpose", ["levels"], "planes", perm=list(_FIRST))
        self._emit("Sub", ["planes", self._constant("mean", mean)], "centred")
        self._emit("Div", ["centred", self._constant("std", std)], "normalised")
        self._values[node.name] = _Value("normalised")

    def _outputs(self, outputs: dict[str, tuple[int, ...]]) -> None:
        """One tensor of each kind, finest cells first."""
        for name, width in (("scores", 80), ("bins", 44)):
            levels = sorted((o for o, shape in outputs.items() if shape[2] == width), key=lambda o: -outputs[o][1])
            if [outputs[o][1] for o in levels] != [(SIDE_PX // stride) ** 2 for stride in (8, 16, 32)]:
                raise ModelError(f"nanodet: expected {name} on cells of stride 8, 16 and 32, got {outputs}")
            self._emit("Concat", [self._values[o].name for o in levels], name, axis=1)

    # What only moves things

    def _transpose(self, node: Node) -> None:
        x, turn = self._values[node.input[0]], tuple(self._constants[node.input[1]].tolist())
        if len(turn) == 3:
            self._keep(node, _Value(self._emit("Transpose", [x.name], _plain(node.name), perm=list(turn))))
            return
        self._need(node, turn == (_FIRST if x.last else _LAST), f"a turn of axes to and fro, got {turn}")
        self._keep(node, replace(x, last=not x.last))

    def _pad(self, node: Node) -> None:
        x, pads = self._values[node.input[0]], self._constants[node.input[1]].tolist()
        side = pads[2][0]
        self._need(node, pads == [[0, 0], [0, 0], [side, side], [side, side]] and not x.last and not x.pad_px,
                   f"the same padding on four sides, got {pads}")
        fill = float(self._constants[node.input[2]]) if len(node.input) > 2 else 0.0
        self._keep(node, replace(x, pad_px=side, pad_with=fill))

    def _identity(self, node: Node) -> None:
        self._keep(node, self._values[node.input[0]])

    def _concat(self, node: Node) -> None:
        *names, axis = node.input
        parts = [self._values[name] for name in names]
        self._need(node, int(self._constants[axis]) == 1 and not any(p.last or p.pad_px for p in parts), "channels")
        self._keep(node, _Value(self._emit("Concat", [p.name for p in parts], _plain(node.name), axis=1)))

    def _split(self, node: Node) -> None:
        x, sizes, axis = self._values[node.input[0]], self._constants[node.input[1]], self._constants[node.input[2]]
        self._need(node, int(axis) == 1 and not x.last, "a split of channels")
        parts = [f"{_plain(node.name)}.{i}" for i in range(len(sizes))]
        sizes_name = self._constant(f"{_plain(node.name)}.sizes", sizes.astype(np.int64))
        self.nodes.append(("Split", [x.name, sizes_name], parts, {"axis": 1}))
        for i, part in enumerate(parts):
            self._values[node.name if i == 0 else f"{node.name}:{i}"] = _Value(part)

    def _reshape(self, node: Node) -> None:
        x = self._values[node.input[0]]
        self._need(node, not x.last, "channels first")
        shape = self._constant(f"{_plain(node.name)}.shape", self._constants[node.input[1]].astype(np.int64))
        self._keep(node, _Value(self._emit("Reshape", [x.name, shape], _plain(node.name))))

    # Shapes that TensorFlow works out from constants

    def _dense(self, node: Node) -> None:
        places, shape, values, default = (self._constants[name] for name in node.input)
        dense = np.full(tuple(shape.tolist()), default)
        dense[tuple(places.T)] = values
        self._constants[node.name] = dense

    def _shape_sum(self, node: Node) -> None:
        self._constants[node.name] = self._constants[node.input[0]] + self._constants[node.input[1]]

    # What computes

    def _convolution(self, node: Node) -> None:
        x, weights = self._values[node.input[0]], self._constants[node.input[1]]
        self._window(node, x)
        self._need(node, x.pad_with == 0.0 and node.ints("dilations") == [1, 1, 1, 1], "plain convolution")
        if x.name == "normalised":
            weights = weights[:, :, ::-1]  # it was trained on BGR
        name = self._constant(f"{_plain(node.name)}.weights", weights.transpose(3, 2, 0, 1))
        attributes = {"strides": node.ints("strides")[1:3], "pads": [x.pad_px] * 4}
        self._convolutions[node.name] = _Convolution([x.name, name], attributes)

    def _add(self, node: Node) -> None:
        left, right = node.input
        if (convolution := self._convolutions.get(left)) is not None:
            bias = self._constant(f"{_plain(left)}.bias", self._constants[right])
            out = self._emit("Conv", [*convolution.inputs, bias], _plain(node.name), **convolution.attributes)
            self._keep(node, _Value(out, last=True))
            return
        a, b = self._values[left], self._values[right]
        self._need(node, a.last == b.last and not a.pad_px and not b.pad_px, "a sum of two alike")
        self._keep(node, _Value(self._emit("Add", [a.name, b.name], _plain(node.name)), last=a.last))

    def _pool(self, node: Node) -> None:
        x, size = self._values[node.input[0]], node.ints("ksize")[1:3]
        self._window(node, x)
        self._need(node, x.pad_with == -np.inf, "padding that no maximum can be")
        out = self._emit("MaxPool", [x.name], _plain(node.name), kernel_shape=size, pads=[x.pad_px] * 4,
                         strides=node.ints("strides")[1:3])  # fmt: skip
        self._keep(node, _Value(out, last=True))

    def _unary(self, node: Node) -> None:
        x = self._values[node.input[0]]
        self._need(node, not x.pad_px, "no padding")
        attributes = {"alpha": float(node.attr["alpha"]["f"])} if node.op == "LeakyRelu" else {}
        self._keep(node, replace(x, name=self._emit(node.op, [x.name], _plain(node.name), **attributes)))

    def _resize(self, node: Node) -> None:
        x, size = self._values[node.input[0]], self._constants[node.input[1]]
        centres = node.attr["half_pixel_centers"]["b"] and not node.attr["align_corners"]["b"]
        self._need(node, x.last and centres, "channels last, pixel centres at halves")
        sizes = self._constant(f"{_plain(node.name)}.size", size.astype(np.int64))
        out = self._emit("Resize", [x.name, "", "", sizes], _plain(node.name), axes=[2, 3], mode="linear",
                         coordinate_transformation_mode="half_pixel")  # fmt: skip
        self._keep(node, _Value(out, last=True))

    # Helpers

    def _window(self, node: Node, x: _Value) -> None:
        """Convolutions and pools: in base64, VALID is VkFMSUQ= and NHWC TkhXQw==."""
        kind = (node.attr["padding"]["s"], node.attr["data_format"]["s"])
        self._need(node, x.last and kind == ("VkFMSUQ=", "TkhXQw=="), "channels last, padding apart")

    def _need(self, node: Node, right: bool, expected: str) -> None:
        if not right:
            raise ModelError(f"{node.name}: {node.op}: expected {expected}")

    def _keep(self, node: Node, value: _Value) -> None:
        self._values[node.name] = value

    def _constant(self, name: str, array: Array) -> str:
        self.arrays[name] = array
        return name

    def _emit(self, op: str, inputs: list[str], output: str, **attributes: Any) -> str:
        self.nodes.append((op, inputs, [output], attributes))
        return output


def _plain(name: str) -> str:
    return name.removeprefix("PartitionedCall/").replace("onnx_tf_prefix_", "").replace("/", ".")
