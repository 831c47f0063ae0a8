"""Gemma 3: the tokens of a frame see each other both ways, and five layers of six look back only so far."""

from __future__ import annotations

from torch import Tensor, nn

from handrail.export.backbones.base import Backbone, Seen


class Gemma3(Backbone):
    family = "gemma3"
    both_ways = True

    @property
    def language(self) -> nn.Module:
        return self.model.model.language_model

    @property
    def tokens_per_frame(self) -> int:
        return int(self.config.mm_tokens_per_image)

    def windows(self) -> dict[str, int | None]:
        return {"full_attention": None, "sliding_attention": int(self.text_config.sliding_window)}

    def see(self, pixels: Tensor) -> Seen:
        return Seen(self.model.model.get_image_features(pixels).pooler_output)
