"""Ratios of interleaved runs, with intervals: round by round, so that what slows the whole machine slows both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

DRAWS = 10_000
Rounds = Sequence[dict[str, float]]


def median(rounds: Rounds, figure: str) -> float:
    return float(np.median([r[figure] for r in rounds]))


def ratio(ours: Rounds, theirs: Rounds, figure: str) -> dict[str, float]:
    """How many times as fast ours is: the mean over rounds, and its 95 % interval (bootstrap)."""
    mine, other = (np.array([r[figure] for r in rounds]) for rounds in (ours, theirs))
    each = mine / other if figure.endswith("_s") else other / mine
    drawn = np.random.default_rng(0).choice(each, (DRAWS, len(each))).mean(axis=1)
    low, high = np.percentile(drawn, (2.5, 97.5))
    return {"ratio": round(float(each.mean()), 3), "low": round(float(low), 3), "high": round(float(high), 3)}


def best(peers: dict[str, Rounds], figure: str) -> str:
    """The fastest by its median."""
    more_is_better = figure.endswith("_s")
    return (max if more_is_better else min)(peers, key=lambda name: median(peers[name], figure))


def beside_the_best(ours: Rounds, peers: dict[str, Rounds]) -> dict[str, Any]:
    """For decoding and for reading a prompt: which peer is the fastest, and how we stand to it."""
    found = {}
    for name, figure in (("decode", "decode_tok_s"), ("prefill", "prefill_ms")):
        peer = best(peers, figure)
        found[name] = {"peer": peer, **ratio(ours, peers[peer], figure)}
    return found
