"""Qwen3-VL: patches of one fixed grid, features added to the first layers too, positions in three axes.

Each frame is a still image of its own (taken twice in time, as the encoder wants), so that a frame's features can be
kept and used in any prompt.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from transformers.vision_utils import get_vision_interpolation_indices_and_weights, get_vision_position_ids

from handrail.export.backbones.base import Backbone, Seen, Side


class Qwen3VL(Backbone):
    family = "qwen3-vl"
    mrope = True

    def __init__(self, model: nn.Module, tokenizer: Any, side: Side) -> None:
        super().__init__(model, tokenizer, side)
        self.tower = _Tower(self.model.model.visual, *side.image.grid)
        self.deepstack_layers = len(self.config.vision_config.deepstack_visual_indexes)
        # Dense, zero beside the frames: an indexed addition can't be exported.
        self.language._deepstack_process = lambda hidden, _, features: hidden + features

    @property
    def language(self) -> nn.Module:
        return self.model.model.language_model

    @property
    def tokens_per_frame(self) -> int:
        down, across = self.side.image.grid
        return down * across // self.side.image.merge**2

    def see(self, pixels: Tensor) -> Seen:
        return self.tower(pixels)


class _Tower(nn.Module):
    """The vision encoder over [F, patches, values]: attention within each frame as a batch, where the original splits a
    packed sequence by lengths that only the data tell."""

    def __init__(self, visual: Any, down: int, across: int) -> None:
        super().__init__()
        self.visual = visual
        grid = torch.tensor([[1, down, across]])
        merge = visual.spatial_merge_size
        indices, weights = get_vision_interpolation_indices_and_weights(
            grid, num_grid_per_side=visual.num_grid_per_side, mode=visual.interpolation_mode,
            align_corners=visual.interpolation_align_corners, spatial_merge_size=merge,
        )  # fmt: skip
        place = (visual.pos_embed(indices) * weights[:, :, None]).sum(1)
        cos, sin = visual.rotary_pos_emb(place, get_vision_position_ids(grid, merge))
        self.register_buffer("place", place.detach(), persistent=False)
        self.register_buffer("cos", cos[None, None].detach(), persistent=False)
        self.register_buffer("sin", sin[None, None].detach(), persistent=False)

    def forward(self, pixels: Tensor) -> Seen:
        v = self.visual
        frames, patches, _ = pixels.shape
        hidden = v.patch_embed(pixels.reshape(frames * patches, -1)).reshape(frames, patches, -1)
        hidden = hidden + self.place.to(hidden.dtype)
        deep = []
        for i, block in enumerate(v.blocks):
            hidden = hidden + self._attention(block.attn, block.norm1(hidden))
            hidden = hidden + block.mlp(block.norm2(hidden))
            if i in v.deepstack_visual_indexes:
                merger = v.deepstack_merger_list[v.deepstack_visual_indexes.index(i)]
                deep.append(merger(hidden).reshape(frames, -1, v.config.out_hidden_size))
        features = v.merger(hidden).reshape(frames, -1, v.config.out_hidden_size)
        return Seen(features, torch.stack(deep))

    def _attention(self, attention: Any, hidden: Tensor) -> Tensor:
        frames, patches, width = hidden.shape
        qkv = attention.qkv(hidden).reshape(frames, patches, 3, attention.num_heads, -1).permute(2, 0, 3, 1, 4)
        query, key, value = qkv.unbind(0)
        out = scaled_dot_product_attention(self._rotated(query), self._rotated(key), value, scale=attention.scaling)
        projected: Tensor = attention.proj(out.transpose(1, 2).reshape(frames, patches, width))
        return projected

    def _rotated(self, x: Tensor) -> Tensor:
        half = x.shape[-1] // 2
        turned = torch.cat([-x[..., half:], x[..., :half]], dim=-1)
        return x * self.cos.to(x.dtype) + turned * self.sin.to(x.dtype)
