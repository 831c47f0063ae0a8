"""InternVL3 in the format of transformers: one tile a frame, as for video."""

from __future__ import annotations

from torch import Tensor, nn

from handrail.export.backbones.base import Backbone, Seen


class InternVL3(Backbone):
    family = "internvl3"

    @property
    def language(self) -> nn.Module:
        return self.model.model.language_model

    @property
    def tokens_per_frame(self) -> int:
        return int(self.config.image_seq_length)

    def see(self, pixels: Tensor) -> Seen:
        out = self.model.model.get_image_features(
            pixels, vision_feature_layer=self.config.vision_feature_layer,
            vision_feature_select_strategy=self.config.vision_feature_select_strategy,
        )  # fmt: skip
        return Seen(out.pooler_output)
