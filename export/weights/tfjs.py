"""Reads a TensorFlow.js graph model: the nodes in order, and its constants as arrays out of the weights file.

Weights quantised to float16 are widened, which is exact; other quantisations are refused. Knows no operator's meaning.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from handrail.streams.errors import ModelError

Array = NDArray[Any]


class Node(msgspec.Struct, frozen=True):
    name: str
    op: str
    input: tuple[str, ...] = ()  # names of nodes, with ``:1`` and so on for outputs after the first
    attr: dict[str, dict[str, Any]] = {}

    def ints(self, name: str) -> list[int]:
        """An attribute that is a list of whole numbers; they come as text."""
        return [int(n) for n in self.attr.get(name, {}).get("list", {}).get("i", ())]


class _Quantised(msgspec.Struct):
    dtype: str


class _Weight(msgspec.Struct):
    name: str
    shape: list[int]
    dtype: str
    quantization: _Quantised | None = None


class _Group(msgspec.Struct):
    weights: list[_Weight]


class _Topology(msgspec.Struct):
    node: list[Node]


class _File(msgspec.Struct):
    modelTopology: _Topology
    weightsManifest: list[_Group]
    signature: dict[str, Any]


@dataclass(frozen=True, slots=True)
class TfjsGraph:
    nodes: tuple[Node, ...]
    constants: dict[str, Array]  # float32 or int32
    outputs: dict[str, tuple[int, ...]]  # node -> its shape


def read_tfjs(graph: Path, weights: Path) -> TfjsGraph:
    """Raises ModelError when a file can't be read or isn't such a model."""
    try:
        found = msgspec.json.decode(graph.read_bytes(), type=_File)
        content = weights.read_bytes()
        outputs = {
            out["name"].split(":")[0]: tuple(int(d["size"]) for d in out["tensorShape"]["dim"])
            for out in found.signature["outputs"].values()
        }
    except OSError as e:
        raise ModelError(f"{e.filename}: can't be read ({e.strerror}); fetch it again") from e
    except (msgspec.MsgspecError, KeyError, TypeError, ValueError, RecursionError) as e:
        raise ModelError(f"{graph}: expected a TensorFlow.js graph model, got something else ({e})") from e
    constants, at = {}, 0
    for weight in (w for group in found.weightsManifest for w in group.weights):
        dtype = _dtype(weight)
        count = math.prod(weight.shape)
        if at + count * dtype.itemsize > len(content):
            raise ModelError(f"{weights}: expected {weight.name} at byte {at}, the file has {len(content)}")
        array = np.frombuffer(content, dtype, count, at).reshape(weight.shape)
        at += array.nbytes
        constants[weight.name] = array.astype(np.float32) if dtype == np.float16 else array
    return TfjsGraph(tuple(found.modelTopology.node), constants, outputs)


def _dtype(weight: _Weight) -> np.dtype[Any]:
    known = {("float32", "float16"): "<f2", ("float32", None): "<f4", ("int32", None): "<i4"}
    kind = (weight.dtype, weight.quantization.dtype if weight.quantization else None)
    if kind not in known:
        raise ModelError(f"{weight.name}: expected float32, float16 or int32, got {kind}")
    return np.dtype(known[kind])
