"""The fused model: a vision-language backbone whose prompt holds tokens made from five sensor streams (seed 000).

Frames' features and sensor tokens are written over the embeddings at their placeholders, then the language model runs
as ever. Knows nothing of training and of graphs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from handrail.export.backbones.base import Backbone, Seen
from handrail.export.model.fusion import Fusion


@dataclass
class Batch:
    """B examples, padded on the right."""

    ids: Tensor  # [B, S] long
    valid: Tensor  # [B, S] bool
    labels: Tensor  # [B, S] long, -100: not scored
    question: Tensor  # [B, Q] long
    question_valid: Tensor  # [B, Q] bool
    pixels: Tensor | None = None  # [B * 8, ...] as the backbone's plan gives
    values: Mapping[str, Tensor] = field(default_factory=dict)  # stream -> [B, 64, D], normalised
    streams_valid: Mapping[str, Tensor] = field(default_factory=dict)  # stream -> [B, 64] bool


class FusedModel(nn.Module):
    """Without ``fusion`` it is the backbone alone: what the fused one is compared with."""

    def __init__(self, backbone: Backbone, fusion: Fusion | None) -> None:
        super().__init__()
        self.backbone = backbone
        self.fusion = fusion

    def adapters(self) -> dict[str, nn.Parameter]:
        """What training changes in the language model."""
        return {name: p for name, p in self.named_parameters() if "lora_" in name}

    def sensor_side(self) -> dict[str, nn.Parameter]:
        """The fusion network's parameters."""
        return {name: p for name, p in self.named_parameters() if name.startswith("fusion.")}

    def forward(self, batch: Batch) -> Tensor:
        """Logits [B, S, V]."""
        backbone = self.backbone
        embeds, deepstack = self.embedded(batch)
        hidden = backbone.hidden(embeds, backbone.asked(batch.ids, batch.valid), deepstack)
        return backbone.logits(hidden)

    def embedded(self, batch: Batch) -> tuple[Tensor, Tensor | None]:
        """What the decoder starts from: embeddings [B, S, d] with frames and sensors in place, and the deepstack."""
        backbone = self.backbone
        seen: Seen | None = None
        if batch.pixels is not None:
            with torch.no_grad():  # the vision encoder is frozen
                seen = backbone.see(batch.pixels)
        embeds, deepstack = backbone.placed(backbone.embed(batch.ids), batch.ids, seen)
        if self.fusion is not None:
            tokens = self.fusion(batch.values, batch.streams_valid, self.asked_for(batch)).tokens
            at = (batch.ids == backbone.sensor_id)[..., None]
            embeds = embeds.masked_scatter(at, tokens.to(embeds.dtype))
        return embeds, deepstack

    def asked_for(self, batch: Batch) -> Tensor:
        """The question as the fusion is conditioned on it: the mean of its text embeddings [B, d]."""
        weight = batch.question_valid[..., None].to(torch.float32)
        embedded = self.backbone.embed(batch.question).to(torch.float32).detach()
        return (embedded * weight).sum(1) / weight.sum(1).clamp(min=1.0)
