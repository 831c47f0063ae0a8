"""A data set is read line by line, strictly: what is wrong is said in one line with file and line number."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handrail.export.training import data
from handrail.export.training.data import Example, check, read_examples, scan
from handrail.streams.errors import DataError, SourceError

GOOD: dict[str, Any] = {
    "clip": "kitchen-017", "category": "TC01", "form": "question", "text": "How could I get a fork?",
    "references": ["The dispenser is straight ahead."], "recording": "world:7?seconds=12", "time_s": [0.0, 10.0],
    "split": "train",
}  # fmt: skip


def written(folder: Path, *lines: Any, name: str = "data.jsonl") -> Path:
    """A file of these lines: objects as JSON, texts and bytes as they are."""
    path = folder / name
    texts = [x if isinstance(x, bytes) else (x if isinstance(x, str) else json.dumps(x)).encode() for x in lines]
    path.write_bytes(b"\n".join(texts) + b"\n")
    return path


def without(key: str) -> dict[str, Any]:
    return {k: v for k, v in GOOD.items() if k != key}


def ten_seconds(uri: str) -> float:
    return 10.0


def test_the_example_of_the_documentation_is_one(tmp_path: Path) -> None:
    shown = " ".join((data.__doc__ or "").split("\n\n")[1].split())
    (tmp_path / "clips").mkdir()
    (tmp_path / "clips" / "kitchen-017.vrs").touch()
    (found,) = read_examples(written(tmp_path, shown))
    assert (found.category, found.form, found.split, found.end_s) == ("TC01", "question", "train", 12.4)
    assert found.uri == f"vrs:{tmp_path / 'clips' / 'kitchen-017.vrs'}"


def test_a_moment_stands_for_all_that_came_before_it(tmp_path: Path) -> None:
    (found,) = read_examples(written(tmp_path, {**GOOD, "time_s": 7}))
    assert (found.start_s, found.end_s) == (0.0, 7.0)


def test_each_form_asks_in_its_own_way(tmp_path: Path) -> None:
    scene = {**without("text"), "form": "scene"}
    goal = {**GOOD, "form": "goal", "text": "Go down the {stairs}."}
    asked = [e.question for e in read_examples(written(tmp_path, scene, GOOD, goal))]
    assert asked[1] == GOOD["text"] and "Go down the {stairs}." in asked[2] and asked[0] == data.ASK["scene"]


def test_a_folder_is_all_its_files_by_name_and_empty_lines_are_passed_over(tmp_path: Path) -> None:
    written(tmp_path, {**GOOD, "clip": "second"}, "", name="b.jsonl")
    written(tmp_path, b"\xef\xbb\xbf" + json.dumps({**GOOD, "clip": "first"}).encode(), "  ", name="a.jsonl")
    written(tmp_path, "no JSON", name="notes.txt")
    assert [e.clip for e in read_examples(tmp_path)] == ["first", "second"]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ({**GOOD, "answr": 1}, "unknown key answr"),
        ({**GOOD, "textt": ""}, "unknown key textt; did you mean text?"),
        (without("split"), "split: expected train, validation or test, the key is missing"),
        ({**GOOD, "category": "TC11"}, 'category: expected one of TC01 to TC10, got "TC11"'),
        ({**GOOD, "references": "yes"}, 'references: expected a list of answers, none of them empty, got "yes"'),
        ({**GOOD, "references": ["  "]}, "references: expected a list of answers"),
        ({**GOOD, "references": []}, "references: expected at least one answer where split is train"),
        ({**GOOD, "text": " "}, "text: expected the question"),
        ({**GOOD, "form": "scene"}, "text: expected none where form is scene"),
        ({**GOOD, "time_s": [4, 4.000001]}, "time_s: expected a start from 0 and a later end"),
        ({**GOOD, "time_s": [4, 4]}, "time_s: expected a start from 0 and a later end"),
        ({**GOOD, "time_s": 0}, "time_s: expected a start from 0 and a later end"),
        ({**GOOD, "time_s": [1, 2, 3]}, "time_s: expected a number of seconds from 0, or [start, end]"),
        ({**GOOD, "time_s": -1.0}, "time_s: expected a start from 0"),
        ({**GOOD, "time_s": [-1.0, 2]}, "time_s: expected a start from 0"),
        ({**GOOD, "time_s": "2"}, "time_s: expected a number of seconds from 0, or [start, end]"),
        ({**GOOD, "recording": "gone.vrs"}, "gone.vrs is not there"),
        ({**GOOD, "recording": "walk.vrs?loop=2"}, "expected a path without '?'"),
        ({**GOOD, "time_s": [0, 10.2]}, "time_s: expected a time within the recording's 10.000 s, got 10.2"),
        ("{", "expected one JSON object"),
        ("[1]", "expected one JSON object with the keys clip, category"),
        (b'{"clip": "\xff"}', "expected one JSON object"),
        ("[" * 100_000, "expected one JSON object"),
        (json.dumps({**GOOD, "text": "x" * data.LONGEST_LINE}), "expected at most 1048576 bytes"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_bad_line_is_named_with_what_was_expected(tmp_path: Path, line: Any, said: str) -> None:
    path = written(tmp_path, GOOD, line, {**GOOD, "clip": "after"})
    (problem,) = check(path, ten_seconds)
    assert problem.startswith(f"{path}, line 2: ") and said in problem and "\n" not in problem
    assert [e.clip for e in scan(path) if isinstance(e, Example)][-1] == "after"


def test_reading_stops_at_the_first_bad_line(tmp_path: Path) -> None:
    reading = read_examples(written(tmp_path, GOOD, "{", GOOD))
    assert next(reading).clip == "kitchen-017"
    with pytest.raises(DataError, match="line 2"):
        next(reading)


def test_checking_tells_of_every_bad_line_up_to_a_limit(tmp_path: Path) -> None:
    path = written(tmp_path, *[{**GOOD, "form": "song"}] * 30, GOOD)
    assert len(check(path, ten_seconds)) == 20
    assert [line.split(":")[0].rsplit(" ", 1)[1] for line in check(path, ten_seconds, limit=3)] == ["1", "2", "3"]


def test_a_recording_is_asked_for_its_length_once_and_may_not_open(tmp_path: Path) -> None:
    asked: list[str] = []

    def length(uri: str) -> float:
        asked.append(uri)
        if "8" in uri:
            raise SourceError("world:8 can't be opened")
        return 10.04

    path = written(tmp_path, *[GOOD] * 3, *[{**GOOD, "recording": "world:8"}] * 2)
    wrong = check(path, length)
    assert [w.endswith("recording: world:8 can't be opened") for w in wrong] == [True, True]
    assert asked == [GOOD["recording"], "world:8"]


def test_nothing_to_read_is_an_error_that_says_so(tmp_path: Path) -> None:
    for path, said in [(tmp_path / "no.jsonl", "there is nothing"), (tmp_path, "found none in it")]:
        with pytest.raises(DataError, match=said):
            next(read_examples(path))
    with pytest.raises(DataError, match="found no line"):
        check(written(tmp_path, "", " "), ten_seconds)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(key=st.sampled_from([*GOOD, "else"]), value=json_values)
def test_whatever_stands_under_a_key_is_an_example_or_one_line(
    tmp_path_factory: pytest.TempPathFactory, key: str, value: Any
) -> None:
    path = written(tmp_path_factory.mktemp("data"), {**GOOD, key: value})
    (found,) = scan(path)
    if isinstance(found, DataError):
        assert str(found).startswith(f"{path}, line 1: ")
    else:
        assert found.start_s < found.end_s and found.references


@given(st.binary(max_size=200))
def test_any_bytes_are_lines_that_are_told_of(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.mktemp("data") / "any.jsonl"
    path.write_bytes(content)
    assert all(isinstance(found, DataError) for found in scan(path))
