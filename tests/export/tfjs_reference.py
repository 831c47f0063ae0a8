"""A TensorFlow.js graph run node by node as TensorFlow defines its operators, axes and paddings as they stand there.

For tests alone: the plain way, against which what was folded and turned is checked.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from handrail.export.weights.tfjs import Array, Node, TfjsGraph


def run(graph: TfjsGraph, picture: Array) -> dict[str, Array]:
    """``picture`` float [1, 3, 416, 416], normalised BGR; the tensors of the graph's outputs."""
    values: dict[str, Any] = {name: torch.from_numpy(array.copy()) for name, array in graph.constants.items()}
    for node in graph.nodes:
        if node.op == "Placeholder":
            values[node.name] = torch.from_numpy(picture)
        elif node.op == "SplitV":
            x, sizes, axis = (values[name] for name in node.input)
            for i, part in enumerate(torch.split(x, sizes.tolist(), int(axis))):
                values[node.name if i == 0 else f"{node.name}:{i}"] = part
        elif node.op != "Const":
            values[node.name] = _computed(node, [values[name] for name in node.input])
    return {name: values[name].numpy() for name in graph.outputs}


def _computed(node: Node, x: list[torch.Tensor]) -> torch.Tensor:
    match node.op:
        case "Transpose":
            return x[0].permute(x[1].tolist())
        case "Pad" | "PadV2":
            sides = [int(n) for pair in reversed(x[1].tolist()) for n in pair]
            return F.pad(x[0], sides, value=float(x[2]) if len(x) > 2 else 0.0)
        case "Conv2D":  # NHWC, HWIO, VALID
            strides = node.ints("strides")[1:3]
            return F.conv2d(x[0].permute(0, 3, 1, 2), x[1].permute(3, 2, 0, 1), stride=strides).permute(0, 2, 3, 1)
        case "MaxPool":  # NHWC, VALID
            pooled = F.max_pool2d(x[0].permute(0, 3, 1, 2), node.ints("ksize")[1:3], node.ints("strides")[1:3])
            return pooled.permute(0, 2, 3, 1)
        case "ResizeBilinear":
            return _bilinear(x[0], [int(n) for n in x[1]])
        case "SparseToDense":
            dense = torch.full([int(n) for n in x[1]], int(x[3]), dtype=x[3].dtype)
            for place, value in zip(x[0], x[2], strict=True):
                dense[tuple(place)] = value
            return dense
        case "Add" | "AddV2":
            return x[0] + x[1]
        case "LeakyRelu":
            return torch.where(x[0] > 0, x[0], x[0] * node.attr["alpha"]["f"])
        case "ConcatV2":
            return torch.cat(x[:-1], int(x[-1]))
        case "Sigmoid":
            return 1 / (1 + torch.exp(-x[0]))
        case "Reshape":
            return x[0].reshape([int(n) for n in x[1]])
        case "Identity":
            return x[0]
    raise AssertionError(node.op)


def _bilinear(image: torch.Tensor, size: list[int]) -> torch.Tensor:
    """[1, H, W, C] with half_pixel_centers: between the two pixels whose centres enclose a sample, held at the edge."""
    for axis, wanted in ((1, size[0]), (2, size[1])):
        there = image.shape[axis]
        at = (np.arange(wanted) + 0.5) * there / wanted - 0.5
        low = np.floor(at)
        share = torch.tensor((at - low).astype(np.float32)).reshape([-1 if i == axis else 1 for i in range(4)])
        first, second = (torch.tensor(np.clip(n, 0, there - 1).astype(np.int64)) for n in (low, low + 1))
        image = image.index_select(axis, first) * (1 - share) + image.index_select(axis, second) * share
    return image
