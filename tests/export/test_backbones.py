"""Every backbone through our interface gives what transformers gives."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the export room needs torch")
pytest.importorskip("transformers", reason="the export room needs transformers")

from safetensors.torch import load_file, save_file  # noqa: E402

from handrail.export.backbones import tiny  # noqa: E402
from handrail.export.backbones.base import Backbone, KeyValues  # noqa: E402
from handrail.export.backbones.families import FAMILIES  # noqa: E402
from handrail.export.backbones.opening import open_backbone  # noqa: E402
from handrail.export.model.fused import Batch, FusedModel  # noqa: E402
from handrail.streams.errors import InputError, SourceError  # noqa: E402


def batch_of(backbone: Backbone, questions: list[str], frames: int = 3, seed: int = 0) -> Batch:
    prompts = [backbone.prompt(q, frames, 0) for q in questions]
    longest = max(map(len, prompts))
    pad = int(backbone.tokenizer.pad_token_id)
    ids = torch.tensor([p + [pad] * (longest - len(p)) for p in prompts])
    valid = torch.tensor([[True] * len(p) + [False] * (longest - len(p)) for p in prompts])
    rng = np.random.default_rng(seed)
    shape = (len(questions) * frames, *backbone.side.image.shape)
    pixels = torch.tensor(rng.normal(size=shape), dtype=torch.float32)
    return Batch(ids, valid, torch.full_like(ids, -100), ids[:, :1], valid[:, :1], pixels)


def theirs(backbone: Backbone, batch: Batch) -> Any:
    """Logits by the model's own way from ids and pixels."""
    model, ids = backbone.model, batch.ids
    kwargs: dict[str, Any] = {}
    image = (ids == backbone.image_id).int()
    pixels = batch.pixels
    assert pixels is not None
    if backbone.family == "qwen3-vl":
        down, across = backbone.side.image.grid
        kwargs = {"image_grid_thw": torch.tensor([[1, down, across]] * len(pixels)), "mm_token_type_ids": image}
        pixels = pixels.flatten(0, 1)
        model.model.language_model.__dict__.pop("_deepstack_process", None)  # ours is for dense features
    elif backbone.family == "gemma3":
        kwargs = {"token_type_ids": image}
    elif backbone.family == "smolvlm2":
        pixels = pixels.reshape(len(ids), -1, *pixels.shape[1:])
    with torch.no_grad():
        return model(input_ids=ids, attention_mask=batch.valid.long(), pixel_values=pixels, **kwargs).logits


@pytest.mark.parametrize("family", FAMILIES)
def test_logits_of_padded_prompts_with_frames_equal_those_of_the_model_itself(family: str) -> None:
    backbone = tiny.build(family)
    batch = batch_of(backbone, ["What is in front of me?", "Stairs?"])
    with torch.no_grad():
        ours = FusedModel(backbone, None)(batch)
    expected = theirs(backbone, batch)
    assert torch.allclose(ours[batch.valid], expected[batch.valid], atol=1e-4)
    assert expected[batch.valid].std() > 0.3, "logits that are all alike would prove nothing"


@pytest.mark.parametrize("family", FAMILIES)
def test_frames_matter_and_so_does_their_order(family: str) -> None:
    backbone = tiny.build(family)
    batch = batch_of(backbone, ["What is in front of me?"])
    assert batch.pixels is not None
    with torch.no_grad():
        one = FusedModel(backbone, None)(batch)
        batch.pixels = batch.pixels.flip(0)
        other = FusedModel(backbone, None)(batch)
    assert (one - other).abs().max() > 0.01


@pytest.mark.parametrize("family", FAMILIES)
def test_a_prompt_read_in_two_pieces_is_as_one_read_at_once(family: str) -> None:
    backbone = tiny.build(family)
    batch = batch_of(backbone, ["What is in front of me?"])
    model = FusedModel(backbone, None)
    with torch.no_grad():
        embeds, deepstack = model.embedded(batch)
        asked = backbone.asked(batch.ids, batch.valid)
        whole = backbone.hidden(embeds, asked, deepstack)
        text, cut = backbone.text_config, embeds.shape[1] - 4
        head = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
        nothing = torch.zeros(1, text.num_key_value_heads, 0, head)
        cache = KeyValues([(nothing, nothing)] * text.num_hidden_layers)
        for piece in (slice(0, cut), slice(cut, None)):
            part = type(asked)(
                asked.positions[..., piece], {k: m[:, :, piece, : piece.stop] for k, m in asked.masks.items()}
            )
            deep = None if deepstack is None else deepstack[:, :, piece]
            last = backbone.hidden(embeds[:, piece], part, deep, cache)
    assert torch.allclose(last, whole[:, cut:], atol=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_backbone_saved_in_a_folder_opens_as_it_was_and_a_gap_in_its_weights_is_refused(
    family: str, tmp_path: Path
) -> None:
    made = tiny.build(family)
    made.model.save_pretrained(tmp_path)
    made.tokenizer.chat_template = made.side.template
    made.tokenizer.save_pretrained(tmp_path)
    opened = open_backbone(str(tmp_path), side=made.side.image.height)
    assert opened.side.image == made.side.image
    assert (opened.image_id, opened.sensor_id) == (made.image_id, made.sensor_id)
    batch = batch_of(made, ["Stairs?"])
    with torch.no_grad():
        assert torch.equal(FusedModel(opened, None)(batch), FusedModel(made, None)(batch))
    weights = load_file(tmp_path / "model.safetensors")
    gone = sorted(n for n in weights if "q_proj" in n)[0]
    save_file({n: w for n, w in weights.items() if n != gone}, tmp_path / "model.safetensors", {"format": "pt"})
    with pytest.raises(SourceError, match=r"expected weights of .*q_proj"):
        open_backbone(str(tmp_path), side=made.side.image.height)


@pytest.mark.parametrize(
    ("said", "found"), [("no backbone there", None), ("expected one of", '{"model_type": "bert"}')]
)
def test_a_folder_without_one_of_our_backbones_is_refused(said: str, found: str | None, tmp_path: Path) -> None:
    if found is not None:
        (tmp_path / "config.json").write_text(found)
        tiny.build("smolvlm2").tokenizer.save_pretrained(tmp_path)
    with pytest.raises(InputError, match=said):
        open_backbone(str(tmp_path))


def _truncated(folder: Path) -> None:
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:5000])


def _misshapen(folder: Path) -> None:
    _configured(folder, lambda config: config["text_config"].update(intermediate_size=96))


def _odd(folder: Path) -> None:
    _configured(folder, lambda config: config.update(vision_config=3))


def _garbled(folder: Path) -> None:
    (folder / "tokenizer.json").write_text('{"model": 7}')


def _remote(folder: Path) -> None:
    """Of a kind that transformers would ask to run the folder's own code for."""
    (folder / "mine.py").write_text("raise SystemExit('it ran')")
    _configured(folder, lambda config: config.update(model_type="mine", auto_map={"AutoConfig": "mine.Mine"}))


def _configured(folder: Path, change: Callable[[Any], None]) -> None:
    config = json.loads((folder / "config.json").read_text())
    change(config)
    (folder / "config.json").write_text(json.dumps(config))


@pytest.mark.parametrize("harm", [_truncated, _misshapen, _odd, _garbled, _remote])
def test_a_damaged_or_odd_folder_is_refused_in_one_line_and_runs_nothing(
    harm: Callable[[Path], None], tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = tiny.build("smolvlm2")
    made.model.save_pretrained(tmp_path)
    made.tokenizer.chat_template = made.side.template
    made.tokenizer.save_pretrained(tmp_path)
    harm(tmp_path)
    capfd.readouterr()
    monkeypatch.setattr("builtins.input", lambda *_: "y")
    with pytest.raises(SourceError) as e:
        open_backbone(str(tmp_path))
    assert "\n" not in str(e.value) and "copy it again" in str(e.value)
    assert "it/s" not in capfd.readouterr().err  # no bar of theirs


def test_the_adapters_change_nothing_at_first_train_alone_and_merge_into_the_weights() -> None:
    backbone = tiny.build("internvl3")
    batch = batch_of(backbone, ["Stairs?"])
    model = FusedModel(backbone, None)
    before = model(batch).detach()
    backbone.lora()
    names = {n for n, p in backbone.named_parameters() if p.requires_grad}
    assert names and all("lora_" in n and "language_model" in n for n in names)
    assert torch.equal(model(batch).detach(), before)
    with torch.no_grad():
        for name, parameter in backbone.named_parameters():
            if "lora_B" in name:
                parameter.normal_(0.0, 0.1)
    trained = model(batch).detach()
    assert (trained - before).abs().max() > 0.01
    backbone.merge_lora()
    assert torch.allclose(model(batch), trained, atol=1e-4)
    assert not any("lora_" in n for n, _ in backbone.named_parameters())
