"""A checkpoint of a training put back together: backbone, adapters, fusion network, IMU encoder, statistics.

Everything is checked against what the checkpoint says it was trained with, before a graph is made of it.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import torch

from handrail.export.backbones.sources import backbone_from
from handrail.export.bundles.bundling import Parts
from handrail.export.model.fused import FusedModel
from handrail.export.model.fusion import Fusion
from handrail.export.model.primus import Primus, load_primus
from handrail.export.training.checkpoint import (
    Header,
    newest_checkpoint,
    read_checkpoint,
    same_or_refuse,
    tensors_or_refuse,
)
from handrail.export.training.resume import backbone_id
from handrail.export.weights.registry import registry
from handrail.runtime.bundle import Source
from handrail.runtime.grid import STREAMS, Statistics
from handrail.streams.errors import CheckpointError, InputError, SourceError


def load_trained(folder: Path, imu_encoder: Path | None, *, backbone: str | None = None) -> Parts:
    """``backbone``: where it lies now, if not where it lay in training. Raises CheckpointError for one that the
    checkpoint wasn't trained with, and what opening it raises."""
    where = newest_checkpoint(folder)
    checkpoint = read_checkpoint(where)
    header = checkpoint.header
    name = backbone or header.backbone.source
    opened = backbone_from(
        name, seed=int(header.settings.get("seed", 0)), revision=header.backbone.revision, side=header.backbone.side
    )
    found = backbone_id(opened, name, header.backbone.revision)
    same_or_refuse(where, "family of the backbone", header.backbone.family, found.family)
    same_or_refuse(where, "configuration of the backbone", header.backbone.config_sha256[:12], found.config_sha256[:12])
    same_or_refuse(where, "weights of the backbone", header.backbone.weights_sha256[:12], found.weights_sha256[:12])
    opened.lora(int(header.settings["lora_r"]), int(header.settings["lora_alpha"]))
    model = FusedModel(opened, Fusion(opened.d_model, header.stage)).eval()
    trained = {**model.adapters(), **model.sensor_side()}
    tensors_or_refuse(where, trained, checkpoint.weights)
    with torch.no_grad():
        for key, parameter in trained.items():
            parameter.copy_(checkpoint.weights[key])
    try:
        statistics = Statistics.from_json(checkpoint.statistics)
    except InputError as e:
        raise CheckpointError(f"{where}: statistics that don't fit the streams: {e}") from e
    return Parts(
        model, _primus(imu_encoder, header, where), statistics, Source(name=found.source, revision=found.revision),
        registry()[name].licence if name in registry() else "as its source says", _provenance(where, header),
    )  # fmt: skip


def untrained(name: str, stage: int = 2) -> Parts:
    """A backbone with random adapters and sensors, to try graphs and devices with: ``tiny:FAMILY``."""
    opened = backbone_from(name)
    torch.manual_seed(stage)
    model = FusedModel(opened, Fusion(opened.d_model, stage)).eval()
    zero = {stream: [0.0] * width for stream, width in STREAMS.items()}
    one = {stream: [1.0] * width for stream, width in STREAMS.items()}
    return Parts(
        model, Primus().eval(), Statistics.from_json({"mean": zero, "std": one}), Source(name=name),
        "none: random weights", ("random weights, not trained: says nothing that means anything",),
    )  # fmt: skip


def _primus(path: Path | None, header: Header, where: Path) -> Primus | None:
    """The one it was trained with; none where it was trained without the IMU stream."""
    sha256 = None
    if path is not None:
        try:
            with path.open("rb") as file:
                sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as e:
            raise SourceError(f"--imu-encoder {path}: can't be read ({e.strerror})") from e
    same_or_refuse(where, "--imu-encoder", header.imu_encoder_sha256 or "none", sha256 or "none")
    return None if path is None else load_primus(path)


def _provenance(where: Path, header: Header) -> tuple[str, ...]:
    return (
        f"backbone: {header.backbone}",
        f"checkpoint {where.name}: stage {header.stage}, {header.step} steps, {header.examples_seen} examples seen",
        f"training split SHA-256 {header.data_sha256}",
        f"IMU encoder SHA-256 {header.imu_encoder_sha256 or 'none: trained without the IMU stream'}",
    )
