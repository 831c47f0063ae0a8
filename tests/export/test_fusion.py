"""The fusion network: its size, what a mask means, and that ONNX Runtime computes the same."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="torch isn't installed (the export room's extra)")

from handrail.export.model.fusion import TOKENS_OUT, Fused, Fusion  # noqa: E402
from handrail.runtime.grid import BINS, STREAMS  # noqa: E402

D_LM, WIDTH = 24, 32  # small, so that all of it is quick
Inputs = tuple[dict[str, Any], dict[str, Any], Any]


@functools.cache
def fusion(stage: int) -> Any:
    torch.manual_seed(stage)
    model = Fusion(D_LM, stage, WIDTH)
    with torch.no_grad():
        for p in model.parameters():  # as after training: nothing is near zero or one
            p.add_(torch.randn_like(p) * 0.05)
    return model.eval()


def inputs(batch: int = 3, missing: tuple[str, ...] = (), seed: int = 0) -> Inputs:
    g = torch.Generator().manual_seed(seed)
    values = {s: torch.randn(batch, BINS, d, generator=g) for s, d in STREAMS.items()}
    valid = {s: torch.rand(batch, BINS, generator=g) < 0.6 for s in STREAMS}
    for s in missing:
        valid[s] = torch.zeros(batch, BINS, dtype=torch.bool)
    return values, valid, torch.randn(batch, D_LM, generator=g)


def run(stage: int, given: Inputs) -> Fused:
    with torch.no_grad():
        out: Fused = fusion(stage)(*given)
    return out


def same(a: Fused, b: Fused) -> bool:
    return bool(torch.equal(a.tokens, b.tokens) and torch.equal(a.gates, b.gates))


def test_its_size_is_that_of_the_specification() -> None:
    counts = [sum(p.numel() for p in Fusion(896, stage).parameters()) for stage in (1, 2)]
    assert counts == [13_359_494, 17_315_974], f"parameters at d_lm = 896: stage 1 {counts[0]:,}, stage 2 {counts[1]:,}"
    per_feature = sum(STREAMS.values()) - len(STREAMS)  # mask columns that one for all stands in for
    assert 17.55e6 < counts[1] + per_feature * 256 < 17.65e6, f"{counts[1]:,}"


@pytest.mark.parametrize("stage", [1, 2])
def test_tokens_and_gates_have_the_promised_shapes(stage: int) -> None:
    out = run(stage, inputs())
    assert out.tokens.shape == (3, TOKENS_OUT[stage], D_LM) and out.gates.shape == (3, 5)
    assert TOKENS_OUT == {1: 8, 2: 28} and ((out.gates > 0) & (out.gates < 1)).all()


def test_stages_and_widths_that_there_are_not_are_refused() -> None:
    with pytest.raises(ValueError, match="stage 1 or 2"):
        Fusion(D_LM, 3)
    with pytest.raises(ValueError, match="divisible by 8"):
        Fusion(D_LM, 1, 30)


def test_stage_2_goes_on_from_the_parameters_of_stage_1() -> None:
    one, two = fusion(1).state_dict(), fusion(2).state_dict()
    assert set(one) < set(two) and {k.split(".")[0] for k in set(two) - set(one)} == {"readout"}
    grown = Fusion(D_LM, 2, WIDTH).eval()
    grown.load_state_dict({**grown.state_dict(), **one})
    with torch.no_grad():
        assert torch.allclose(grown(*inputs()).tokens[:, :8], run(1, inputs()).tokens, atol=1e-6)


@pytest.mark.parametrize("stage", [1, 2])
@pytest.mark.parametrize("filling", [99.0, float("nan"), float("inf")])
def test_what_lies_under_a_mask_does_not_change_a_bit(stage: int, filling: float) -> None:
    values, valid, question = inputs(missing=("gaze",))
    filled = {s: torch.where(valid[s][:, :, None], v, filling) for s, v in values.items()}
    assert same(run(stage, (filled, valid, question)), run(stage, (values, valid, question)))


@settings(max_examples=25, deadline=None)
@given(gone=st.sets(st.sampled_from(list(STREAMS))), seed=st.integers(0, 99), stage=st.sampled_from([1, 2]))
def test_any_streams_may_be_missing(gone: set[str], seed: int, stage: int) -> None:
    out = run(stage, inputs(missing=tuple(gone), seed=seed))
    assert torch.isfinite(out.tokens).all()
    assert [s for s, shut in zip(STREAMS, (out.gates == 0).all(dim=0), strict=True) if shut] == [
        s for s in STREAMS if s in gone
    ]


def test_a_missing_stream_has_no_say_in_the_tokens_of_the_exchange() -> None:
    given, missing = inputs(missing=("hands",)), fusion(2).adapter.missing
    before, kept, stream = run(2, given), missing.detach().clone(), list(STREAMS).index("hands")
    try:
        missing.data[stream] *= -3
        after = run(2, given)
    finally:
        missing.data.copy_(kept)
    changed = (before.tokens != after.tokens).any(dim=2).any(dim=0)
    assert changed.nonzero().flatten().tolist() == list(range(8 + 4 * stream, 12 + 4 * stream))


def test_streams_that_are_missing_in_one_example_are_so_in_no_other() -> None:
    values, valid, question = inputs()
    valid = {s: v.clone() for s, v in valid.items()}
    before = run(2, (values, valid, question))
    for s in STREAMS:
        valid[s][0] = False
    after = run(2, (values, valid, question))
    assert torch.equal(after.gates[0], torch.zeros(5))
    assert torch.allclose(after.tokens[1:], before.tokens[1:], atol=1e-6)


def test_the_question_opens_and_shuts_the_gates_and_no_gradient_goes_through_it() -> None:
    values, valid, question = inputs()
    question.requires_grad_()
    out = fusion(1)(values, valid, question)
    (out.tokens.sum() + out.gates.sum()).backward()
    assert question.grad is None
    other = run(1, (values, valid, question.detach() + 1))
    assert not torch.allclose(other.gates, out.gates, atol=1e-4)


@pytest.mark.parametrize("missing", [(), ("imu",), tuple(STREAMS)], ids=["none", "one", "all"])
@pytest.mark.parametrize("stage", [1, 2])
def test_gradients_are_finite_and_reach_all_that_is_used(stage: int, missing: tuple[str, ...]) -> None:
    model = fusion(stage)
    model.zero_grad()
    model(*inputs(missing=missing)).tokens.square().sum().backward()
    grads = {name: p.grad for name, p in model.named_parameters()}
    assert all(bool(torch.isfinite(g).all()) for g in grads.values())
    grads = {name: g for name, g in grads.items() if not name.endswith(".k.bias")}  # softmax takes no notice of it
    moved = {name for name, g in grads.items() if bool(g.any())}
    blocks = {name for name in grads if name.endswith(".missing")}
    if not missing:
        assert set(grads) - moved == blocks
    elif missing == tuple(STREAMS):  # Z, which nothing joins, and the readouts of the blocks that stand for streams
        assert {name.split(".")[0] for name in moved - blocks} == {"bottleneck", "question", "injection"} | (
            {"readout"} if stage == 2 else set()
        )
        assert moved & blocks == (blocks if stage == 2 else set())


# ---- ONNX ------------------------------------------------------------------------------------------------------------


@functools.cache
def exported(stage: int) -> Any:
    """(the graph, a session of it)"""
    pytest.importorskip("onnxscript")
    runtime = pytest.importorskip("onnxruntime")
    names = [f"{s}_{part}" for part in ("values", "valid") for s in STREAMS]
    batch = torch.export.Dim.DYNAMIC
    per_stream = {s: {0: batch} for s in STREAMS}
    program = torch.onnx.export(
        fusion(stage), inputs(batch=2), dynamo=True, opset_version=20, verbose=False,
        input_names=[*names, "question"], output_names=["tokens", "gates"],
        dynamic_shapes=(per_stream, per_stream, {0: batch}),
    )  # fmt: skip
    graph = program.model_proto
    return graph, runtime.InferenceSession(graph.SerializeToString(), providers=["CPUExecutionProvider"])


@pytest.mark.filterwarnings("ignore")  # of torch.onnx and onnxscript, about themselves
@pytest.mark.parametrize("missing", [(), ("trajectory",), tuple(STREAMS)], ids=["none", "one", "all"])
@pytest.mark.parametrize("stage", [1, 2])
def test_onnx_runtime_computes_the_same(stage: int, missing: tuple[str, ...]) -> None:
    _, session = exported(stage)
    for batch in (1, 2, 5):
        given = inputs(batch, missing, seed=batch)
        values, valid, question = given
        feed = {f"{s}_values": values[s].numpy() for s in STREAMS} | {f"{s}_valid": valid[s].numpy() for s in STREAMS}
        tokens, gates = session.run(None, {**feed, "question": question.numpy()})
        expected = run(stage, given)
        assert np.abs(tokens - expected.tokens.numpy()).max() < 1e-5
        assert np.abs(gates - expected.gates.numpy()).max() < 1e-5


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("stage", [1, 2])
def test_the_graph_is_plain_onnx_of_opset_20_with_a_free_batch(stage: int) -> None:
    graph, _ = exported(stage)
    assert [(o.domain, o.version) for o in graph.opset_import if o.domain in ("", "ai.onnx")] == [("", 20)]
    assert {node.domain for node in graph.graph.node} == {""} and not graph.functions
    assert not {node.op_type for node in graph.graph.node} & {"If", "Loop", "Scan", "NonZero"}
    assert all(i.type.tensor_type.shape.dim[0].dim_param for i in graph.graph.input)
