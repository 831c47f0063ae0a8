"""A backbone by the name people give it: a model of ``handrail models``, a folder, a hub id, or ``tiny:FAMILY``."""

from __future__ import annotations

import torch

from handrail.export.backbones.base import Backbone
from handrail.export.weights import registry as models
from handrail.streams.errors import ConfigError

TINY = "tiny:"  # a random backbone of a family, to try data and options with


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
    from handrail.export.backbones.opening import open_backbone

    source = str(models.ready(name)) if name in models.registry() else name
    return open_backbone(source, revision=revision, side=side, dtype=dtype)
