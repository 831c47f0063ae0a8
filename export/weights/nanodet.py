"""NanoDet out of its TensorFlow.js graph: one ONNX file, channels first, the same bytes wherever it is made.

    picture  uint8 [1, 416, 416, 3]    RGB, as it is: order of channels and normalisation are inside
    scores   float32 [1, 3549, 80]     0..1 for each cell and COCO class
    bins     float32 [1, 3549, 44]     logits over 11 distances from the cell's centre to the box's left, top, right and
                                       bottom side, in strides

Cells go row by row, those of stride 8 first (52x52), then 16 (26x26) and 32 (13x13).

How the graph is turned round: ``nanodet_graph``. Knows where the file goes and what it must be.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import numpy as np

from handrail.export.weights.nanodet_graph import Conversion
from handrail.export.weights.tfjs import TfjsGraph, read_tfjs
from handrail.runtime.labels.detector import SIDE_PX
from handrail.runtime.labels.opening import WEIGHTS, is_pinned, nanodet_path
from handrail.runtime.providers import OPSET
from handrail.streams.errors import MissingDependencyError, ModelError, OutputError

IR_VERSION = 10


def make_nanodet(folder: Path) -> bool:
    """Put the ONNX file into the cache, from the fetched files in ``folder``; whether that was needed.

    Raises MissingDependencyError without onnx, ModelError when what came out isn't what the runtime has pinned,
    OutputError. The file gets its name when it is whole and right.
    """
    path = nanodet_path()
    if is_pinned(path):
        return False
    content = converted(read_tfjs(folder / "nanodet.json", folder / "nanodet.bin"))
    if not WEIGHTS.fits(content):
        raise ModelError(f"{path.name}: what was made is not what was pinned; install the onnx that Handrail asks for "
                         "(make setup-export), then run the same command again")
    part = path.with_name(f".{path.name}.part-{os.getpid()}")
    try:
        with part.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError as e:
        raise OutputError(f"{path}: can't be written ({e.strerror}); make room or set HANDRAIL_CACHE") from e
    finally:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
    return True


def converted(graph: TfjsGraph) -> bytes:
    """The ONNX file. Raises ModelError for a graph with anything unexpected in it, MissingDependencyError."""
    try:
        import onnx
    except ModuleNotFoundError as e:
        raise MissingDependencyError(
            "nanodet: its files are here, turning them into ONNX needs onnx: make setup-export, or pip install "
            "'onnx>=1.23,<2', then run the same command again"
        ) from e
    made = Conversion(graph)
    h = onnx.helper
    floats = onnx.TensorProto.FLOAT
    cells = sum(shape[1] for shape in graph.outputs.values() if shape[2] == 80)
    body = h.make_graph(
        [h.make_node(op, inputs, outputs, **attributes) for op, inputs, outputs, attributes in made.nodes],
        "nanodet",
        [h.make_tensor_value_info("picture", onnx.TensorProto.UINT8, [1, SIDE_PX, SIDE_PX, 3])],
        [h.make_tensor_value_info("scores", floats, [1, cells, 80]),
         h.make_tensor_value_info("bins", floats, [1, cells, 44])],
        [onnx.numpy_helper.from_array(np.ascontiguousarray(array), name) for name, array in made.arrays.items()],
    )  # fmt: skip
    model = h.make_model(body, opset_imports=[h.make_opsetid("", OPSET)], producer_name="handrail")
    model.ir_version = IR_VERSION
    onnx.checker.check_model(model)
    content: bytes = model.SerializeToString(deterministic=True)
    return content
