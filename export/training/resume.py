"""Between a training that runs and a checkpoint: what is stored, what must be the same, and how it goes on.

Going on (``go_on``) puts weights, optimiser, random generators and position back: what follows is what would have
followed. Stage 2 starts (``start_from``) with the weights of stage 1 and all else new. Knows no folders' layout.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch
from torch import Tensor, nn

from handrail.export.backbones.base import Backbone
from handrail.export.training.checkpoint import (
    FORMAT,
    BackboneId,
    Checkpoint,
    Header,
    Tensors,
    same_or_refuse,
    tensors_or_refuse,
)
from handrail.export.training.data import Example
from handrail.export.training.trainer import Trainer
from handrail.runtime.grid import STREAMS, Statistics
from handrail.streams.errors import CheckpointError

_CLOSE = 1e-4  # relative to the spread: statistics of the same data, computed by another release of numpy
_VOLATILE = ("_name_or_path", "transformers_version", "dtype", "torch_dtype", "_attn_implementation")


@dataclass(frozen=True, slots=True)
class Identity:
    """What a checkpoint belongs to, beside the settings."""

    backbone: BackboneId
    data_sha256: str
    imu_encoder_sha256: str | None
    statistics: Statistics


def backbone_id(backbone: Backbone, source: str, revision: str | None) -> BackboneId:
    """``source`` and ``revision`` as it was opened: a hub id or a folder."""
    side = backbone.side
    decided = [_settled(backbone.config.to_dict()), msgspec.to_builtins(side.image), msgspec.to_builtins(side.tokens)]
    text = msgspec.json.encode([*decided, side.template], order="sorted", enc_hook=str)
    config = hashlib.sha256(text).hexdigest()
    return BackboneId(backbone.family, source, revision, side.image.height, config, weights_hash(backbone.model))


@torch.no_grad()
def weights_hash(model: nn.Module) -> str:
    """Of all weights but those of adapters, as bfloat16, by name; the same before and after adapters are put in."""
    digest = hashlib.sha256()
    for name, weight in sorted(model.named_parameters()):
        if "lora_" not in name:
            plain = name.replace(".base_layer.", ".")
            digest.update(plain.encode())
            digest.update(weight.to("cpu", torch.bfloat16).contiguous().view(torch.int16).numpy().data)
    return digest.hexdigest()


def _settled(config: Any) -> Any:
    """A configuration without what may differ from one loading to the next; keys as texts."""
    match config:
        case dict():
            return {str(k): _settled(v) for k, v in config.items() if k not in _VOLATILE}
        case list() | tuple():
            return [_settled(v) for v in config]
        case _:
            return config


def data_hash(examples: Iterable[Example]) -> str:
    """Of all that a training split decides, in order; not of where its files lie."""
    digest = hashlib.sha256()
    for e in examples:
        name = e.uri if e.uri.startswith("world:") else Path(e.uri).name
        digest.update(repr((e.clip, e.form, e.text, e.references, name, e.start_s, e.end_s)).encode())
    return digest.hexdigest()


def taken(trainer: Trainer, identity: Identity) -> Checkpoint:
    """All there is to know of a training between two steps."""
    tensors, generators = _generators()
    header = Header(
        format=FORMAT, stage=trainer.settings.stage, step=trainer.step, examples_seen=trainer.examples_seen,
        backbone=identity.backbone, settings=msgspec.to_builtins(trainer.settings), data_sha256=identity.data_sha256,
        imu_encoder_sha256=identity.imu_encoder_sha256, generators=generators,
    )  # fmt: skip
    weights = {name: _stored(p) for name, p in trainer.trained.items()}
    return Checkpoint(header, weights, _moments(trainer), tensors, identity.statistics.to_json())


def go_on(trainer: Trainer, checkpoint: Checkpoint, identity: Identity, where: Path) -> None:
    """Make the trainer what it was. Raises CheckpointError when the checkpoint is of another training."""
    header = checkpoint.header
    same_or_refuse(where, "stage", trainer.settings.stage, header.stage)
    _same_ground(checkpoint, identity, where)
    same_or_refuse(where, "training split", identity.data_sha256[:12], header.data_sha256[:12])
    settings = msgspec.to_builtins(trainer.settings)
    for name in sorted({*settings, *header.settings}):
        same_or_refuse(
            where, f"settings: {name}", settings.get(name, "none"), header.settings.get(name, "none"),
            "give the options it was begun with, or another --out",
        )  # fmt: skip
    same_or_refuse(where, "position in the data", header.step * trainer.settings.batch, header.examples_seen)
    tensors_or_refuse(where, trainer.trained, checkpoint.weights)
    with torch.no_grad():
        for name, parameter in trainer.trained.items():
            parameter.copy_(checkpoint.weights[name])
    _put_moments(trainer, checkpoint.optimizer, where)
    trainer.step = header.step
    _put_generators(checkpoint.random, header.generators, where)


def start_from(trainer: Trainer, checkpoint: Checkpoint, identity: Identity, where: Path) -> None:
    """Stage 2 from stage 1: its adapters and all of its fusion network; the readouts stay as they are, new.

    Raises CheckpointError when the checkpoint is no stage 1 of this backbone and these statistics.
    """
    same_or_refuse(where, "stage to start from", 1, checkpoint.header.stage)
    _same_ground(checkpoint, identity, where)
    for name in ("lora_r", "lora_alpha"):
        found = checkpoint.header.settings.get(name, "none")
        same_or_refuse(where, f"settings: {name}", getattr(trainer.settings, name), found)
    old = {n: p for n, p in trainer.trained.items() if not n.startswith("fusion.readout.")}
    tensors_or_refuse(where, old, checkpoint.weights)
    with torch.no_grad():
        for name, parameter in old.items():
            parameter.copy_(checkpoint.weights[name])


def _same_ground(checkpoint: Checkpoint, identity: Identity, where: Path) -> None:
    """Backbone, IMU encoder and statistics: what the weights mean anything with."""
    header = checkpoint.header
    expected, found = identity.backbone, header.backbone
    alike = [
        (b.family, b.source.rstrip("/").split("/")[-1], b.revision, b.config_sha256, b.weights_sha256)
        for b in (expected, found)
    ]
    if alike[0] != alike[1]:
        same_or_refuse(where, "backbone", expected, found)
    same_or_refuse(where, "IMU encoder", identity.imu_encoder_sha256 or "none", header.imu_encoder_sha256 or "none")
    stored = Statistics.from_json(checkpoint.statistics)
    for stream in STREAMS:
        spread = stored.std[stream]
        for name in ("mean", "std"):
            ours, theirs = getattr(identity.statistics, name)[stream], getattr(stored, name)[stream]
            off = np.abs(ours - theirs) / (spread + np.abs(theirs))
            if not (off < _CLOSE).all():
                at = int(np.argmax(off))
                same_or_refuse(
                    where, f"statistics: {name} of {stream}[{at}]", float(ours[at]), float(theirs[at]),
                    "train with the clips that it was trained with",
                )  # fmt: skip


# ---- optimiser -------------------------------------------------------------------------------------------------------


def _moments(trainer: Trainer) -> Tensors:
    """AdamW's state by parameter name; what was never updated has none."""
    state = trainer.optimizer.state
    return {
        f"{name}/{what}": _stored(value)
        for name, p in trainer.trained.items() if p in state
        for what, value in state[p].items()
    }  # fmt: skip


def _put_moments(trainer: Trainer, stored: Tensors, where: Path) -> None:
    by_name: dict[str, dict[str, Tensor]] = {}
    for key, value in stored.items():
        name, _, what = key.rpartition("/")
        by_name.setdefault(name, {})[what] = value
    for name, moments in by_name.items():
        if name not in trainer.trained:
            raise CheckpointError(f"{where}: optimiser: expected one of the trained weights, found {name}")
        p = trainer.trained[name]
        shapes = {what: tuple(v.shape) for what, v in moments.items()}
        same_or_refuse(
            where, f"optimiser: {name}",
            {"exp_avg": tuple(p.shape), "exp_avg_sq": tuple(p.shape), "step": ()}, dict(sorted(shapes.items())),
        )  # fmt: skip
        trainer.optimizer.state[p] = {what: value.to(p.device, copy=True) for what, value in moments.items()}


def _stored(value: Tensor) -> Tensor:
    return value.detach().to("cpu", copy=True).contiguous()


# ---- random generators -----------------------------------------------------------------------------------------------


def seed_generators(seed: int) -> None:
    """All of those whose states a checkpoint keeps."""
    torch.manual_seed(seed)
    np.random.seed(seed)
    random.seed(seed)


def _generators() -> tuple[Tensors, dict[str, Any]]:
    """Tensors and plain values that hold the states of all random generators."""
    tensors = {"torch": torch.get_rng_state()}
    if torch.cuda.is_available():
        tensors |= {f"cuda:{i}": state for i, state in enumerate(torch.cuda.get_rng_state_all())}
    _, keys, position, has_gauss, gauss = np.random.get_state(legacy=True)
    version, words, next_gauss = random.getstate()
    tensors |= {
        "numpy": torch.from_numpy(np.asarray(keys, dtype=np.int64)),
        "python": torch.tensor(words, dtype=torch.int64),
    }
    plain = {"numpy": [int(position), int(has_gauss), float(gauss)], "python": [version, next_gauss]}
    return tensors, plain


def _put_generators(tensors: Tensors, plain: dict[str, Any], where: Path) -> None:
    try:
        position, has_gauss, gauss = plain["numpy"]
        version, next_gauss = plain["python"]
        keys = tensors["numpy"].numpy().astype(np.uint32)
        np.random.set_state(("MT19937", keys, position, has_gauss, gauss))
        random.setstate((version, tuple(tensors["python"].tolist()), next_gauss))
        torch.set_rng_state(tensors["torch"])
        if torch.cuda.is_available():
            cuda = [tensors[f"cuda:{i}"] for i in range(torch.cuda.device_count()) if f"cuda:{i}" in tensors]
            torch.cuda.set_rng_state_all(cuda)
    except (KeyError, ValueError, TypeError, RuntimeError) as e:
        raise CheckpointError(f"{where}: random generators: expected those of torch, numpy and Python ({e})") from e
