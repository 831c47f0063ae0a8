"""Examples as batches of the fused model: prompt and answer as token ids, frames as pixels, sensors on their grids.

Which of an example's references is the answer, and which streams are dropped, is drawn from the example's place in the
shuffled data. Knows neither losses nor files.

B examples, S tokens of prompt and answer, Q of the question.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from handrail.export.backbones.base import Backbone
from handrail.export.model.fused import Batch
from handrail.export.model.fusion import TOKENS_OUT
from handrail.export.training.clip import FRAMES, Clip
from handrail.export.training.data import Example
from handrail.export.training.trainer import IGNORED, Place, Settings
from handrail.runtime.grid import STREAMS, Grid, Statistics
from handrail.runtime.preprocess import pixels

REFERENCE, DROP = 0, 1  # purposes of a place's random generators


class Supply(Protocol):
    """Where frames and grids come from: ``material.Material``."""

    def clip(self, example: Example) -> Clip: ...
    def grids(self, example: Example) -> dict[str, Grid]: ...


@dataclass(frozen=True, slots=True)
class _Row:
    """One example of a batch."""

    prompt: list[int]
    answer: list[int]
    question: list[int]
    pixels: NDArray[np.float32]  # [8, ...]
    grids: dict[str, Grid]  # normalised
    dropped: frozenset[str]


class Batches:
    """A ``training.Feed`` over a training split."""

    def __init__(
        self, examples: Sequence[Example], supply: Supply, backbone: Backbone, statistics: Statistics,
        settings: Settings,
    ) -> None:  # fmt: skip
        self._examples, self._supply, self._backbone = examples, supply, backbone
        self._statistics, self._settings = statistics, settings

    def __len__(self) -> int:
        return len(self._examples)

    def __call__(self, places: Sequence[Place]) -> Batch:
        """Raises what its supply raises."""
        return collated([self._row(place) for place in places])

    def _row(self, place: Place) -> _Row:
        example = self._examples[place.index]
        reference = example.references[place.random(REFERENCE).integers(len(example.references))]
        clip = self._supply.clip(example)
        return _Row(
            prompt=self._backbone.prompt(example.question, FRAMES, TOKENS_OUT[self._settings.stage]),
            answer=answer_ids(self._backbone, reference),
            question=self._backbone.prompter.encode(example.question),
            pixels=pixels(clip.frames, self._backbone.side.image),
            grids=self._statistics.apply(self._supply.grids(example)),
            dropped=dropped(place, self._settings.drop),
        )


def answer_ids(backbone: Backbone, text: str) -> list[int]:
    """An answer's tokens and the one that ends it. A text can't hold places of frames or sensors, nor end early."""
    tokens = backbone.side.tokens
    marks = {tokens.image, tokens.sensor, *tokens.end}
    return [i for i in backbone.prompter.encode(text) if i not in marks] + [tokens.end[-1]]


def dropped(place: Place, probability: float) -> frozenset[str]:
    """Which streams this turn goes without, each by itself (seed 000: 0.15)."""
    draws = place.random(DROP).random(len(STREAMS))
    return frozenset(stream for stream, draw in zip(STREAMS, draws, strict=True) if draw < probability)


def collated(rows: Sequence[_Row]) -> Batch:
    """Padded on the right; a dropped stream has no valid bin."""
    ids, valid = _padded([row.prompt + row.answer for row in rows])
    question, question_valid = _padded([row.question for row in rows])
    labels = torch.full_like(ids, IGNORED)
    for b, row in enumerate(rows):
        answer = slice(len(row.prompt), len(row.prompt) + len(row.answer))
        labels[b, answer] = ids[b, answer]
    grids = {s: [row.grids[s] for row in rows] for s in STREAMS}
    kept = {s: torch.tensor([s not in row.dropped for row in rows])[:, None] for s in STREAMS}
    return Batch(
        ids=ids, valid=valid, labels=labels, question=question, question_valid=question_valid,
        pixels=_stacked([row.pixels for row in rows]).flatten(0, 1),
        values={s: _stacked([g.values for g in of_it]) for s, of_it in grids.items()},
        streams_valid={s: _stacked([g.valid for g in of_it]) & kept[s] for s, of_it in grids.items()},
    )  # fmt: skip


def _padded(sequences: Sequence[list[int]]) -> tuple[Tensor, Tensor]:
    """Ids [B, S], 0 beyond each one's end, and which of them are there."""
    longest = max(map(len, sequences))
    ids = torch.tensor([s + [0] * (longest - len(s)) for s in sequences], dtype=torch.long)
    return ids, torch.arange(longest)[None] < torch.tensor([len(s) for s in sequences])[:, None]


def _stacked(arrays: Sequence[NDArray[Any]]) -> Tensor:
    return torch.from_numpy(np.stack(arrays))
