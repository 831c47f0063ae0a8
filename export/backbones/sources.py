"""A backbone by the name people give it: a model of ``handrail models``, a folder, a hub id, ``tiny:FAMILY`` or
``random:SIZE``."""

from __future__ import annotations

import torch

from handrail.export.backbones.base import Backbone
from handrail.export.weights import registry as models
from handrail.streams.errors import ConfigError

TINY = "tiny:"  # a random backbone of a family, to try data and options with
RANDOM = "random:"  # one as large as a published one, for times and memory


def backbone_from(
    name: str, *, seed: int = 0, revision: str | None = None, side: int | None = None,
    dtype: torch.dtype = torch.float32,
) -> Backbone:
    """Raises ConfigError, SourceError, or ModelError for one that isn't fetched or isn't whole."""
    if name.startswith(TINY):
        from handrail.export.backbones import tiny
        from handrail.export.backbones.families import FAMILIES

        family = name.removeprefix(TINY)
        if family not in FAMILIES:
            raise ConfigError(f"--backbone {name}: expected one of {', '.join(TINY + f for f in FAMILIES)}")
        return tiny.build(family, seed)
    if name.startswith(RANDOM):
        from handrail.export.backbones.sized import SIZES, build_sized

        size = name.removeprefix(RANDOM)
        if size not in SIZES:
            raise ConfigError(f"--backbone {name}: expected one of {', '.join(RANDOM + s for s in SIZES)}")
        return build_sized(size, seed)
    from handrail.export.backbones.opening import open_backbone

    source = str(models.ready(name)) if name in models.registry() else name
    return open_backbone(source, revision=revision, side=side, dtype=dtype)
