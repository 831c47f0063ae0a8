"""A whole training: data checked, backbone opened, clips cut, statistics taken, then every step (``loop``).

What can go wrong cheaply comes first: options, data and checkpoints are looked at before anything is decoded.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import itertools
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import torch

from handrail.export.backbones.base import Backbone
from handrail.export.backbones.sources import TINY, backbone_from
from handrail.export.model.fused import FusedModel
from handrail.export.model.fusion import Fusion
from handrail.export.model.primus import encode, load_primus
from handrail.export.training.array_cache import LIMIT_BYTES, ArrayCache
from handrail.export.training.batches import Batches
from handrail.export.training.checkpoint import (
    Checkpoint,
    checkpoints,
    newest_checkpoint,
    read_checkpoint,
    remove_leftovers,
)
from handrail.export.training.curve import StepDone
from handrail.export.training.data import Example, check, read_examples
from handrail.export.training.loop import KEEP, SAVE_EVERY, Outcome, train
from handrail.export.training.material import ImuEncoder, Material, kept_duration
from handrail.export.training.resume import Identity, backbone_id, data_hash, go_on, seed_generators, start_from
from handrail.export.training.statistics import Moments
from handrail.export.training.trainer import AcceleratedEngine, Engine, PlainEngine, Settings, Trainer
from handrail.runtime.grid import Statistics
from handrail.streams.cache import cache_folder
from handrail.streams.errors import ConfigError, DataError, OutputError

PROBLEMS = 20  # bad lines told of


@dataclass(frozen=True, slots=True)
class Job:
    backbone: str  # a model of `handrail models`, a folder, a hub id, or tiny:FAMILY
    data: Path
    out: Path
    settings: Settings
    revision: str | None = None  # of the hub id
    side_px: int | None = None  # of frames, where the backbone leaves it open
    imu_encoder: Path | None = None  # PRIMUS weights
    start: Path | None = None  # stage 2: a checkpoint of stage 1, or a folder of them
    resume: Path | None = None  # a checkpoint of this training, or a folder of them
    device: Literal["cpu", "cuda"] = "cpu"
    cache: Path | None = None  # of clips; None: the user's cache folder
    cache_bytes: int = LIMIT_BYTES
    save_every: int = SAVE_EVERY
    keep: int = KEEP


@dataclass(frozen=True, slots=True)
class Hooks:
    """What a caller wants to see of it. ``on_problem``: a bad line of the data."""

    on_problem: Callable[[str], None] = lambda line: None
    on_note: Callable[[str], None] = lambda line: None
    on_progress: Callable[[str, int, int | None], None] = lambda doing, done, of: None  # None: not known yet
    on_step: Callable[[StepDone], None] = lambda done: None


@dataclass(frozen=True, slots=True)
class Fitted:
    outcome: Outcome
    examples: int
    trained_parameters: int
    identity: Identity


def fit(job: Job, hooks: Hooks) -> Fitted:
    """Raises HandrailError of every kind; see ``loop.train``."""
    _check_job(job)
    with _alone(job.out):
        remove_leftovers(job.out)
        return _fit(job, hooks)


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Two trainings in one folder would clear away each other's half-written checkpoints."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / ".lock").open("w")
    except OSError as e:
        raise OutputError(f"{folder}: can't be written ({e.strerror}); choose another folder with --out") from e
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as e:
            raise ConfigError(f"--out {folder}: another training runs there; choose another folder") from e
        yield


def _fit(job: Job, hooks: Hooks) -> Fitted:
    before = _read(job.resume or job.start)
    cache = ArrayCache(job.cache or cache_folder("clips"), job.cache_bytes)
    examples = training_split(job.data, cache, hooks)
    seed_generators(job.settings.seed)
    dtype = torch.bfloat16 if job.settings.precision == "bfloat16" else torch.float32
    backbone = backbone_from(
        job.backbone, seed=job.settings.seed, revision=job.revision, side=job.side_px, dtype=dtype
    )
    encoder = _imu_encoder(job.imu_encoder, hooks)
    material = Material(cache, backbone.side.image, encoder, job.settings.mode, job.settings.window_s)
    identity = Identity(
        backbone_id(backbone, job.backbone, job.revision), data_hash(examples),
        None if encoder is None else encoder.sha256, statistics_of(examples, material, hooks),
    )  # fmt: skip
    trainer = new_trainer(backbone, job.settings, PlainEngine() if job.device == "cpu" else AcceleratedEngine())
    if before is not None:
        where, checkpoint = before
        (go_on if job.resume is not None else start_from)(trainer, checkpoint, identity, where)
        if job.resume is not None:
            _forget_later(job.out, trainer.step, hooks)
        # Those it was trained with, to the last bit; what was computed anew has only shown that they fit.
        identity = replace(identity, statistics=Statistics.from_json(checkpoint.statistics))
    feed = Batches(examples, material, backbone, identity.statistics, job.settings)
    outcome = train(
        trainer, feed, identity, job.out, save_every=job.save_every, keep=job.keep, watch=hooks.on_step
    )
    return Fitted(outcome, len(examples), sum(p.numel() for p in trainer.trained.values()), identity)


def _forget_later(folder: Path, step: int, hooks: Hooks) -> None:
    """Checkpoints after the one that is gone on from belong to steps that are now taken anew."""
    for later in [path for at, path in checkpoints(folder) if at > step]:
        hooks.on_note(f"{later}: removed, since the training goes on from step {step}")
        shutil.rmtree(later)


def new_trainer(backbone: Backbone, settings: Settings, engine: Engine) -> Trainer:
    """Adapters and fusion network as torch's generator makes them."""
    backbone.lora(settings.lora_r, settings.lora_alpha)
    return Trainer(FusedModel(backbone, Fusion(backbone.d_model, settings.stage)), settings, engine)


def training_split(data: Path, cache: ArrayCache, hooks: Hooks) -> list[Example]:
    """All examples whose split is "train". Raises DataError when a line of any split is wrong, or none is left."""
    opened = itertools.count(1)

    def duration_of(uri: str) -> float | None:
        hooks.on_progress("checking recordings", next(opened), None)
        return kept_duration(cache, uri)

    if wrong := check(data, duration_of, PROBLEMS):
        for line in wrong:
            hooks.on_problem(line)
        least = "at least " if len(wrong) == PROBLEMS else ""
        many = f"{least}{len(wrong)} lines are" if len(wrong) > 1 else "a line is"
        raise DataError(f"{data}: {many} wrong, see above; nothing was trained")
    examples = [e for e in read_examples(data) if e.split == "train"]
    if not examples:
        raise DataError(f'{data}: expected examples whose split is "train", found none')
    return examples


def statistics_of(examples: Sequence[Example], material: Material, hooks: Hooks) -> Statistics:
    """Over the training split; every clip is cut on the way. A clip counts as often as it is asked about."""
    moments = Moments()
    for i, example in enumerate(examples, 1):
        moments.add(material.grids(example))
        hooks.on_progress("cutting clips", i, len(examples))
    return moments.statistics()


def _check_job(job: Job) -> None:
    if job.device == "cuda" and not torch.cuda.is_available():
        raise ConfigError("--device cuda: torch finds no CUDA device here; use --device cpu")
    if job.resume is None and job.settings.stage == 2 and job.start is None:
        raise ConfigError("--stage 2: starts from a checkpoint of stage 1; name it with --from")
    if job.start is not None and (job.settings.stage == 1 or job.resume is not None):
        raise ConfigError("--from: only a new stage 2 starts from another training's checkpoint")
    if job.settings.stage == 2 and job.settings.warmup >= job.settings.steps:
        raise ConfigError(
            f"--warmup {job.settings.warmup}: expected fewer than the {job.settings.steps} steps of --steps, or the "
            "adapters never learn"
        )
    if job.backbone.startswith(TINY) and (job.revision or job.side_px):
        raise ConfigError(f"--revision and --side: {job.backbone} has neither")
    if job.revision and Path(job.backbone).is_dir():
        raise ConfigError(f"--revision {job.revision}: of a hub id alone, and {job.backbone} is a folder")
    if job.resume is None and (there := [path for _, path in checkpoints(job.out)]):
        raise ConfigError(
            f"--out {job.out}: holds checkpoints ({there[-1].name}); add --resume, or choose another folder"
        )


def _read(path: Path | None) -> tuple[Path, Checkpoint] | None:
    if path is None:
        return None
    folder = newest_checkpoint(path)
    return folder, read_checkpoint(folder)


def _imu_encoder(path: Path | None, hooks: Hooks) -> ImuEncoder | None:
    if path is None:
        hooks.on_note("no --imu-encoder: trained without the IMU stream, as if no glasses had one")
        return None
    primus = load_primus(path).eval()
    with path.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    return ImuEncoder(lambda windows: encode(primus, windows), sha256)
