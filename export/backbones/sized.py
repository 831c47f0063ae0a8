"""Backbones as large as published ones, with random weights from a seed: for times and memory alone.

The configuration is the published one; tokenizer and chat template are those of the tiny ones.
"""

from __future__ import annotations

import torch
from transformers import SmolVLMConfig, SmolVLMForConditionalGeneration

from handrail.export.backbones.base import Backbone, Side
from handrail.export.backbones.families import FAMILIES
from handrail.export.backbones.tiny import TEMPLATE, byte_tokenizer
from handrail.runtime.preprocess import ImagePlan
from handrail.runtime.preprocess.prompt import SENSOR, TokenPlan

SIZES = ("smolvlm2-256m",)
_TEXT = {
    "model_type": "llama", "vocab_size": 49280, "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30,
    "num_attention_heads": 9, "num_key_value_heads": 3, "head_dim": 64, "max_position_embeddings": 8192,
    "rope_theta": 100000.0, "tie_word_embeddings": False,
}  # fmt: skip
_VISION = {
    "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12,
    "image_size": 512, "patch_size": 16,
}  # fmt: skip
TOKENS = 64  # a frame: (512 / 16)² / 4²


def build_sized(size: str, seed: int = 0) -> Backbone:
    """Raises KeyError for a size that isn't one of ``SIZES``."""
    if size not in SIZES:
        raise KeyError(size)
    kind = FAMILIES["smolvlm2"]
    tokenizer = byte_tokenizer(kind.specials)
    ids = tokenizer.convert_tokens_to_ids
    torch.manual_seed(seed)
    config = SmolVLMConfig(text_config=_TEXT, vision_config=_VISION, image_token_id=ids(kind.image), scale_factor=4)
    model = SmolVLMForConditionalGeneration(config).eval()
    plan = TokenPlan(
        image=ids(kind.image), sensor=ids(SENSOR), end=(ids("<end>"),), placeholder=kind.placeholder,
        frame=kind.frame.format(tokens=kind.image * TOKENS),
    )  # fmt: skip
    image = ImagePlan(512, 512, kind.filter, kind.mean, kind.std, kind.layout, 16)
    return kind.backbone(model, tokenizer, Side(image, plan, TEMPLATE.replace("PLACEHOLDER", kind.placeholder)))
