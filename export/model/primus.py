"""The PRIMUS IMU encoder, frozen: Das et al. 2025, "PRIMUS: Pretraining IMU Encoders with Multimodal Self-Supervision".

A window of five seconds at 50 Hz [6, 250] (accelerometer xyz, gyroscope xyz, raw) -> 512 numbers. The layers are those
of the published checkpoint, under its names, so that its weights fit: no bias in the convolutions, nothing between them
but pooling, and a GRU that reads the 32 channels as 32 steps. 1,376,204 parameters with both heads.
Knows neither where windows come from nor what becomes of the numbers.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from handrail.runtime.grid.imu import AXES, LENGTH
from handrail.streams.errors import InputError

PARAMETERS = 1_376_204
CHANNELS, ENCODED = 32, 512
FIRST = "backbone.0.weight"  # the name that tells a checkpoint's prefix


class _Block(nn.Module):
    def __init__(self, channels: int, kernel: int, pool: nn.Module) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Conv1d(channels, CHANNELS, kernel, dilation=2, bias=False), pool)

    def forward(self, x: Tensor) -> Tensor:
        pooled: Tensor = self.net(x)
        return pooled


class Primus(nn.Module):
    """Of the two heads (``ssl`` self-supervised, ``mmcl`` against text and video) the second is the one to build on."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone = nn.Sequential(
            nn.GroupNorm(2, 6),  # accelerometer and gyroscope each by their own scale
            _Block(6, 10, nn.MaxPool1d(3)),
            _Block(CHANNELS, 5, nn.MaxPool1d(3)),
            _Block(CHANNELS, 5, nn.AdaptiveAvgPool1d(CHANNELS)),
            nn.GroupNorm(4, CHANNELS),
            nn.GRU(CHANNELS, ENCODED, batch_first=True),
        )
        self.ssl_head = nn.Linear(ENCODED, ENCODED)
        self.mmcl_head = nn.Linear(ENCODED, ENCODED)

    def forward(self, windows: Tensor) -> Tensor:
        """[W, 6, 250] -> [W, 512]."""
        _, last = self.backbone(windows)  # [1, W, 512]
        encoded: Tensor = self.mmcl_head(last[0])
        return encoded


def encode(primus: Primus, windows: NDArray[np.float32]) -> NDArray[np.float32]:
    """[W, 6, 250] -> [W, 512]: what ``runtime.grid.grids`` asks for. Raises ValueError for windows of another shape."""
    if windows.shape[1:] != (AXES, LENGTH):
        raise ValueError(f"PRIMUS: expected windows [W, {AXES}, {LENGTH}], got {list(windows.shape)}")
    with torch.inference_mode():
        encoded: NDArray[np.float32] = primus(torch.from_numpy(np.ascontiguousarray(windows, np.float32))).numpy()
    return encoded


def load_primus(path: Path) -> Primus:
    """The encoder out of a checkpoint (Lightning's, with other parts beside it, or a bare state dict), frozen.

    Only tensors are read: a checkpoint that would run code is refused. Raises InputError in one line.
    """
    table = _tensors(path)
    primus = Primus()
    expected = primus.state_dict()
    prefixes = [key.removesuffix(FIRST) for key in table if key.endswith(FIRST)]
    wrong = [f"a tensor named ...{FIRST}, found none"]
    for prefix in sorted(prefixes):
        mine = {key.removeprefix(prefix): value for key, value in table.items() if key.startswith(prefix)}
        wrong = list(_misfits(mine, expected))
        if not wrong:
            primus.load_state_dict(mine)
            assert sum(p.numel() for p in primus.parameters()) == PARAMETERS  # the shapes say so
            return primus.eval().requires_grad_(False)
    raise InputError(f"{path}: not a PRIMUS checkpoint ({PARAMETERS:,} parameters): expected {wrong[0]}")


def _misfits(found: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> list[str]:
    """What was expected and is not so: names, then shapes, then numbers that are numbers."""
    missing = [f"a tensor {name}, found none" for name in expected if name not in found]
    extra = [f"no tensor {name}, found one" for name in sorted(set(found) - set(expected))]
    if missing or extra:
        return missing + extra
    wrong = []
    for name, like in expected.items():
        got = found[name]
        if got.shape != like.shape:
            wrong.append(f"{name} {list(like.shape)}, got {list(got.shape)}")
        elif not (got.is_floating_point() and bool(torch.isfinite(got).all())):
            wrong.append(f"{name} of finite numbers")
    return wrong


def _tensors(path: Path) -> dict[str, Tensor]:
    """Every named tensor of the file. Raises InputError."""
    try:
        with warnings.catch_warnings():  # torch warns of what it then refuses, or reads all the same
            warnings.simplefilter("ignore")
            loaded: Any = torch.load(path, map_location="cpu", weights_only=True)
    except OSError as e:
        raise InputError(f"{path}: can't be read ({e.strerror or e}); give the PRIMUS checkpoint") from e
    except Exception as e:  # what damage makes of torch's readers comes in a dozen types
        reason = (str(e).splitlines() or [type(e).__name__])[0][:120]
        raise InputError(f"{path}: expected a PyTorch checkpoint of tensors alone ({reason})") from e
    table = loaded.get("state_dict", loaded) if isinstance(loaded, dict) else None
    if not isinstance(table, dict):
        raise InputError(f"{path}: expected a table of tensors, got {type(loaded).__name__}")
    return {key: value for key, value in table.items() if isinstance(key, str) and isinstance(value, Tensor)}
