"""Graphs give what torch gives, and a trained checkpoint becomes a bundle that opens without it."""

from __future__ import annotations

import argparse
import functools
import json
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the export room needs torch")
onnx = pytest.importorskip("onnx", reason="the export room needs onnx")
pytest.importorskip("transformers", reason="the export room needs transformers")

from handrail.benchmarks.gpu import cases  # noqa: E402
from handrail.export.backbones import tiny  # noqa: E402
from handrail.export.backbones.base import Backbone  # noqa: E402
from handrail.export.backbones.families import FAMILIES  # noqa: E402
from handrail.export.bundles.bundling import (  # noqa: E402
    Parts,
    decoder_section,
    sections,
    write_bundle,
    write_decoder,
)
from handrail.export.bundles.loading import load_trained, untrained  # noqa: E402
from handrail.export.export_command import command  # noqa: E402
from handrail.export.model.fused import FusedModel  # noqa: E402
from handrail.export.parity.checking import check_tiny  # noqa: E402
from handrail.export.parity.compare import (  # noqa: E402
    LOGITS_WITHIN,
    Report,
    check,
    comparable,
    difference,
    random_batch,
)
from handrail.export.training.checkpoint import write_checkpoint  # noqa: E402
from handrail.export.training.fitting import new_trainer  # noqa: E402
from handrail.export.training.resume import Identity, backbone_id, taken, weights_hash  # noqa: E402
from handrail.export.training.trainer import PlainEngine, Settings  # noqa: E402
from handrail.runtime.bundle import Bundle, open_bundle  # noqa: E402
from handrail.runtime.engine.decoder import Decoder  # noqa: E402
from handrail.runtime.grid import STREAMS, Statistics  # noqa: E402
from handrail.runtime.providers import Provider, faults, open_session, profile  # noqa: E402
from handrail.streams.errors import HandrailError, InputError, MissingDependencyError  # noqa: E402

SLOW = pytest.mark.timeout(900)  # torch's exporter, on a busy machine


def parts(family: str = "smolvlm2", stage: int = 1) -> Parts:
    return untrained(f"tiny:{family}", stage)


@SLOW
@pytest.mark.parametrize("family", FAMILIES)
def test_every_graph_and_the_greedy_answer_equal_torch(family: str) -> None:
    reports: list[Report] = list(check_tiny(family))
    assert [(r.stage, r.variant) for r in reports] == [(1, "fused"), (1, "plain"), (2, "fused"), (2, "plain")]
    for report in reports:
        assert report.tokens_equal and len(report.tokens) == 3
        assert set(report.max_abs_diff) == {"vision", "fusion", "decoder", "primus"}
        assert max(report.max_abs_diff.values()) < LOGITS_WITHIN
    answers = {tuple(answer) for r in reports for answer in r.tokens.values()}
    assert len(answers) > 1, "sensors that change no answer would prove nothing"


@functools.cache
def bundled(place: Path, family: str, provider: Provider) -> tuple[Parts, Bundle]:
    """Made once: torch's exporter takes its time."""
    made, steps = parts(family), []
    write_bundle(made, place / f"{family}-{provider}", "none", provider, step=steps.append)
    assert steps[0] == "vision graph" and steps[-1] == "hashes"
    return made, open_bundle(place / f"{family}-{provider}")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("bundles")


@SLOW
def test_a_bundle_opens_verified_and_answers_as_the_model_did(place: Path) -> None:
    made, bundle = bundled(place, "smolvlm2", "cpu")
    assert {"vision.onnx", "fusion.onnx", "primus.onnx", "decoder.onnx", "tokenizer.json", "chat_template.jinja",
            "statistics.json", "embeddings.npy"} <= set(bundle.manifest.files)  # fmt: skip
    assert "not trained" in bundle.manifest.provenance[0] and bundle.manifest.stage == 1
    with torch.no_grad():
        table = made.model.backbone.embed(torch.arange(5)).numpy()
    assert (bundle.embeddings()[:5] == table).all()
    assert check(made.model, bundle.folder, bundle.manifest.decoder).held
    assert bundle.manifest.decoder["cache"] == "shared"
    read = Statistics.from_json(json.loads(bundle.read("statistics.json")))
    assert (read.std["gaze"] == 1.0).all()


@SLOW
def test_a_bundle_of_ones_own_can_be_timed(place: Path) -> None:
    from handrail.benchmarks.engine_child import OfBundle, measure

    _, bundle = bundled(place, "smolvlm2", "cpu")
    found = measure(OfBundle({"model": str(bundle.folder), "threads": 1}), [1, 2, 3], 2)
    assert min(found[name] for name in ("encode_ms", "prefill_ms", "ttft_ms", "decode_tok_s")) > 0


@SLOW
@pytest.mark.parametrize("family", ["smolvlm2", "gemma3"])
def test_a_decoder_in_eight_bits_stays_near_and_four_bits_less_so(family: str, tmp_path: Path) -> None:
    backbone = parts(family).model.backbone
    off, bytes_ = {}, {}
    for quant in ("none", "w8", "w4"):
        graph = tmp_path / quant / "decoder.onnx"
        graph.parent.mkdir()
        write_decoder(backbone, graph, quant, "cpu")  # type: ignore[arg-type]
        assert (graph.parent / "prefill.onnx").exists() == (family == "smolvlm2" and quant != "none")
        off[quant] = _first_scores_off(backbone, graph, quant)
        bytes_[quant] = graph.with_name("decoder.onnx.data").stat().st_size
    assert max(off["none"]) < LOGITS_WITHIN < min(off["w8"]) and max(off["w8"]) < min(off["w4"])
    assert max(off["w8"]) < 1.0
    assert bytes_["w4"] < bytes_["w8"] < bytes_["none"] * (0.5 if family == "gemma3" else 0.8)


def _first_scores_off(backbone: Backbone, graph: Path, quant: Any) -> tuple[float, float]:
    """Of the prompt "Where?" alone, read at once and a token at a time."""
    import numpy as np

    ids = torch.tensor([backbone.prompter.encode("Where?")])
    with torch.no_grad():
        embeds = backbone.embed(ids)
        ours = backbone.logits(backbone.hidden(embeds, backbone.asked(ids, torch.ones_like(ids, dtype=torch.bool))))
    decoder = Decoder.of_graph(graph, decoder_section(backbone, quant))
    n, last = ids.shape[1], ours[0, -1].numpy()
    at_once = decoder.read(embeds[0].numpy(), np.arange(n)[None], np.full(n, -1)).copy()
    decoder.rewind(0)
    for i in range(n):
        scores = decoder.read(embeds[0, i : i + 1].numpy(), np.array([[i]]), np.array([-1]))
    return difference(at_once, last), difference(scores, last)


@SLOW
@pytest.mark.parametrize("family", ["qwen3-vl", "gemma3"])
def test_plain_decoders_are_what_tensorrt_takes(family: str, place: Path) -> None:
    _, bundle = bundled(place, family, "tensorrt")
    ranges = profile(bundle.manifest, "decoder.onnx")
    plain = onnx.load(bundle.path("decoder.onnx"), load_external_data=False)
    assert faults(plain, ranges) == []
    assert any("no range says how far" in line for line in faults(plain, {}))
    longer = {**ranges, "inputs_embeds": ranges["position_ids"]}
    assert any(line.startswith("inputs_embeds: axis") for line in faults(plain, longer))


@SLOW
def test_decoders_with_operators_of_onnx_runtime_are_not(place: Path) -> None:
    _, bundle = bundled(place, "smolvlm2", "cpu")
    graph = onnx.load(bundle.path("decoder.onnx"), load_external_data=False)
    ranges = profile(bundle.manifest, "decoder.onnx")
    assert any("not an operator of ONNX itself" in line for line in faults(graph, ranges))


@SLOW
@pytest.mark.parametrize("family", ["qwen3-vl", "gemma3"])
def test_what_the_gpu_bench_gives_the_graphs_runs_and_lies_within_tensorrts_ranges(family: str, place: Path) -> None:
    _, bundle = bundled(place, family, "tensorrt")
    tried = list(cases(bundle.manifest, set(bundle.manifest.files)))
    assert [case.graph for case in tried] == [
        "vision.onnx", "fusion.onnx", "primus.onnx", "decoder.onnx", "decoder.onnx",
    ]
    for case in tried:
        ranges = profile(bundle.manifest, case.graph)
        for name, r in ranges.items():
            shape = case.inputs[name].shape
            assert all(a <= b <= c for a, b, c in zip(r.least, shape, r.most, strict=True)), name
        out = open_session(bundle.path(case.graph), "cpu").run(None, case.inputs)
        assert all(bool((abs(values) < 1e4).all()) for values in out)


def trained(folder: Path, family: str = "internvl3") -> tuple[Path, FusedModel]:
    """A checkpoint of a tiny model whose adapters do something, and the model."""
    settings = Settings(stage=1, steps=2, batch=1)
    backbone = tiny.build(family)
    trainer = new_trainer(backbone, settings, PlainEngine())
    with torch.no_grad():
        for name, parameter in trainer.lora.items():
            if "lora_B" in name:
                parameter.normal_(0.0, 0.1)
    statistics = Statistics.from_json(
        {name: {s: [float(name == "std")] * w for s, w in STREAMS.items()} for name in ("mean", "std")}
    )
    identity = Identity(backbone_id(backbone, f"tiny:{family}", None), "0" * 64, None, statistics)
    return write_checkpoint(folder, taken(trainer, identity), 3), trainer.model.eval()


def test_a_checkpoint_is_put_back_together_to_the_last_bit(tmp_path: Path) -> None:
    where, model = trained(tmp_path)
    loaded = load_trained(tmp_path, None)
    batch = random_batch(model, 3, ("imu",))
    with torch.no_grad():
        assert torch.equal(loaded.model(batch), model(batch))
    assert loaded.primus is None and loaded.source.name == "tiny:internvl3"
    assert any(where.name in line for line in loaded.provenance)


def test_a_checkpoint_of_other_weights_of_the_same_kind_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained(tmp_path)
    other = tiny.build("internvl3", seed=5)
    monkeypatch.setattr("handrail.export.bundles.loading.backbone_from", lambda *_, **__: other)
    with pytest.raises(InputError, match="weights of the backbone: expected"):
        load_trained(tmp_path, None)


def test_weights_have_one_hash_with_and_without_adapters_and_in_bfloat16() -> None:
    before = weights_hash(tiny.build("internvl3").model)
    adapted = tiny.build("internvl3")
    adapted.lora(4, 8)
    assert weights_hash(adapted.model) == weights_hash(tiny.build("internvl3").model.bfloat16()) == before
    assert weights_hash(tiny.build("internvl3", seed=1).model) != before


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["tiny:smolvlm2", "--out", "x", "--check", "--random", "500"], "--random: a check of its own"),
        (["--check", "--tiny", "all", "--random", "500"], "--tiny: a check of its own"),
        (["tiny:smolvlm2", "--out", "x", "--backbone", "y"], "is untrained and has its own"),
        (["tiny:smolvlm2", "--out", "a b"], "expected letters, digits"),
        (["runs/gone", "--check"], "expected CHECKPOINT and --out"),
        (["--check", "--random", "5"], "--random 5: expected"),
    ],
    ids=str,
)
def test_options_that_do_not_go_together_are_refused_before_any_work(
    words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    with pytest.raises(InputError, match=said):
        command.run(parser.parse_args(words, argparse.Namespace(json=None)))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"backbone": "tiny:gemma3"}, "family of the backbone: expected internvl3, found gemma3"),
        ({"imu_encoder": __file__}, "--imu-encoder: expected none, found"),
        ({"imu_encoder": "gone.ckpt"}, "gone.ckpt: can't be read"),
    ],
)
def test_a_checkpoint_with_parts_it_was_not_trained_with_is_refused(
    words: dict[str, str], said: str, tmp_path: Path
) -> None:
    trained(tmp_path)
    imu = words.get("imu_encoder")
    with pytest.raises(InputError, match=said):
        load_trained(tmp_path, None if imu is None else Path(imu), backbone=words.get("backbone"))


def exported(folder: Path) -> argparse.Namespace:
    """``handrail export RUN --out WALK --quant w8 --check``"""
    return argparse.Namespace(
        checkpoint=folder / "run", out=folder / "walk", replace=False, quant="w8", provider="cpu", imu_encoder=None,
        backbone=None, check=True, tiny=None, language=None, random=None, json=folder / "export.json",
    )  # fmt: skip


@SLOW
def test_a_trained_checkpoint_becomes_a_bundle_that_answers_alike(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trained(tmp_path / "run")
    assert command.run(exported(tmp_path)) == 0
    assert "answer" in capsys.readouterr().out
    manifest = open_bundle(tmp_path / "walk").manifest
    assert manifest.quantisation == "w8" and "primus.onnx" not in manifest.files  # trained without the IMU
    assert "decoder-whole.onnx" not in manifest.files
    assert json.loads((tmp_path / "export.json").read_text())["files"] == 12


def test_graphs_that_differ_from_torch_make_no_bundle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    trained(tmp_path / "run")
    monkeypatch.setattr("handrail.export.bundles.bundling.write_graphs", lambda made, folder, *_: sections(made))
    off = Report("internvl3", 1, True, {"vision": 0.5})
    monkeypatch.setattr("handrail.export.parity.checking.BundleCheck.__call__", lambda self, folder: off)
    with pytest.raises(HandrailError, match="a graph differs from torch"):
        command.run(exported(tmp_path))
    assert not (tmp_path / "walk").exists() and "5.0e-01" in capsys.readouterr().out


@pytest.mark.parametrize("lossy", [False, True])
def test_numbers_that_are_none_are_never_near_enough(lossy: bool) -> None:
    import numpy as np

    none = np.array([0.0, np.nan], np.float32)
    assert difference(none, np.zeros(2)) == difference(np.zeros(2), none) == np.inf
    for graph in ("vision", "decoder"):
        assert not Report("x", 1, True, {graph: difference(none, np.zeros(2))}, lossy=lossy).held


def test_scores_are_compared_as_long_as_both_wrote_the_same() -> None:
    assert comparable([1, 2, 3, 4], [1, 2, 9, 4]) == 3
    assert comparable([1, 2], [1, 2]) == 2 and comparable([5], [6]) == 1


@SLOW
def test_an_export_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    def fail(step: str) -> None:
        if step == "sensor graphs":
            raise KeyboardInterrupt

    made = parts()
    with pytest.raises(KeyboardInterrupt):
        write_bundle(made, tmp_path / "walk", "none", "cpu", step=fail)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("provider", ["cuda", "tensorrt"])
def test_a_provider_that_is_not_there_is_an_error_with_its_reason(provider: Any, tmp_path: Path) -> None:
    with pytest.raises(MissingDependencyError, match=f"{provider} was asked for"):
        open_session(tmp_path / "decoder.onnx", provider)
