"""The four families: class, special tokens, how a frame is written in the prompt, how its pixels are scaled.

Constants as in the published processors of each family.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from handrail.export.backbones.base import Backbone
from handrail.export.backbones.gemma3 import Gemma3
from handrail.export.backbones.internvl3 import InternVL3
from handrail.export.backbones.qwen3_vl import Qwen3VL
from handrail.export.backbones.smolvlm2 import SmolVLM2
from handrail.runtime.preprocess.resize import Filter

HALF = (0.5, 0.5, 0.5)
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


@dataclass(frozen=True, slots=True)
class Family:
    backbone: Callable[..., Backbone]
    model_type: str  # in config.json
    image: str  # token at which features are written
    placeholder: str  # what the chat template writes for a frame
    frame: str  # what stands for it; {tokens}: the image tokens
    specials: tuple[str, ...]
    filter: Filter
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    layout: Literal["planes", "patches"] = "planes"


FAMILIES: dict[str, Family] = {
    "qwen3-vl": Family(
        Qwen3VL, "qwen3_vl", "<|image_pad|>", "<|vision_start|><|image_pad|><|vision_end|>",
        "<|vision_start|>{tokens}<|vision_end|>",
        ("<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"), "bicubic", HALF, HALF, "patches",
    ),
    "internvl3": Family(
        InternVL3, "internvl", "<IMG_CONTEXT>", "<IMG_CONTEXT>", "<img>{tokens}</img>",
        ("<img>", "</img>", "<IMG_CONTEXT>"), "bicubic", IMAGENET_MEAN, IMAGENET_STD,
    ),
    "gemma3": Family(
        Gemma3, "gemma3", "<image_soft_token>", "<start_of_image>", "\n\n<start_of_image>{tokens}<end_of_image>\n\n",
        ("<start_of_image>", "<end_of_image>", "<image_soft_token>"), "bilinear", HALF, HALF,
    ),
    "smolvlm2": Family(
        SmolVLM2, "smolvlm", "<image>", "<image>",
        "<fake_token_around_image><global-img>{tokens}<fake_token_around_image>",
        ("<fake_token_around_image>", "<global-img>", "<image>"), "lanczos", HALF, HALF,
    ),
}  # fmt: skip
