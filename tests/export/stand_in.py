"""A backbone small enough to be trained in a test, and a run of it that can be killed. For tests alone.

Same interface as ``export.backbones.base``: a causal transformer of two layers over bytes, one token a frame.

    python stand_in.py OUT        trains in OUT to the end, going on where it was; says each step
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention, silu

from handrail.export.backbones.base import Asked, Seen, Side
from handrail.export.model.fused import FusedModel
from handrail.export.model.fusion import Fusion
from handrail.export.training.batches import Batches
from handrail.export.training.checkpoint import BackboneId, checkpoints, read_checkpoint
from handrail.export.training.clip import FRAMES, Clip
from handrail.export.training.data import Example
from handrail.export.training.loop import train
from handrail.export.training.resume import Identity, data_hash, go_on, seed_generators
from handrail.export.training.trainer import Settings, Trainer, answer_nll
from handrail.runtime.grid import BINS, STREAMS, Grid, Statistics
from handrail.runtime.preprocess import ImagePlan
from handrail.runtime.preprocess.prompt import TokenPlan

D, LAYERS, HEADS, WIDTH = 32, 2, 2, 16
IMAGE, SENSOR, END = 256, 257, 258
SIDE_PX = 8


class Lora(nn.Module):
    def __init__(self, base: nn.Linear, r: int, alpha: int) -> None:
        super().__init__()
        self.base = base
        self.lora_A = nn.Parameter(torch.randn(r, base.in_features) / base.in_features**0.5)
        self.lora_B = nn.Parameter(torch.zeros(base.out_features, r))
        self.scale = alpha / r

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.base(x) + (x @ self.lora_A.T) @ self.lora_B.T * self.scale
        return out


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(D), nn.LayerNorm(D)])
        self.linears = nn.ModuleDict({
            name: nn.Linear(inside, outside) for name, inside, outside in
            [("q", D, D), ("k", D, D), ("v", D, D), ("o", D, D), ("up", D, 4 * D), ("down", 4 * D, D)]
        })  # fmt: skip

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        normed = self.norms[0](x)
        q, k, v = (self.linears[n](normed).unflatten(-1, (HEADS, -1)).transpose(1, 2) for n in "qkv")
        x = x + self.linears["o"](scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2).flatten(2))
        out: Tensor = x + self.linears["down"](silu(self.linears["up"](self.norms[1](x))))
        return out


class StandIn(nn.Module):
    family = "stand-in"
    tokens_per_frame = 1

    def __init__(self, seed: int = 0, name: str = "tiny") -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.d_model, self.image_id, self.sensor_id = D, IMAGE, SENSOR
        self.table = nn.Embedding(END + 2, D)
        self.places = nn.Parameter(torch.randn(512, D) * 0.3)
        self.eye = nn.Linear(3 * SIDE_PX**2, D)
        self.layers = nn.ModuleList([Layer() for _ in range(LAYERS)])
        self.head = nn.Linear(D, END + 2)
        self.requires_grad_(False)
        plan = ImagePlan(SIDE_PX, SIDE_PX, "bilinear", (0.5, 0.5, 0.5), (0.5, 0.5, 0.5), patch=SIDE_PX)
        self.side = Side(plan, TokenPlan(IMAGE, SENSOR, (END,), "", ""), "")
        self.prompter = SimpleNamespace(encode=lambda text: list(text.encode()))
        self.config = SimpleNamespace(to_dict=lambda: {"name": name, "d": D})

    def prompt(self, question: str, frames: int, sensor_tokens: int) -> list[int]:
        return [IMAGE] * frames + [SENSOR] * sensor_tokens + list(question.encode()) + [10]

    def embed(self, ids: Tensor) -> Tensor:
        embedded: Tensor = self.table(ids)
        return embedded

    def see(self, pixels: Tensor) -> Seen:
        return Seen(self.eye(pixels.flatten(1))[:, None])

    def placed(self, embeds: Tensor, ids: Tensor, seen: Seen | None) -> tuple[Tensor, None]:
        assert seen is not None
        return embeds.masked_scatter((ids == IMAGE)[..., None], seen.features), None

    def asked(self, ids: Tensor, valid: Tensor) -> Asked:
        length = ids.shape[1]
        causal = torch.ones(length, length, dtype=torch.bool).tril()
        return Asked(torch.arange(length)[None, None], {"full_attention": causal & valid[:, None, None]})

    def hidden(self, embeds: Tensor, asked: Asked, deepstack: Tensor | None) -> Tensor:
        x = embeds + self.places[asked.positions[0]]
        for layer in self.layers:
            x = layer(x, asked.masks["full_attention"])
        return x

    def logits(self, hidden: Tensor) -> Tensor:
        scores: Tensor = self.head(hidden)
        return scores

    def lora(self, r: int = 16, alpha: int = 32) -> None:
        for layer in self.layers:
            for name, linear in list(layer.linears.items()):
                layer.linears[name] = Lora(linear, r, alpha)


@dataclass(frozen=True)
class Made:
    """Frames and grids that a seed and the clip's name decide."""

    missing: frozenset[str] = frozenset()

    def clip(self, example: Example) -> Clip:
        frames = _random("frames", example.clip).integers(0, 256, (FRAMES, SIDE_PX, SIDE_PX, 3)).astype(np.uint8)
        return Clip(frames, np.arange(FRAMES), 0, 1, None, ())  # type: ignore[arg-type]

    def grids(self, example: Example) -> dict[str, Grid]:
        random = _random("grids", example.clip)
        made = {}
        for stream, width in STREAMS.items():
            valid = random.random(BINS) < (0.0 if stream in self.missing else 0.8)
            values = random.normal(random.normal(size=width), 0.3, (BINS, width)).astype(np.float32)
            made[stream] = Grid(np.where(valid[:, None], values, np.float32(0)), valid)
        return made


def _random(*words: str) -> np.random.Generator:
    return np.random.default_rng(list(" ".join(words).encode()))


def example(clip: str, question: str, *answers: str) -> Example:
    return Example(clip, "TC01", "question", question, answers, "world:1", 0.0, 1.0, "train", "data.jsonl, line 1")


EXAMPLES = [
    example("a", "Where is the door?", "Ahead."),
    example("b", "Where is the door?", "To your left."),  # the same words: what is seen and felt decides
    example("c", "Is it raining?", "No.", "It is dry."),
    example("d", "What time is it?", "Ten past four, it says."),
    example("e", "Stairs?", "Up."),
]
UNIT = Statistics({s: np.zeros(n, np.float32) for s, n in STREAMS.items()},
                  {s: np.ones(n, np.float32) for s, n in STREAMS.items()})  # fmt: skip
SMALL = Settings(stage=1, steps=10, batch=2, at_once=2, lr_lora=1e-2, lr_fusion=3e-3, lora_r=4, lora_alpha=8)


def backbone_id(family: str = "stand-in", source: str = "tiny", config: str = "0", weights: str = "0") -> BackboneId:
    return BackboneId(family, source, None, 8, config * 64, weights * 64)


def identity(examples: list[Example] | None = None, **changed: Any) -> Identity:
    same = {
        "backbone": backbone_id(), "data_sha256": data_hash(examples or EXAMPLES), "imu_encoder_sha256": None,
        "statistics": UNIT,
    }  # fmt: skip
    return Identity(**{**same, **changed})


def trainer(settings: Settings = SMALL, seed: int = 0) -> Trainer:
    torch.set_num_threads(1)
    backbone = StandIn(seed)
    seed_generators(settings.seed)
    backbone.lora(settings.lora_r, settings.lora_alpha)
    model = FusedModel(backbone, Fusion(D, settings.stage, WIDTH))  # type: ignore[arg-type]
    return Trainer(model, settings)


def feed(of: Trainer, examples: list[Example] | None = None) -> Batches:
    return Batches(examples or EXAMPLES, Made(), of.model.backbone, UNIT, of.settings)


def trained(out: Path, steps: int = 4, stage: int = 1, **changed: Any) -> Trainer:
    """A training to its end, checkpoints in ``out`` every second step."""
    running = trainer(msgspec.structs.replace(SMALL, steps=steps, stage=stage, **changed))
    train(running, feed(running), identity(), out, save_every=2)
    return running


@torch.no_grad()
def nll(of: Trainer, batch: Any) -> Any:
    return answer_nll(of.model(batch), batch.labels)


def weights(of: Trainer) -> dict[str, Any]:
    return {name: p.detach().clone() for name, p in of.trained.items()}


def differing(a: dict[str, Any], b: dict[str, Any]) -> set[str]:
    return {name for name in a if not torch.equal(a[name], b[name])}


def main(out: Path) -> None:
    running = trainer()
    if there := [path for _, path in checkpoints(out)]:
        go_on(running, read_checkpoint(there[-1]), identity(), there[-1])
    train(running, feed(running), identity(), out, save_every=2, watch=lambda done: print(done.step, flush=True))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
