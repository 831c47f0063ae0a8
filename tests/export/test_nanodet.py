"""NanoDet's ONNX file computes what its TensorFlow.js graph says, and is the same file wherever it is made."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="the export room needs onnx")
pytest.importorskip("torch", reason="the reference needs torch")
ort = pytest.importorskip("onnxruntime", reason="graphs need onnxruntime")

import tfjs_reference  # noqa: E402

from handrail.export.weights import fetching, nanodet_graph, registry  # noqa: E402
from handrail.export.weights.nanodet import converted, make_nanodet  # noqa: E402
from handrail.export.weights.tfjs import Array, TfjsGraph, read_tfjs  # noqa: E402
from handrail.runtime.labels import opening  # noqa: E402
from handrail.runtime.labels.detector import BINS, SIDE_PX, squared  # noqa: E402
from handrail.runtime.providers import faults  # noqa: E402
from handrail.streams.errors import MissingDependencyError, ModelError  # noqa: E402

FRAMES = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "egoblind_ra" / "frames"
MEAN_BGR, STD_BGR = (103.53, 116.28, 123.675), (57.375, 57.12, 58.395)


@pytest.fixture(scope="module")
def fetched() -> Path:
    if registry.state("nanodet") != "here":
        pytest.skip("NanoDet isn't here: handrail models fetch nanodet")
    return registry.folder_of("nanodet")


@pytest.fixture(scope="module")
def graph(fetched: Path) -> TfjsGraph:
    return read_tfjs(fetched / "nanodet.json", fetched / "nanodet.bin")


@pytest.fixture(scope="module")
def content(graph: TfjsGraph) -> bytes:
    return converted(graph)


def by_reference(graph: TfjsGraph, square: Array) -> tuple[Array, Array]:
    """Scores and bins of a square RGB picture, as the graph stands there."""
    bgr = (square[..., ::-1] - np.array(MEAN_BGR)) / np.array(STD_BGR)
    out = tfjs_reference.run(graph, bgr.transpose(2, 0, 1)[None].astype(np.float32))
    finest_first = sorted(out.values(), key=lambda tensor: -tensor.shape[1])
    return tuple(  # type: ignore[return-value]
        np.concatenate([t for t in finest_first if t.shape[2] == width], axis=1) for width in (80, 4 * BINS)
    )


def pictures() -> dict[str, Array]:
    noise = np.random.default_rng(1).integers(0, 256, (SIDE_PX, SIDE_PX, 3), dtype=np.uint8)
    found = {"noise": noise}
    for name in ("v_00924_1/frame_4.jpg", "v_00931_1/frame_2.jpg", "v_00928_1/frame_4.jpg"):
        if (FRAMES / name).is_file():
            found[name] = squared(np.asarray(cv2.imread(str(FRAMES / name)), np.uint8)[..., ::-1].copy())
    return found


def test_it_computes_what_the_graph_says(graph: TfjsGraph, content: bytes) -> None:
    session = ort.InferenceSession(content, providers=["CPUExecutionProvider"])
    for name, picture in pictures().items():
        scores, bins = session.run(["scores", "bins"], {"picture": picture[None]})
        expected_scores, expected_bins = by_reference(graph, picture)
        assert scores.shape == expected_scores.shape and bins.shape == expected_bins.shape
        assert np.abs(scores - expected_scores).max() < 1e-5, name
        assert np.abs(bins - expected_bins).max() < 1e-4, name


def test_the_channels_are_not_swapped(graph: TfjsGraph, content: bytes) -> None:
    """Parity alone would hold for a picture with its channels reversed if both read it the wrong way round."""
    session = ort.InferenceSession(content, providers=["CPUExecutionProvider"])
    picture = pictures()["noise"]
    picture[..., 0] //= 4  # little red
    (scores,) = session.run(["scores"], {"picture": picture[None]})
    (swapped,) = session.run(["scores"], {"picture": np.ascontiguousarray(picture[..., ::-1])[None]})
    expected, _ = by_reference(graph, picture)
    assert np.abs(scores - expected).max() < 1e-5 < np.abs(swapped - expected).max()


def test_its_bytes_are_the_pinned_ones_in_every_process(fetched: Path, content: bytes) -> None:
    assert opening.WEIGHTS.fits(content)
    code = (
        "import hashlib; from pathlib import Path\n"
        "from handrail.export.weights.nanodet import converted; from handrail.export.weights.tfjs import read_tfjs\n"
        f"folder = Path({str(fetched)!r})\n"
        "print(hashlib.sha256(converted(read_tfjs(folder / 'nanodet.json', folder / 'nanodet.bin'))).hexdigest())"
    )
    for seed in ("1", "2"):
        done = subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": seed},
                              capture_output=True, text=True)  # fmt: skip
        assert done.stdout.strip() == hashlib.sha256(content).hexdigest(), done.stderr


def test_the_file_uses_nothing_that_tensorrt_could_not_take(content: bytes) -> None:
    assert faults(onnx.load_from_string(content), {}) == []


def test_a_fetch_puts_it_in_place_once_and_mends_it(
    fetched: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HANDRAIL_CACHE", str(tmp_path))
    monkeypatch.setattr(fetching, "folder_of", lambda name: fetched)
    monkeypatch.setattr(fetching, "_fetch_package", lambda name, model, watch: [])
    for _ in range(2):
        assert fetching.fetch("nanodet", None, lambda file, size: lambda done, total: None) == []
        assert opening.is_pinned(tmp_path / "detectors" / "nanodet.onnx")
        (tmp_path / "detectors" / "nanodet.onnx").write_bytes(b"damaged")
    assert make_nanodet(fetched) and not make_nanodet(fetched)
    assert [path.name for path in (tmp_path / "detectors").iterdir()] == ["nanodet.onnx"]


def test_what_is_not_the_pinned_file_is_not_put_in_place(
    fetched: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HANDRAIL_CACHE", str(tmp_path))
    monkeypatch.setattr(nanodet_graph, "MEAN_RGB", (0.0, 0.0, 0.0))
    with pytest.raises(ModelError, match="not what was pinned"):
        make_nanodet(fetched)
    assert list((tmp_path / "detectors").iterdir()) == []


def test_without_onnx_the_files_stay_and_one_line_says_what_to_type(
    fetched: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HANDRAIL_CACHE", str(tmp_path))
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'onnx.*then run the same command again"):
        make_nanodet(fetched)
    assert list((tmp_path / "detectors").iterdir()) == []


# Small graphs by hand


def small(tmp_path: Path, nodes: list[dict[str, Any]], weights: dict[str, Array]) -> TfjsGraph:
    kinds = {np.dtype(np.float16): ("float32", {"quantization": {"dtype": "float16"}}),
             np.dtype(np.float32): ("float32", {}), np.dtype(np.int32): ("int32", {})}  # fmt: skip
    manifest = [
        {"name": name, "shape": list(a.shape), "dtype": kinds[a.dtype][0], **kinds[a.dtype][1]}
        for name, a in weights.items()
    ]
    text = {"modelTopology": {"node": nodes}, "weightsManifest": [{"weights": manifest}],
            "signature": {"outputs": {}}}  # fmt: skip
    (tmp_path / "g.json").write_text(json.dumps(text))
    (tmp_path / "g.bin").write_bytes(b"".join(a.tobytes() for a in weights.values()))
    return read_tfjs(tmp_path / "g.json", tmp_path / "g.bin")


def test_constants_are_read_in_their_kinds(tmp_path: Path) -> None:
    weights: dict[str, Array] = {"a": np.array([[0.5, -2.0]], np.float16), "b": np.array([3, -1], np.int32),
               "c": np.array(1.25, np.float32)}  # fmt: skip
    read = small(tmp_path, [], weights).constants
    assert {name: array.dtype for name, array in read.items()} == {"a": "float32", "b": "int32", "c": "float32"}
    assert all(np.array_equal(read[name], array) for name, array in weights.items())


def test_a_weights_file_that_is_too_short_is_refused(tmp_path: Path) -> None:
    small(tmp_path, [], {"a": np.zeros(4, np.float32)})
    (tmp_path / "g.bin").write_bytes(bytes(15))
    with pytest.raises(ModelError, match="expected a at byte 0, the file has 15"):
        read_tfjs(tmp_path / "g.json", tmp_path / "g.bin")


def test_what_is_no_graph_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "g.json").write_text('{"modelTopology": 1}')
    (tmp_path / "g.bin").write_bytes(b"")
    with pytest.raises(ModelError, match=r"expected a TensorFlow\.js graph model"):
        read_tfjs(tmp_path / "g.json", tmp_path / "g.bin")


@pytest.mark.parametrize(("nodes", "expected"), [
    ([{"name": "x", "op": "Relu6", "input": []}], "Relu6 is not an operator"),
    ([{"name": "x", "op": "Sigmoid", "input": ["y"]}], "expected y before it"),
    ([{"name": "i", "op": "Placeholder"}, {"name": "t", "op": "Transpose", "input": ["i", "turn"]}], "turn of axes"),
    ([{"name": "i", "op": "Placeholder"},
      {"name": "c", "op": "Conv2D", "input": ["i", "w"], "attr": {
          "padding": {"s": base64.b64encode(b"SAME").decode()}, "data_format": {"s": "TkhXQw=="}}}], "padding apart"),
])  # fmt: skip
def test_a_graph_with_anything_unexpected_is_refused(
    tmp_path: Path, nodes: list[dict[str, Any]], expected: str
) -> None:
    weights: dict[str, Array] = {"turn": np.array([0, 1, 3, 2], np.int32), "w": np.zeros((3, 3, 3, 8), np.float16)}
    with pytest.raises(ModelError, match=expected):
        converted(small(tmp_path, nodes, weights))
