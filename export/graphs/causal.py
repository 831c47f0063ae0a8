"""The decoder as ONNX Runtime's CPU is fastest with it, for backbones whose attention is plainly causal.

Keys and values stay where they are: ``past.N.key`` [1, heads, L, head_dim] and ``present.N.key`` are one buffer, of
which ``seqlens_k`` says how much is filled (GroupQueryAttention). Products that read the same input are one. The graph
is written from the weights, layer by layer, rather than traced: 10 operators a layer. Which layers it knows is listed;
any other, and those with masks of their own (Gemma 3), keep the traced graph.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir
import torch
from torch import nn

from handrail.export.backbones.base import Backbone
from handrail.export.graphs.linears import Linears
from handrail.export.graphs.net import Net
from handrail.runtime.providers import LONGEST

LAYERS = ("LlamaDecoderLayer", "Qwen2DecoderLayer", "Qwen3VLTextDecoderLayer")
STILL = ("default", "linear", "llama3", "yarn")  # kinds of rotation that don't change with the length of the text


def is_causal(backbone: Backbone) -> bool:
    """Whether this module can write its decoder."""
    config = backbone.text_config
    layers: Any = backbone.language.layers
    return (
        not backbone.both_ways
        and list(backbone.windows().values()) == [None]
        and all(type(layer).__name__ in LAYERS for layer in layers)
        and not any(getattr(layer.self_attn, "sliding_window", None) for layer in layers)
        and config.hidden_act == "silu"
        and backbone.language.rotary_emb.rope_type in STILL
    )


def causal_graph(backbone: Backbone, linears: Linears) -> ir.Model:
    return _Writer(backbone, linears).model()


@dataclass(frozen=True)
class _Turn:
    """Rotation of queries and keys: tables [L, head_dim / 2], read at ``places`` [1, S]."""

    cos: ir.Value
    sin: ir.Value
    places: ir.Value


class _Writer:
    def __init__(self, backbone: Backbone, linears: Linears) -> None:
        self.backbone, self.linears, self.net = backbone, linears, Net("decoder")
        config: Any = backbone.text_config
        self.heads, self.kv_heads = config.num_attention_heads, config.num_key_value_heads
        self.head_dim = getattr(config, "head_dim", None) or config.hidden_size // self.heads
        self.language: Any = backbone.language

    def model(self) -> ir.Model:
        net, backbone, axes = self.net, self.backbone, 3 if self.backbone.mrope else 1
        hidden = net.input("inputs_embeds", ir.DataType.FLOAT, (1, "S", backbone.d_model))
        places = net.input("position_ids", ir.DataType.INT64, (axes, 1, "S"))
        deep = self._deepstack()
        self.filled = net.input("seqlens_k", ir.DataType.INT32, (1,))
        self.total = net.input("total_sequence_length", ir.DataType.INT32, ())
        turn = self._mrope(places) if backbone.mrope else self._rope(places)
        first = self.language.layers[0].input_layernorm
        normed = self._norm(hidden, "first", first)
        kept: list[tuple[str, ir.Value]] = []
        for n, layer in enumerate(self.language.layers):
            attended = self._attention(n, layer.self_attn, normed, turn, kept)
            normed, hidden = self._skip(attended, hidden, f"{n}.middle", layer.post_attention_layernorm)
            change = self._mlp(n, layer.mlp, normed)
            if n < len(deep):
                change = net.op("Add", change, deep[n])
            last = n + 1 == len(self.language.layers)
            following = self.language.norm if last else self.language.layers[n + 1].input_layernorm
            if last:
                change, hidden = self._last(change), self._last(hidden)
            normed, hidden = self._skip(change, hidden, f"{n}.end", following)
        scores = self.linears(net, normed, "head", [backbone.head])
        net.output(scores, "logits", (1, 1, self._vocabulary()))
        for name, value in kept:
            net.output(value, f"present.{name}", (1, self.kv_heads, "L", self.head_dim))
        return net.model()

    def _vocabulary(self) -> int:
        head: Any = self.backbone.head
        return int(head.weight.shape[0])

    def _deepstack(self) -> list[ir.Value]:
        k, net = self.backbone.deepstack_layers, self.net
        if not k:
            return []
        deep = net.input("deepstack", ir.DataType.FLOAT, (k, 1, "S", self.backbone.d_model))
        return [net.op("Gather", deep, net.weight(f"layer_{i}", np.array(i, np.int64)), axis=0) for i in range(k)]

    def _last(self, value: ir.Value) -> ir.Value:
        """Of all tokens the last, [1, 1, d]."""
        net = self.net
        return net.op("Slice", value, net.ints(-1), net.ints(np.iinfo(np.int64).max), net.ints(1))

    def _norm(self, x: ir.Value, name: str, module: Any, scale: float = 1.0) -> ir.Value:
        weight = self.net.weight(f"{name}.norm", _numpy(module.weight) * np.float32(scale))
        return self.net.op("SimplifiedLayerNormalization", x, weight, axis=-1, epsilon=module.variance_epsilon)

    def _skip(self, x: ir.Value, residual: ir.Value, name: str, module: Any) -> tuple[ir.Value, ir.Value]:
        """The sum normalised, and the sum."""
        weight = self.net.weight(f"{name}.norm", _numpy(module.weight))
        out = self.net.all(
            "ort.SkipSimplifiedLayerNormalization", [x, residual, weight], 4, epsilon=module.variance_epsilon
        )
        return out[0], out[3]

    def _attention(
        self, n: int, module: Any, x: ir.Value, turn: _Turn, kept: list[tuple[str, ir.Value]]
    ) -> ir.Value:
        """Queries are scaled beforehand, in their weights: only where there is nothing to scale does the operator
        multiply one token by all keys without copying them, which is 6 % of a token's time."""
        net, turned, scaling = self.net, hasattr(module, "q_norm"), float(module.scaling)
        query = module.q_proj if turned else _scaled(module.q_proj, scaling)
        qkv = self.linears(net, x, f"{n}.qkv", [query, module.k_proj, module.v_proj])
        fed: list[ir.Value | None] = [qkv, None, None]
        if turned:
            fed = self._normed_heads(n, module, qkv, turn)
        for part in ("key", "value"):
            fed.append(net.input(f"past.{n}.{part}", ir.DataType.FLOAT, (1, self.kv_heads, "L", self.head_dim)))
        fed += [self.filled, self.total, *([] if turned else [turn.cos, turn.sin, turn.places])]
        out, key, value = net.all(
            "ort.GroupQueryAttention", fed, 3, num_heads=self.heads, kv_num_heads=self.kv_heads,
            scale=1.0, do_rotary=0 if turned else 1,
        )  # fmt: skip
        kept += [(f"{n}.key", key), (f"{n}.value", value)]
        return self.linears(net, out, f"{n}.o", [module.o_proj])

    def _normed_heads(self, n: int, module: Any, qkv: ir.Value, turn: _Turn) -> list[ir.Value | None]:
        """Queries and keys normalised head by head, then turned."""
        net, widths = self.net, [self.heads * self.head_dim, self.kv_heads * self.head_dim]
        query, key, value = net.all("Split", [qkv, net.ints(*widths, widths[1])], 3, axis=-1)
        out: list[ir.Value | None] = []
        for x, heads, width, part in ((query, self.heads, widths[0], "q"), (key, self.kv_heads, widths[1], "k")):
            split = net.op("Reshape", x, net.ints(1, -1, heads, self.head_dim))
            scale = float(module.scaling) if part == "q" else 1.0
            normed = self._norm(split, f"{n}.{part}", getattr(module, f"{part}_norm"), scale)
            joined = net.op("Reshape", normed, net.ints(1, -1, width))
            out.append(net.op("ort.RotaryEmbedding", joined, turn.places, turn.cos, turn.sin, num_heads=heads))
        return [*out, value]

    def _mlp(self, n: int, module: Any, x: ir.Value) -> ir.Value:
        net = self.net
        gate, up = self.linears.apart(net, x, f"{n}.gate_up", [module.gate_proj, module.up_proj])
        inner = net.op("Mul", net.op("ort.QuickGelu", gate, alpha=1.0), up)  # SiLU
        return self.linears(net, inner, f"{n}.down", [module.down_proj])

    def _rope(self, places: ir.Value) -> _Turn:
        """Positions [1, 1, S]."""
        rotary, net = self.language.rotary_emb, self.net
        angles = torch.arange(LONGEST)[:, None].float() * rotary.inv_freq.float().cpu()[None]
        cos, sin = (_numpy(f(angles) * rotary.attention_scaling) for f in (torch.cos, torch.sin))
        return _Turn(net.weight("cos", cos), net.weight("sin", sin), net.op("Reshape", places, net.ints(1, -1)))

    def _mrope(self, places: ir.Value) -> _Turn:
        """Positions [3, 1, S]: each frequency belongs to one axis, and each token has a row of the tables."""
        rotary, net = self.language.rotary_emb, self.net
        steps = rotary.inv_freq.float().cpu()
        half = len(steps)
        alone = torch.zeros(3, 3, 1, half)  # the steps on one axis, nothing on the others
        for axis in range(3):
            alone[axis, axis] = steps
        of_axis = np.concatenate([_numpy(rotary.recomposition_frequencies(a)[..., :half]) for a in alone])
        turns = net.op("Transpose", net.op("Cast", net.op("Reshape", places, net.ints(3, -1)), to=1), perm=[1, 0])
        angles = net.op("MatMul", turns, net.weight("steps", of_axis))  # [S, half]
        cos, sin = (net.op("Mul", net.op(f, angles), net.number(rotary.attention_scaling)) for f in ("Cos", "Sin"))
        count = net.op("Squeeze", net.op("Shape", angles, start=0, end=1), net.ints(0))
        zero, one = (net.weight(f"int_{i}", np.array(i, np.int64)) for i in (0, 1))
        own = net.op("Unsqueeze", net.op("Range", zero, count, one), net.ints(0))
        return _Turn(cos, sin, own)


def _scaled(linear: nn.Linear, scale: float) -> nn.Linear:
    made = nn.Linear(linear.in_features, linear.out_features, linear.bias is not None, device="meta")
    made.weight = nn.Parameter(linear.weight.detach().float() * scale, requires_grad=False)
    if linear.bias is not None:
        made.bias = nn.Parameter(linear.bias.detach().float() * scale, requires_grad=False)
    return made


def _numpy(tensor: Any) -> Any:
    return tensor.detach().float().cpu().numpy()
