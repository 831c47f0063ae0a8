"""SmolVLM2, for small devices: whole frames, never split into tiles."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from handrail.export.backbones.base import Backbone, Seen


class SmolVLM2(Backbone):
    family = "smolvlm2"

    @property
    def language(self) -> nn.Module:
        return self.model.model.text_model

    @property
    def tokens_per_frame(self) -> int:
        side = self.side.image.height // int(self.config.vision_config.patch_size)
        return side**2 // int(self.config.scale_factor) ** 2

    def see(self, pixels: Tensor) -> Seen:
        """The original asks which frames are padding and which patches are real: here all are."""
        tower, connector = self.model.model.vision_model, self.model.model.connector
        patches = tower.embeddings.patch_embedding(pixels).flatten(2).transpose(1, 2)
        places = tower.embeddings.position_embedding(torch.arange(patches.shape[1], device=pixels.device))
        hidden = tower.encoder(inputs_embeds=patches + places, attention_mask=None).last_hidden_state
        return Seen(connector(tower.post_layernorm(hidden)))
