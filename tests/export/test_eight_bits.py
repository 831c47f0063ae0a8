"""Products in 8 bits, token by token, and the vision encoder that is made of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="the export room needs torch")
onnx = pytest.importorskip("onnx", reason="the export room needs onnx")
pytest.importorskip("transformers", reason="the export room needs transformers")

import onnx_ir as ir  # noqa: E402

from handrail.export.backbones import tiny  # noqa: E402
from handrail.export.backbones.families import FAMILIES  # noqa: E402
from handrail.export.graphs.eight_bits import ByToken  # noqa: E402
from handrail.export.graphs.net import Net  # noqa: E402
from handrail.export.graphs.onnx_file import save  # noqa: E402
from handrail.export.graphs.sensors import write_vision  # noqa: E402
from handrail.export.parity.compare import Graphs  # noqa: E402
from handrail.runtime.providers import open_session  # noqa: E402

K, N = 48, 20
WEIGHT = np.random.default_rng(1).normal(size=(N, K)).astype(np.float32)


@pytest.fixture(scope="module")
def product(tmp_path_factory: pytest.TempPathFactory) -> Any:
    net, by_token = Net("product"), ByToken()
    x = net.input("x", ir.DataType.FLOAT, ("F", "S", K))
    net.output(by_token.product(net, x, "fc", WEIGHT), "y", ("F", "S", N))
    path = tmp_path_factory.mktemp("product") / "product.onnx"
    save(net.model(), path)
    session = open_session(path, "cpu")
    return lambda x: session.run(None, {"x": x})[0]


@given(st.integers(0, 2**32 - 1), st.integers(1, 3), st.integers(1, 9), st.floats(1e-6, 1e6))
@settings(max_examples=50, deadline=None)
def test_each_token_is_a_hundredth_off_at_most_however_large_the_others(
    product: Any, seed: int, frames: int, tokens: int, scale: float
) -> None:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(frames, tokens, K)).astype(np.float32)
    x[0, 0] *= np.float32(scale)
    found = product(x)
    longest = np.linalg.norm(x, axis=-1)[..., None] * np.linalg.norm(WEIGHT, axis=-1)
    assert (np.abs(found - x @ WEIGHT.T) <= 0.01 * longest).all()
    assert (product(x[-1:, -1:])[0, 0] == found[-1, -1]).all(), "which tokens are read together changes nothing"


def test_a_token_of_zeros_gives_zeros_and_none_that_is_no_number(product: Any) -> None:
    x = np.random.default_rng(0).normal(size=(1, 3, K)).astype(np.float32)
    x[0, 1] = 0.0
    found = product(x)
    assert np.isfinite(found).all() and (found[0, 1] == 0.0).all()


@pytest.mark.timeout(900)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_vision_encoder_in_eight_bits_multiplies_nothing_else_and_sees_the_same(family: str, tmp_path: Path) -> None:
    backbone = tiny.build(family)
    write_vision(backbone, tmp_path, "w8")
    graph = onnx.load(str(tmp_path / "vision.onnx"), load_external_data=False).graph
    matrices = {i.name for i in graph.initializer if len(i.dims) == 2}
    products = [node.op_type for node in graph.node if matrices & set(node.input)]
    assert set(products) <= {"MatMulIntegerToFloat", "Gather", "Add", "RotaryEmbedding"}, "the others: of positions"
    assert products.count("MatMulIntegerToFloat") >= 10
    torch.manual_seed(0)
    pixels = torch.randn(2, *backbone.side.image.shape)
    found = Graphs(tmp_path).run("vision", {"pixels": pixels.numpy()})
    with torch.no_grad():
        seen = backbone.see(pixels)
    for name, expected in (("features", seen.features), ("deepstack", seen.deepstack)):
        if expected is not None:
            assert np.corrcoef(found[name].ravel(), expected.numpy().ravel())[0, 1] > 0.999
