"""The engine bench's reckoning, and an engine in a process of its own; ``handrail bench engine`` runs the whole."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from handrail.benchmarks import engine
from handrail.benchmarks.engine_child import measure, perplexity
from handrail.benchmarks.engine_ratios import beside_the_best, median, ratio
from handrail.streams.errors import ConfigError, HandrailError

FAST = [{"decode_tok_s": 90.0 + i, "prefill_ms": 50.0 + i} for i in range(5)]
SLOW = [{"decode_tok_s": 60.0 + i, "prefill_ms": 40.0 + i} for i in range(5)]


def test_a_ratio_above_one_means_that_ours_is_faster_whichever_way_the_figure_points() -> None:
    decode, prefill = ratio(FAST, SLOW, "decode_tok_s"), ratio(FAST, SLOW, "prefill_ms")
    assert decode["low"] > 1.4 and decode["low"] <= decode["ratio"] <= decode["high"]
    assert prefill["high"] < 1.0
    assert ratio(FAST, FAST, "decode_tok_s") == {"ratio": 1.0, "low": 1.0, "high": 1.0}


def test_the_best_peer_is_found_for_each_figure() -> None:
    found = beside_the_best(FAST, {"slow": SLOW, "same": FAST})
    assert found["decode"]["peer"] == "same" and found["prefill"]["peer"] == "slow"
    assert median(SLOW, "prefill_ms") == 42.0


class EvenGuess:
    """An engine that finds all of eight tokens alike likely."""

    def __init__(self) -> None:
        self.begun, self.heard = 0, 0

    def begin(self) -> None:
        self.begun += 1

    def read(self, tokens: list[int]) -> Any:
        self.heard += len(tokens)
        return np.zeros(8, np.float32)


def test_a_measurement_reads_the_prompt_once_and_writes_as_many_tokens_as_asked() -> None:
    guess = EvenGuess()
    found = measure(guess, [1, 2, 3], 5)
    assert (guess.begun, guess.heard) == (1, 3 + 5)
    assert found["ttft_ms"] >= found["prefill_ms"] > 0 and found["decode_tok_s"] > 0


def test_perplexity_of_an_even_guess_is_the_number_of_tokens() -> None:
    assert perplexity(EvenGuess(), [1] * 1100)["ppl"] == pytest.approx(8.0)


def test_an_engine_that_is_not_there_is_an_error_of_one_line() -> None:
    job = {"engine": "handrail", "model": "gone", "threads": 1, "prompt": 1, "new": 1, "text": [1, 2]}
    with pytest.raises(HandrailError, match="gone"):
        engine.Child(sys.executable, job)


class Counted:
    """In place of an engine's process; "frail" dies at its second measurement."""

    started: list[str] = []  # noqa: RUF012 - of one test

    def __init__(self, python: str, job: dict[str, Any]) -> None:
        self.name = job["engine"]
        self.started.append(self.name)

    def ask(self, what: str, turn: int = 0) -> dict[str, float]:
        if self.name == "frail" and turn == 2:
            raise HandrailError("its process died")
        return {"decode_tok_s": 9.0, "prefill_ms": 9.0, "ttft_ms": 9.0, "peak_mib": 1.0, "ppl": 8.0}

    def close(self) -> None:
        pass


def test_every_round_starts_all_engines_in_another_order_and_one_that_dies_counts_for_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(engine, "Child", Counted)
    Counted.started.clear()
    group = engine.Group()
    for name in ("handrail", "frail", "other"):
        group.add(name, sys.executable, {"engine": name})
    group.measure(3, perplexities=True)
    assert Counted.started[:3] == ["frail", "other", "handrail"]
    assert Counted.started[3:6] == ["other", "handrail", "frail"] and len(Counted.started) == 3 + 3 + 2
    records = group.records(2, 8)
    assert [r["engine"] for r in records] == ["handrail", "other"] and group.lost == {"frail": "its process died"}
    assert records[0]["ratio_to_best_peer"]["decode"]["ratio"] == 1.0 and records[1]["ppl"] == 8.0
    assert [len(r["runs"]) for r in records] == [3, 3]


@pytest.mark.parametrize(
    ("option", "given"),
    [("--bits", "8,5"), ("--threads", "0"), ("--peer-python", "other=python3"), ("--peer-python", "/nowhere/python")],
)
def test_options_that_mean_nothing_are_refused(option: str, given: str) -> None:
    with pytest.raises(ConfigError):
        if option == "--peer-python":
            engine._pythons([given])
        else:
            engine._numbers(given, option)


def test_a_ratio_holds_where_its_interval_reaches_one() -> None:
    def record(high: float) -> dict[str, Any]:
        beside = {"decode": {"peer": "x", "ratio": 0.9, "low": 0.8, "high": high}}
        return {"bits": 8, "threads": 2, "ratio_to_best_peer": beside}

    assert [good for good, _ in engine._standing([record(1.01), record(0.99)])] == [True, False]
    assert engine._standing([{**record(1.1), "bits": 32}]) == []


def test_the_plot_shows_every_engine(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="plots need the bench extra")
    from handrail.benchmarks.engine_plot import draw

    rows = [{"engine": e, "bits": b, "threads": 2, "decode_tok_s": 9.0, "prefill_ms": 9.0}
            for e in ("handrail", "other") for b in (4, 8)]  # fmt: skip
    draw(rows, tmp_path / "plot.svg")
    assert "other" in (tmp_path / "plot.svg").read_text() or (tmp_path / "plot.svg").stat().st_size > 1000


def test_the_bench_says_what_it_takes() -> None:
    parser = argparse.ArgumentParser()
    engine.add_arguments(parser)
    args = parser.parse_args([])
    assert args.rounds == 5 and json.dumps(args.bits) == '"8,4,32"'
