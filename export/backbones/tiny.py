"""Backbones of all four families small enough for a test: the real architectures, random weights from a seed.

The tokenizer is bytes plus the family's special tokens, the chat template a plain one of ours: real ones come with real
weights.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    Gemma3Config,
    Gemma3ForConditionalGeneration,
    InternVLConfig,
    InternVLForConditionalGeneration,
    PreTrainedTokenizerFast,
    Qwen3VLConfig,
    Qwen3VLForConditionalGeneration,
    SmolVLMConfig,
    SmolVLMForConditionalGeneration,
)

from handrail.export.backbones.base import Backbone, Side
from handrail.export.backbones.families import FAMILIES
from handrail.runtime.preprocess import ImagePlan
from handrail.runtime.preprocess.prompt import SENSOR, TokenPlan

D_MODEL, LAYERS, VOCABULARY = 64, 4, 320
_TEXT = {
    "vocab_size": VOCABULARY, "hidden_size": D_MODEL, "intermediate_size": 128, "num_hidden_layers": LAYERS,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 4096,
}  # fmt: skip
TEMPLATE = (
    "{% for m in messages %}[{{ m['role'] }}] {% for c in m['content'] %}"
    "{% if c['type'] == 'image' %}PLACEHOLDER{% else %}{{ c['text'] }}{% endif %}{% endfor %}\n{% endfor %}"
    "{% if add_generation_prompt %}[assistant] {% endif %}"
)


def build(family: str, seed: int = 0) -> Backbone:
    """Raises KeyError for a family that isn't one of ``FAMILIES``."""
    kind = FAMILIES[family]
    tokenizer = byte_tokenizer(kind.specials)
    torch.manual_seed(seed)
    model, image = _MODELS[family](tokenizer)
    with torch.no_grad():
        for parameter in model.parameters():  # the published initialisation is so small that any bug would hide
            if parameter.ndim > 1:
                parameter.normal_(0.0, parameter.shape[-1] ** -0.5)
    ids = tokenizer.convert_tokens_to_ids
    plan = TokenPlan(
        image=ids(kind.image), sensor=ids(SENSOR), end=(ids("<end>"),), placeholder=kind.placeholder,
        frame=kind.frame.format(tokens=kind.image * 16),
    )  # fmt: skip
    side = Side(image, plan, TEMPLATE.replace("PLACEHOLDER", kind.placeholder))
    backbone = kind.backbone(model.eval(), tokenizer, side)
    with torch.no_grad():  # as in trained models: else no token could have a probability above 0.85
        backbone.language.norm.weight += 1.0
    return backbone


def byte_tokenizer(specials: Iterable[str]) -> Any:
    """A token a byte, and the special ones."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([*dict.fromkeys([*specials, "<end>", SENSOR])])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **dict.fromkeys(("eos_token", "pad_token"), "<end>"))


def _plan(side: int, patch: int, family: str) -> ImagePlan:
    kind = FAMILIES[family]
    return ImagePlan(side, side, kind.filter, kind.mean, kind.std, kind.layout, patch)


def _qwen(tokenizer: Any) -> tuple[Any, ImagePlan]:
    ids = tokenizer.convert_tokens_to_ids
    config = Qwen3VLConfig(
        text_config={**_TEXT, "rope_parameters": {
            "rope_type": "default", "rope_theta": 5e6, "mrope_section": [4, 2, 2], "mrope_interleaved": True}},
        vision_config={
            "depth": 4, "hidden_size": 32, "intermediate_size": 64, "num_heads": 2, "patch_size": 8,
            "out_hidden_size": D_MODEL, "num_position_embeddings": 36, "deepstack_visual_indexes": [0, 1, 2]},
        image_token_id=ids("<|image_pad|>"), video_token_id=ids("<|video_pad|>"),
        vision_start_token_id=ids("<|vision_start|>"), vision_end_token_id=ids("<|vision_end|>"),
        tie_word_embeddings=True,
    )  # fmt: skip
    return Qwen3VLForConditionalGeneration(config), _plan(64, 8, "qwen3-vl")


def _internvl(tokenizer: Any) -> tuple[Any, ImagePlan]:
    config = InternVLConfig(
        text_config={**_TEXT, "model_type": "qwen2"},
        vision_config={
            "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 64,
            "image_size": [56, 56], "patch_size": [7, 7]},
        image_token_id=tokenizer.convert_tokens_to_ids("<IMG_CONTEXT>"), image_seq_length=16,
    )  # fmt: skip
    return InternVLForConditionalGeneration(config), _plan(56, 7, "internvl3")


def _gemma(tokenizer: Any) -> tuple[Any, ImagePlan]:
    config = Gemma3Config(
        text_config={**_TEXT, "sliding_window": 24, "sliding_window_pattern": 2, "query_pre_attn_scalar": 16},
        vision_config={
            "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 64,
            "image_size": 64, "patch_size": 8, "vision_use_head": False},
        image_token_index=tokenizer.convert_tokens_to_ids("<image_soft_token>"), mm_tokens_per_image=16,
    )  # fmt: skip
    return Gemma3ForConditionalGeneration(config), _plan(64, 8, "gemma3")


def _smolvlm(tokenizer: Any) -> tuple[Any, ImagePlan]:
    config = SmolVLMConfig(
        text_config={**_TEXT, "model_type": "llama"},
        vision_config={
            "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 64,
            "image_size": 64, "patch_size": 8},
        image_token_id=tokenizer.convert_tokens_to_ids("<image>"), scale_factor=2,
    )  # fmt: skip
    return SmolVLMForConditionalGeneration(config), _plan(64, 8, "smolvlm2")


_MODELS = {"qwen3-vl": _qwen, "internvl3": _internvl, "gemma3": _gemma, "smolvlm2": _smolvlm}
