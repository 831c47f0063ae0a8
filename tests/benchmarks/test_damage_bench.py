"""Damaged recordings through the whole path: a clear refusal, a spoken fault, or damage where nobody looks."""

import pytest

from handrail.benchmarks.damage import Job, damaged, recordings, run_damage

pytest.importorskip("projectaria_tools", reason="needs projectaria_tools")
pytestmark = pytest.mark.skipif(not recordings(), reason="the real recordings are not beside the repository")


def test_damaged_copies_are_refused_or_told_aloud_or_whole() -> None:
    result = run_damage(16, seed=7)
    assert not result.failures
    assert result.counts["refused"] + result.counts["faulted"] >= 4


def test_the_same_seed_damages_alike_and_another_differently() -> None:
    job = Job(recordings()[0], 1, seed=3)
    assert damaged(job) == damaged(job)
    assert damaged(job)[1] != job.original.read_bytes()
    assert damaged(job) != damaged(Job(recordings()[0], 1, seed=4))
