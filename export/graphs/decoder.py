"""The language model as one graph for prefill and decode: embeddings in, the scores of the next token out.

Keys and values are flat inputs and outputs, ``past.N.key`` [1, heads, P, head_dim] and ``present.N.key`` [1, heads,
P + S, head_dim]; a prefill has P = 0. Positions and masks come from ``runtime.preprocess``. Batch is one: a wearer asks
one question at a time, and the fused attention needs it.
"""

from __future__ import annotations

import onnx_ir as ir
import torch
from torch import Tensor, nn

from handrail.export.backbones.base import Asked, Backbone, KeyValues
from handrail.export.graphs.onnx_file import Input, to_graph

PAST, NEW = 5, 3  # of the example: neither is special


class DecoderGraph(nn.Module):
    def __init__(self, backbone: Backbone) -> None:
        super().__init__()
        self.backbone = backbone
        self.kinds = list(backbone.windows())
        self.deep = backbone.deepstack_layers

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """As ``decoder_inputs`` names them."""
        embeds, places, *rest = inputs
        masks = dict(zip(self.kinds, rest, strict=False))
        rest = rest[len(self.kinds) :]
        deepstack = rest.pop(0) if self.deep else None
        cache = KeyValues(zip(rest[::2], rest[1::2], strict=True))
        hidden = self.backbone.hidden(embeds, Asked(places, masks), deepstack, cache)
        scores = self.backbone.logits(hidden[:, -1:])
        return (scores, *(t for layer in cache.layers for t in layer))


def decoder_inputs(backbone: Backbone) -> tuple[list[Input], list[str]]:
    """Inputs with examples, and the names of the outputs."""
    config = backbone.text_config
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    axes, d, total = 3 if backbone.mrope else 1, backbone.d_model, PAST + NEW
    kind = next(backbone.language.parameters()).dtype
    inputs = [
        Input("inputs_embeds", torch.randn(1, NEW, d, dtype=kind), (1,)),
        Input("position_ids", torch.arange(PAST, total).expand(axes, 1, NEW).clone(), (2,)),
        *(Input(name, torch.zeros(1, 1, NEW, total, dtype=kind), (2, 3)) for name in mask_names(backbone)),
    ]
    if k := backbone.deepstack_layers:
        inputs.append(Input("deepstack", torch.zeros(k, 1, NEW, d, dtype=kind), (2,)))
    names = [f"{layer}.{part}" for layer in range(config.num_hidden_layers) for part in ("key", "value")]
    shape = (1, config.num_key_value_heads, PAST, head_dim)
    inputs += [Input(f"past.{name}", torch.randn(shape, dtype=kind), (2,)) for name in names]
    return inputs, ["logits", *(f"present.{name}" for name in names)]


def mask_names(backbone: Backbone) -> list[str]:
    """``mask`` for the layers that look back to the beginning, ``mask_sliding`` for those that don't."""
    return ["mask" if kind == "full_attention" else "mask_sliding" for kind in backbone.windows()]


def decoder_graph(backbone: Backbone) -> ir.Model:
    """As opset 20 alone has it."""
    inputs, outputs = decoder_inputs(backbone)
    return to_graph(DecoderGraph(backbone), inputs, outputs)
