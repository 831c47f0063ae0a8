"""The training of the fused model (seed 000; spec: LoRA adapters and fusion network, all else frozen), step by step.

    trainer = Trainer(model, settings)
    while trainer.step < settings.steps:
        done = trainer.train_step(step_batches(settings, feed, trainer.step))

Loss: for each example the mean negative log-likelihood of its answer's tokens, then the mean over the batch, so that a
long answer weighs no more than a short one. Stage 2 begins with a warm-up in which the adapters stay frozen.

All that is random is drawn from the seed and the position in the data, or from generators that checkpoints keep; a
training that goes on from a checkpoint is the same as one that never stopped, bit for bit on a CPU. Knows no files
(``checkpoint``, ``resume``) and no recordings (``material``, ``batches``).
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Protocol

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from handrail.export.model.fused import Batch, FusedModel
from handrail.export.training.curve import StepDone
from handrail.streams.errors import HandrailError

IGNORED = -100  # label of a token that isn't scored
Positive = Annotated[int, msgspec.Meta(ge=1)]
Rate = Annotated[float, msgspec.Meta(gt=0.0, le=1.0)]


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All that decides what comes out, beside model and data. Values not in the paper are ours."""

    stage: Literal[1, 2]
    steps: Positive
    batch: Positive = 8  # examples a step
    at_once: Positive = 1  # examples a pass through the model; gradients add up
    seed: Annotated[int, msgspec.Meta(ge=0, lt=2**32)] = 0
    lr_lora: Rate = 1e-4
    lr_fusion: Rate = 3e-4
    weight_decay: Annotated[float, msgspec.Meta(ge=0.0, le=1.0)] = 0.01
    clip_norm: Annotated[float, msgspec.Meta(gt=0.0)] = 1.0  # of all gradients together
    drop: Annotated[float, msgspec.Meta(ge=0.0, lt=1.0)] = 0.15  # of each stream, by itself
    warmup: Annotated[int, msgspec.Meta(ge=0)] = 200  # steps of stage 2 in which the adapters are frozen
    lora_r: Positive = 16
    lora_alpha: Positive = 32
    mode: Literal["paper", "runtime"] = "paper"  # how clips are cut, see ``sampling``
    window_s: Annotated[float, msgspec.Meta(ge=0.1, le=3600.0)] = 10.0  # runtime mode
    precision: Literal["float32", "bfloat16"] = "float32"  # of the frozen weights and the arithmetic

    @property
    def frozen_steps(self) -> int:
        return self.warmup if self.stage == 2 else 0


@dataclass(frozen=True, slots=True)
class Place:
    """One example's turn in the shuffled data."""

    position: int  # counts all examples of all epochs
    index: int  # in the training split
    seed: int

    def random(self, purpose: int) -> np.random.Generator:
        """Of its own for each turn and purpose: nothing depends on how the turns are put into batches."""
        return np.random.default_rng([self.seed, self.position, purpose])


class Feed(Protocol):
    def __len__(self) -> int:
        """Examples in the training split."""
        ...

    def __call__(self, places: Sequence[Place]) -> Batch:
        """The examples at these places as one batch."""
        ...


def places(examples: int, position: int, count: int, seed: int) -> list[Place]:
    """The next ``count`` turns from ``position`` on. Every epoch is a permutation of its own; batches run across."""
    turns = []
    for at in range(position, position + count):
        epoch, k = divmod(at, examples)
        turns.append(Place(at, int(_permutation(examples, epoch, seed)[k]), seed))
    return turns


@functools.lru_cache(maxsize=2)
def _permutation(examples: int, epoch: int, seed: int) -> NDArray[np.int64]:
    return np.random.default_rng([seed, epoch]).permutation(examples)


def answer_nll(logits: Tensor, labels: Tensor) -> Tensor:
    """Mean negative log-likelihood of each example's scored tokens: logits [B, S, V], labels [B, S] -> [B].

    The logits at one place are about the token at the next.
    """
    ahead, scored = logits[:, :-1], labels[:, 1:] != IGNORED
    per_token = cross_entropy(ahead[scored].float(), labels[:, 1:][scored], reduction="none")
    example = torch.arange(len(labels), device=labels.device)[:, None].expand_as(scored)[scored]
    total = torch.zeros(len(labels), device=labels.device).index_add(0, example, per_token)
    return total / scored.sum(1).clamp(min=1)


def cosine(step: int, steps: int) -> float:
    """Share of the learning rate in the step that comes after ``step`` steps: from 1 down to nearly 0."""
    return 0.5 * (1.0 + math.cos(math.pi * step / steps))


class Engine(Protocol):
    """Where it is computed: plain float32 on a CPU, or through ``accelerate``."""

    device: torch.device

    def place(self, model: nn.Module) -> None: ...
    def forward(self, model: nn.Module, batch: Batch) -> Tensor: ...
    def backward(self, loss: Tensor) -> None: ...


class PlainEngine:
    def __init__(self) -> None:
        self.device = torch.device("cpu")

    def place(self, model: nn.Module) -> None:
        model.to(self.device)

    def forward(self, model: nn.Module, batch: Batch) -> Tensor:
        logits: Tensor = model(batch)
        return logits

    def backward(self, loss: Tensor) -> None:
        loss.backward()


class AcceleratedEngine:
    """One CUDA device; frozen weights in bfloat16, trained ones in float32, activations of the decoder recomputed."""

    def __init__(self) -> None:
        from accelerate import Accelerator

        self._accelerator = Accelerator(mixed_precision="bf16")
        self.device = self._accelerator.device
        if self._accelerator.num_processes > 1:
            processes = self._accelerator.num_processes
            raise HandrailError(f"expected one process, got {processes}: start it without a launcher")

    def place(self, model: nn.Module) -> None:
        for parameter in model.parameters():
            parameter.data = parameter.data.to(torch.float32 if parameter.requires_grad else torch.bfloat16)
        model.to(self.device)
        language: Any = model.get_submodule("backbone").language
        language.activation_checkpointing_enable({"use_reentrant": False})
        language.train()  # or nothing is recomputed; there is no dropout in it

    def forward(self, model: nn.Module, batch: Batch) -> Tensor:
        with self._accelerator.autocast():
            logits: Tensor = model(batch)
            return logits

    def backward(self, loss: Tensor) -> None:
        self._accelerator.backward(loss)


class Trainer:
    """Holds what changes while training: trained weights, optimiser and the number of steps done."""

    def __init__(self, model: FusedModel, settings: Settings, engine: Engine | None = None) -> None:
        self.model, self.settings = model, settings
        self.engine: Engine = engine or PlainEngine()
        self.step = 0
        self.lora, self.fusion = model.adapters(), model.sensor_side()
        for parameter in model.parameters():
            parameter.requires_grad_(False)
        for parameter in self.trained.values():
            parameter.requires_grad_(True)
        self.engine.place(model)
        groups = [
            {"params": list(self.lora.values()), "lr": settings.lr_lora},
            {"params": list(self.fusion.values()), "lr": settings.lr_fusion},
        ]
        self.optimizer = torch.optim.AdamW(groups, weight_decay=settings.weight_decay, fused=True)

    @property
    def trained(self) -> dict[str, nn.Parameter]:
        return {**self.lora, **self.fusion}

    @property
    def examples_seen(self) -> int:
        return self.step * self.settings.batch

    def train_step(self, batches: Iterable[Batch]) -> StepDone:
        """One update from the batches of a step. Raises HandrailError where loss or gradients aren't finite; then the
        weights are as before."""
        began_s = time.perf_counter()
        self._set_rates()
        self.optimizer.zero_grad(set_to_none=True)
        loss, tokens = 0.0, 0
        for batch in batches:
            batch = moved(batch, self.engine.device)
            nll = answer_nll(self.engine.forward(self.model, batch), batch.labels)
            share = nll.sum() / self.settings.batch
            self.engine.backward(share)
            loss += float(share.detach())
            tokens += int(batch.valid.sum())
        norm = float(nn.utils.clip_grad_norm_(self.trained.values(), self.settings.clip_norm))
        if not (math.isfinite(loss) and math.isfinite(norm)):
            raise HandrailError(
                f"step {self.step + 1}: expected a finite loss and gradient, got {loss:g} and {norm:g}; nothing of "
                "this step was kept: start again in another folder with a lower --lr-lora and --lr-fusion"
            )
        self.optimizer.step()
        self.step += 1
        lr = self.optimizer.param_groups[1]["lr"]
        return StepDone(self.step, loss, lr, norm, tokens, time.perf_counter() - began_s)

    def _set_rates(self) -> None:
        share = cosine(self.step, self.settings.steps)
        rates = (self.settings.lr_lora, self.settings.lr_fusion)
        for group, lr in zip(self.optimizer.param_groups, rates, strict=True):
            group["lr"] = lr * share
        joint = self.step >= self.settings.frozen_steps
        for parameter in self.lora.values():
            parameter.requires_grad_(joint)


def step_batches(settings: Settings, feed: Feed, step: int) -> list[Batch]:
    """The batches of the step that comes after ``step`` steps."""
    turns = places(len(feed), step * settings.batch, settings.batch, settings.seed)
    return [feed(turns[at : at + settings.at_once]) for at in range(0, len(turns), settings.at_once)]


def moved(batch: Batch, device: torch.device) -> Batch:
    """The same on another device; nothing is copied where it is there already."""

    def all_of(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {name: t.to(device) for name, t in tensors.items()}

    return Batch(
        batch.ids.to(device), batch.valid.to(device), batch.labels.to(device), batch.question.to(device),
        batch.question_valid.to(device), None if batch.pixels is None else batch.pixels.to(device),
        all_of(batch.values), all_of(batch.streams_valid),
    )  # fmt: skip
