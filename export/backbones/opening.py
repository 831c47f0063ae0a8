"""A backbone from a local directory or a hub id, told by its ``config.json``.

Weights are safetensors only; a fast tokenizer and a chat template must lie beside them. ``<sensor>`` is added to the
tokenizer, with an embedding of its own where the table has no spare row (it is written over anyway).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForImageTextToText, AutoTokenizer
from transformers.utils.logging import disable_progress_bar

from handrail.export.backbones.base import Backbone, Side
from handrail.export.backbones.families import FAMILIES, Family
from handrail.export.quiet import quiet
from handrail.runtime.preprocess import ImagePlan
from handrail.runtime.preprocess.prompt import SENSOR, TokenPlan
from handrail.streams.errors import ConfigError, SourceError

ENDS = ("<|im_end|>", "<end_of_turn>", "<end_of_utterance>")  # of a turn, beside the tokenizer's own end
QWEN_SIDE = 448  # pixels; 14 x 14 tokens a frame. The others have a side of their own.


def open_backbone(
    source: str, *, revision: str | None = None, side: int | None = None, dtype: torch.dtype = torch.float32
) -> Backbone:
    """Raises SourceError for what can't be loaded, ConfigError for a backbone or size that isn't one of ours."""
    plain: dict[str, Any] = {"revision": revision, "trust_remote_code": False}  # code of a repository never runs
    with readable(source, "no backbone there"):
        config = AutoConfig.from_pretrained(source, **plain)
        tokenizer = AutoTokenizer.from_pretrained(source, use_fast=True, **plain)
    kind = family_of(config.model_type)
    with readable(source, "weights can't be loaded"):
        model, loaded = AutoModelForImageTextToText.from_pretrained(
            source, dtype=dtype, use_safetensors=True, attn_implementation="sdpa", output_loading_info=True, **plain
        )
    if missing := sorted(loaded["missing_keys"]):
        raise SourceError(f"{source}: expected weights of {missing[0]}, found none ({len(missing)} are missing)")
    add_sensor_token(model, tokenizer)
    image = _image_plan(kind, config, side)
    backbone_side = Side(image, token_plan(kind, tokenizer, _frame_tokens(config, image)), _template(source, tokenizer))
    return kind.backbone(model.eval(), tokenizer, backbone_side)


@contextlib.contextmanager
def readable(source: str, what: str) -> Iterator[None]:
    """Whatever a damaged or odd folder makes of transformers is one line, and no bars or tales of tries beside it."""
    disable_progress_bar()
    try:
        with quiet():
            yield
    except Exception as e:
        reason = (str(e).strip().splitlines() or [type(e).__name__])[0][:160]
        raise SourceError(f"{source}: {what} ({reason}); copy it again, or see `handrail models list`") from e


def family_of(model_type: str) -> Family:
    for family in FAMILIES.values():
        if family.model_type == model_type:
            return family
    known = ", ".join(f.model_type for f in FAMILIES.values())
    raise ConfigError(f"a backbone of type {model_type}: expected one of {known}")


def add_sensor_token(model: Any, tokenizer: Any) -> None:
    """New rows are zero: the embedding is written over, and the head must not differ from one opening to the next."""
    tokenizer.add_special_tokens({"additional_special_tokens": [SENSOR]}, replace_extra_special_tokens=False)
    rows = model.get_input_embeddings().weight.shape[0]
    if tokenizer.convert_tokens_to_ids(SENSOR) < rows:
        return
    model.resize_token_embeddings(len(tokenizer), mean_resizing=False)
    with torch.no_grad():
        for module in (model.get_input_embeddings(), model.get_output_embeddings()):
            module.weight[rows:] = 0.0


def token_plan(kind: Family, tokenizer: Any, per_frame: int) -> TokenPlan:
    """Raises ConfigError where the tokenizer lacks a token of the family."""
    known = tokenizer.get_vocab()
    if lacking := [t for t in (kind.image, SENSOR) if t not in known]:
        raise ConfigError(f"the tokenizer has no {', '.join(lacking)}: it belongs to another backbone")
    end = {tokenizer.eos_token_id, *(known[t] for t in ENDS if t in known)}
    specials = {name: str(t) for name, t in tokenizer.special_tokens_map.items() if isinstance(t, str)}
    return TokenPlan(
        image=known[kind.image], sensor=known[SENSOR], end=tuple(sorted(end)), placeholder=kind.placeholder,
        frame=kind.frame.format(tokens=kind.image * per_frame), specials=specials,
    )  # fmt: skip


def _image_plan(kind: Family, config: Any, side: int | None) -> ImagePlan:
    vision = config.vision_config
    patch = vision.patch_size[0] if isinstance(vision.patch_size, (list, tuple)) else vision.patch_size
    if kind.layout == "patches":
        pixels, merge = side or QWEN_SIDE, vision.spatial_merge_size
        if pixels % (patch * merge):
            raise ConfigError(f"frames of {pixels} pixels: expected a multiple of {patch * merge}")
        return ImagePlan(pixels, pixels, kind.filter, kind.mean, kind.std, kind.layout, patch, merge)
    own = vision.image_size[0] if isinstance(vision.image_size, (list, tuple)) else vision.image_size
    if side not in (None, own):
        raise ConfigError(f"frames of {side} pixels: this backbone takes {own}")
    return ImagePlan(own, own, kind.filter, kind.mean, kind.std, kind.layout, patch)


def _frame_tokens(config: Any, image: ImagePlan) -> int:
    if image.layout == "patches":
        return image.grid[0] * image.grid[1] // image.merge**2
    for name in ("image_seq_length", "mm_tokens_per_image"):
        if hasattr(config, name):
            return int(getattr(config, name))
    return image.grid[0] * image.grid[1] // int(config.scale_factor) ** 2


def _template(source: str, tokenizer: Any) -> str:
    if isinstance(tokenizer.chat_template, str):
        return tokenizer.chat_template
    beside = Path(source) / "chat_template.jinja"
    if beside.is_file():
        return beside.read_text(encoding="utf-8")
    raise SourceError(f"{source}: no chat template beside the tokenizer")
