"""The fusion network: five sensor streams on a 64-bin grid, and a question -> 8 (stage 1) or 28 (stage 2) tokens.

    stream [64, D] -> adapter -> 8 tokens X_s -> gate g_s(question) -> bottleneck exchange with Z -> injection -> LM
                                      '- stage 2: 4 readouts, before the gate -'

As in the paper's baseline, with attention bottlenecks after Nagrani et al. 2021. Values under a mask provably don't
matter, any streams may be missing, all of them too. No branch depends on data, so that it exports as it stands.
Knows neither what the streams measure, nor the language model but for its width. No dropout: streams are dropped whole,
by whoever trains.

At d_lm = 896 stage 2 has 17,315,974 parameters, stage 1 13,359,494. (The 17.6 M of the specification are 17,590,918
with a mask column per feature. Those columns would all be equal, and Adam would move their sum D times as fast: here
each stream has one.)

The five streams have parameters of their own and run side by side, stacked: one product for all of them keeps the graph
a fifth as long. S = 5 streams in the order of STREAMS, B examples, K tokens or keys, W width.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from handrail.runtime.grid import BINS, STREAMS

WIDTH, HEADS = 256, 8
TOKENS, READOUTS, LAYERS = 8, 4, 2
TOKENS_OUT = {1: TOKENS, 2: TOKENS + READOUTS * len(STREAMS)}  # by stage
FIRST_SCALE = 0.1  # of what is injected: near the size of a language model's own embeddings
FIRST_STD = 0.02  # of whatever is learned as it stands (queries, times, blocks)
LEAST_WEIGHT = 1e-6


class Fused(NamedTuple):
    tokens: Tensor  # [B, 8 | 28, d_lm]: the 8 of the exchange, then 4 of each stream
    gates: Tensor  # [B, S], 0..1; 0 where the stream is missing


class Fusion(nn.Module):
    """See the module. ``stage`` 2 has all of stage 1's parameters under the same names, and the readouts'."""

    def __init__(self, d_lm: int, stage: int, width: int = WIDTH) -> None:
        super().__init__()
        if stage not in TOKENS_OUT or width % HEADS:
            raise ValueError(f"fusion: expected stage 1 or 2 and a width divisible by {HEADS}, got {stage} and {width}")
        self.stage = stage
        self.entries = nn.ModuleDict({stream: nn.Linear(features + 1, width) for stream, features in STREAMS.items()})
        self.adapter = Adapter(width)
        self.question = nn.Linear(d_lm, width)
        self.gate = Gate(width)
        self.bottleneck = _learned(TOKENS, width)
        self.exchange = nn.ModuleList(Block(width) for _ in range(LAYERS))
        self.readout = Readout(READOUTS, width) if stage == 2 else None
        self.injection = Injection(width, d_lm)

    def forward(self, values: dict[str, Tensor], valid: dict[str, Tensor], question: Tensor) -> Fused:
        """Normalised values [B, 64, D] and valid bins [B, 64] (bool) of every stream; ``question`` [B, d_lm], the mean
        of its text embeddings, through which no gradient goes."""
        bins = torch.stack([valid[s] for s in STREAMS])  # [S, B, 64]
        tokens = self.adapter(torch.stack([self._entered(s, values[s], valid[s]) for s in STREAMS]), bins)
        q = self.question(question.detach().to(self.question.weight.dtype))  # [B, W]
        gates = self.gate(q, tokens, bins)  # [S, B, 1, 1]
        out = self._exchanged(tokens * gates, gates, self.bottleneck + q[:, None])
        if self.readout is not None:
            out = torch.cat([out, self.readout(tokens).transpose(0, 1).flatten(1, 2)], dim=1)
        return Fused(self.injection(out), gates[:, :, 0, 0].transpose(0, 1))

    def _entered(self, stream: str, values: Tensor, valid: Tensor) -> Tensor:
        """[B, 64, D] and bool [B, 64] -> [B, 64, W]."""
        known = torch.where(valid[:, :, None], values, 0.0)  # not a product: what is masked may be no number at all
        entered: Tensor = self.entries[stream](torch.cat([known, valid[:, :, None].to(known.dtype)], dim=2))
        return entered

    def _exchanged(self, x: Tensor, gates: Tensor, z: Tensor) -> Tensor:
        """Z [B, 8, W] after every stream's tokens [S, B, 8, W] and Z have attended to each other. A stream has a say in
        the new Z by its gate; where all gates are shut Z stays."""
        total = gates.sum(dim=0)  # [B, 1, 1]
        for block in self.exchange:
            joint = block(torch.cat([x, z.expand(len(STREAMS), -1, -1, -1)], dim=2))  # [S, B, 16, W]
            x, said = joint.split(TOKENS, dim=2)
            z = torch.where(total > LEAST_WEIGHT, (said * gates).sum(dim=0) / total.clamp(min=LEAST_WEIGHT), z)
        return z


class Adapter(nn.Module):
    """Streams on the grid -> 8 tokens each. Without any valid bin: a learned block that says so."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = Norms(width)
        channels = len(STREAMS) * width
        self.neighbours = nn.Conv1d(channels, channels, 3, padding=1, groups=channels)
        self.time = _learned(len(STREAMS), 1, BINS, width)
        self.readout = Readout(TOKENS, width)
        self.missing = _learned(len(STREAMS), 1, TOKENS, width)

    def forward(self, x: Tensor, valid: Tensor) -> Tensor:
        """[S, B, 64, W] and bool [S, B, 64] -> [S, B, 8, W]."""
        h = self.norm(x)
        channels = h.permute(1, 0, 3, 2)  # [B, S, W, 64]
        near = self.neighbours(channels.flatten(1, 2)).reshape(channels.shape)
        h = h + near.permute(1, 0, 3, 2) + self.time
        # Finite, so that a row of masked keys alone is a mean and not 0/0; exp of it is 0 beside any valid key.
        mask = torch.where(valid, 0.0, torch.finfo(h.dtype).min / 2)[:, :, None, None].to(h.dtype)
        return torch.where(valid.any(dim=2)[:, :, None, None], self.readout(h, mask), self.missing)


class Gate(nn.Module):
    """How much of a stream this question needs: a sigmoid, so that one stream's share doesn't cost another's."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.mlp = nn.Sequential(Linears(2 * width + 1, width), nn.GELU(), Linears(width, 1))

    def forward(self, q: Tensor, tokens: Tensor, valid: Tensor) -> Tensor:
        """[B, W], [S, B, 8, W], bool [S, B, 64] -> [S, B, 1, 1]."""
        mean, fraction = tokens.mean(dim=2), valid.to(q.dtype).mean(dim=2, keepdim=True)
        gate = torch.sigmoid(self.mlp(torch.cat([q.expand_as(mean), mean, fraction], dim=2)[:, :, None]))
        return torch.where(valid.any(dim=2)[:, :, None, None], gate, 0.0)


class Readout(nn.Module):
    """Learned queries of each stream attend to its keys, then a feed-forward; pre-norm."""

    def __init__(self, queries: int, width: int) -> None:
        super().__init__()
        self.queries = _learned(len(STREAMS), 1, queries, width)
        self.norm_queries, self.norm_keys = Norms(width), Norms(width)
        self.attention = Attention(width)
        self.forwards = FeedForward(width)

    def forward(self, keys: Tensor, mask: Tensor | None = None) -> Tensor:
        """[S, B, K, W] and what is added to the scores [S, B, 1, 1, K] -> [S, B, queries, W]."""
        queries = self.queries.expand(-1, keys.shape[1], -1, -1)
        found = queries + self.attention(self.norm_queries(queries), self.norm_keys(keys), mask)
        read: Tensor = self.forwards(found)
        return read


class Block(nn.Module):
    """A transformer block for each stream, pre-norm: every token of it attends to all."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = Norms(width)
        self.attention = Attention(width)
        self.forwards = FeedForward(width)

    def forward(self, x: Tensor) -> Tensor:
        """[S, B, K, W] -> the same."""
        normed = self.norm(x)
        mixed: Tensor = self.forwards(x + self.attention(normed, normed))
        return mixed


class Attention(nn.Module):
    """Scaled dot product in 8 heads, written out: it exports as plain products and a softmax."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.q, self.k, self.v, self.out = (Linears(width, width) for _ in range(4))

    def forward(self, queries: Tensor, keys: Tensor, mask: Tensor | None = None) -> Tensor:
        """[S, B, Q, W], [S, B, K, W] and what is added to the scores [S, B, 1, 1, K] -> [S, B, Q, W]."""
        q, k, v = _heads(self.q(queries)), _heads(self.k(keys)), _heads(self.v(keys))  # [S, B, 8, Q or K, W / 8]
        scores = q @ k.transpose(3, 4) / math.sqrt(q.shape[4])  # [S, B, 8, Q, K]
        weights = F.softmax(scores if mask is None else scores + mask, dim=4)
        mixed: Tensor = self.out((weights @ v).transpose(2, 3).flatten(3))
        return mixed


class FeedForward(nn.Module):
    """Four times as wide inside; pre-norm, and added to what comes in."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.net = nn.Sequential(Norms(width), Linears(width, 4 * width), nn.GELU(), Linears(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        added: Tensor = x + self.net(x)
        return added


class Injection(nn.Module):
    """Into the language model's width, at a learned scale."""

    def __init__(self, width: int, d_lm: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.linear = nn.Linear(width, d_lm)
        self.scale = nn.Parameter(torch.tensor(FIRST_SCALE))

    def forward(self, x: Tensor) -> Tensor:
        injected: Tensor = self.linear(self.norm(x)) * self.scale
        return injected


class Linears(nn.Module):
    """A linear layer for each stream: [S, B, K, inside] -> [S, B, K, outside]. Begins as torch's own does."""

    def __init__(self, inside: int, outside: int) -> None:
        super().__init__()
        reach = 1 / math.sqrt(inside)
        self.weight = nn.Parameter(torch.empty(len(STREAMS), inside, outside).uniform_(-reach, reach))
        self.bias = nn.Parameter(torch.empty(len(STREAMS), 1, outside).uniform_(-reach, reach))

    def forward(self, x: Tensor) -> Tensor:
        flat = torch.baddbmm(self.bias, x.flatten(1, 2), self.weight)  # [S, B * K, outside]
        return flat.reshape(*x.shape[:3], self.weight.shape[2])


class Norms(nn.Module):
    """A layer norm for each stream: [S, B, K, W] -> the same."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(len(STREAMS), 1, 1, width))
        self.bias = nn.Parameter(torch.zeros(len(STREAMS), 1, 1, width))

    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, x.shape[3:]) * self.weight + self.bias


def _learned(*shape: int) -> nn.Parameter:
    return nn.Parameter(torch.randn(shape) * FIRST_STD)


def _heads(x: Tensor) -> Tensor:
    """[S, B, K, W] -> [S, B, 8, K, W / 8]."""
    return x.reshape(*x.shape[:3], HEADS, x.shape[3] // HEADS).transpose(2, 3)
