"""What every backbone gives the fused model: frames to features, ids to embeddings, embeddings to logits.

The modules are those of transformers; what is ours is the way through them: frames of one fixed size in a batch, masks
and positions made outside (``runtime.preprocess``), keys and values in plain tensors. So training, parity checks and
the exported graphs run the same code. Knows no sensors.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from handrail.runtime.preprocess import ImagePlan, mask, positions
from handrail.runtime.preprocess.positions import MASKED, frame_of
from handrail.runtime.preprocess.prompt import Prompter, TokenPlan

# Linears of all four language models.
LINEARS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


@dataclass(frozen=True, slots=True)
class Side:
    """What is chosen for a backbone beside its weights: how it sees frames and how it writes its prompt."""

    image: ImagePlan
    tokens: TokenPlan
    template: str  # chat template, jinja


@dataclass(frozen=True, slots=True)
class Seen:
    """Frames encoded. Features [F, T, d]; Qwen3-VL adds [K, F, T, d] to the hidden states after its first K layers."""

    features: Tensor
    deepstack: Tensor | None = None


@dataclass(frozen=True, slots=True)
class Asked:
    """Positions [1 or 3, B, S] and one mask [B, 1, S, S] per kind of layer."""

    positions: Tensor
    masks: dict[str, Tensor]


class KeyValues:
    """Keys and values of all layers as plain tensors [B, heads, S, head_dim]: the cache that attention asks for."""

    def __init__(self, past: Iterable[tuple[Tensor, Tensor]]) -> None:
        self.layers = list(past)

    def update(self, keys: Tensor, values: Tensor, layer_idx: int, **_: Any) -> tuple[Tensor, Tensor]:
        before = self.layers[layer_idx]
        self.layers[layer_idx] = torch.cat([before[0], keys], dim=2), torch.cat([before[1], values], dim=2)
        return self.layers[layer_idx]

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return int(self.layers[layer_idx][0].shape[2])


class Backbone(nn.Module):
    """``model``: a transformers model for conditional generation; its tokenizer knows ``<sensor>``."""

    family: ClassVar[str]
    both_ways: ClassVar[bool] = False  # tokens of a frame see each other both ways
    mrope: ClassVar[bool] = False  # positions in three axes
    deepstack_layers: int = 0

    def __init__(self, model: nn.Module, tokenizer: Any, side: Side) -> None:
        super().__init__()
        self.model = model
        self.tokenizer = tokenizer
        self.side = side
        self.prompter = Prompter(tokenizer.backend_tokenizer, side.template, side.tokens)
        self.config: Any = model.config
        self.text_config: Any = self.config.text_config
        self.d_model = int(self.text_config.hidden_size)
        self.requires_grad_(False)

    # What differs between families.

    @property
    def language(self) -> nn.Module:
        """The decoder without its head."""
        raise NotImplementedError

    @property
    def head(self) -> nn.Module:
        head: nn.Module = self.model.lm_head
        return head

    @property
    def tokens_per_frame(self) -> int:
        raise NotImplementedError

    def see(self, pixels: Tensor) -> Seen:
        """Pixels as ``runtime.preprocess.pixels`` gives them."""
        raise NotImplementedError

    def windows(self) -> dict[str, int | None]:
        """Kinds of layers -> how far back they look (None: to the beginning)."""
        return {"full_attention": None}

    # What doesn't.

    @property
    def image_id(self) -> int:
        return self.side.tokens.image

    @property
    def sensor_id(self) -> int:
        return self.side.tokens.sensor

    @property
    def frame_grid(self) -> tuple[int, int] | None:
        """Tokens of a frame down and across where positions need them."""
        if not self.mrope:
            return None
        down, across = self.side.image.grid
        return down // self.side.image.merge, across // self.side.image.merge

    def prompt(self, question: str, frames: int, sensor_tokens: int) -> list[int]:
        return self.prompter.ids(question, frames, sensor_tokens)

    def embed(self, ids: Tensor) -> Tensor:
        embedded: Tensor = self.model.get_input_embeddings()(ids)
        return embedded

    def asked(self, ids: Tensor, valid: Tensor) -> Asked:
        """Positions and masks of right-padded prompts [B, S]."""
        places: list[Any] = []
        masks: dict[str, list[Any]] = {kind: [] for kind in self.windows()}
        for row, real in zip(ids.cpu().numpy(), valid.cpu().numpy(), strict=True):
            places.append(positions(row, self.image_id, self.frame_grid).axes)
            frames = frame_of(row, self.image_id)
            for kind, window in self.windows().items():
                seen = mask(frames, len(row), both_ways=self.both_ways, window=window)
                masks[kind].append(np.where(real[None, :], seen, MASKED))
        to = {"device": ids.device}
        stacked = {kind: torch.tensor(np.stack(m)[:, None], **to) for kind, m in masks.items()}
        return Asked(torch.tensor(np.stack(places, axis=1), **to), stacked)

    def hidden(
        self, embeds: Tensor, asked: Asked, deepstack: Tensor | None = None, cache: KeyValues | None = None
    ) -> Tensor:
        """Of the last layer, normalised, [B, S, d]. ``deepstack``: dense [K, B, S, d], zero beside the frames."""
        least = torch.finfo(embeds.dtype).min  # float32's would become -inf in fewer bits, and a padded row NaN
        masks = {kind: m.clamp(min=least).to(embeds.dtype) for kind, m in asked.masks.items()}
        attention: Any = masks if len(masks) > 1 else masks["full_attention"]
        kwargs: dict[str, Any] = {} if deepstack is None else {"deepstack_visual_embeds": list(deepstack)}
        place = asked.positions if self.mrope else asked.positions[0]
        out = self.language(
            inputs_embeds=embeds, attention_mask=attention, position_ids=place, cache=cache,
            use_cache=cache is not None, **kwargs,
        )  # fmt: skip
        last: Tensor = out.last_hidden_state
        return last

    def logits(self, hidden: Tensor) -> Tensor:
        scores: Tensor = self.head(hidden)
        return scores

    def placed(self, embeds: Tensor, ids: Tensor, seen: Seen | None) -> tuple[Tensor, Tensor | None]:
        """Embeddings with the frames' features at their places, and the dense deepstack."""
        if seen is None:
            return embeds, None
        at = (ids == self.image_id)[..., None]
        embeds = embeds.masked_scatter(at, seen.features.to(embeds.dtype))
        if seen.deepstack is None:
            return embeds, None
        nothing = torch.zeros_like(embeds)
        return embeds, torch.stack([nothing.masked_scatter(at, layer.to(embeds.dtype)) for layer in seen.deepstack])

    def lora(self, r: int = 16, alpha: int = 32) -> None:
        """Adapters on the language model's linears; all else stays frozen."""
        from peft import LoraConfig, inject_adapter_in_model

        names = [n for n, m in self.language.named_modules() if isinstance(m, nn.Linear) and n.endswith(LINEARS)]
        inject_adapter_in_model(LoraConfig(r=r, lora_alpha=alpha, target_modules=names), self.language)

    def merge_lora(self) -> None:
        """Add the adapters to the weights and take them away."""
        from peft.tuners.lora import LoraLayer

        for name, module in list(self.language.named_modules()):
            if isinstance(module, LoraLayer):
                module.merge()
                parent, _, child = name.rpartition(".")
                setattr(self.language.get_submodule(parent), child, module.get_base_layer())
