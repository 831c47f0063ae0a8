"""SmolVLM2, for small devices: whole frames, never split into tiles."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from handrail.export.backbones.base import Backbone, Seen


class SmolVLM2(Backbone):
    family = "smolvlm2"

    @property
    def language(self) -> nn.Module:
        return self.model.model.text_model  # type: ignore[union-attr, return-value]

    @property
    def tokens_per_frame(self) -> int:
        side = self.side.image.height // int(self.config.vision_config.patch_size)
        return side**2 // int(self.config.scale_factor) ** 2

    def see(self, pixels: Tensor) -> Seen:
        """The original asks which frames are padding and which patches are real: here all are."""
        tower, connector = self.model.model.vision_model, self.model.model.connector  # type: ignore[union-attr]
        patches = tower.embeddings.patch_embedding(pixels).flatten(2).transpose(1, 2)  # type: ignore[union-attr, operator]
        places = tower.embeddings.position_embedding(torch.arange(patches.shape[1], device=pixels.device))  # type: ignore[union-attr, operator]
        hidden = tower.encoder(inputs_embeds=patches + places, attention_mask=None).last_hidden_state  # type: ignore[union-attr, operator]
        return Seen(connector(tower.post_layernorm(hidden)))  # type: ignore[union-attr, operator]
