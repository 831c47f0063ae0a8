"""What the training bench feeds and reads."""

from pathlib import Path

from handrail.benchmarks.train import CLIPS, write_data
from handrail.export.training.data import read_examples


def test_its_clips_are_a_data_set_that_is_not_told_apart_by_the_words_alone(tmp_path: Path) -> None:
    write_data(tmp_path / "clips.jsonl")
    examples = list(read_examples(tmp_path / "clips.jsonl"))
    assert len(examples) == len(CLIPS)
    assert len({e.text for e in examples}) < len({e.references for e in examples}) == len(CLIPS)
