"""Data sets of questions about clips: one JSON object a line, in the shape of VISTA's annotations (seed 000).

    {"clip": "kitchen-017", "category": "TC01", "form": "question", "text": "How could I get a fork?",
     "references": ["The utensil dispenser is straight ahead on the counter."],
     "recording": "clips/kitchen-017.vrs", "time_s": [0.0, 12.4], "split": "train"}

(on one line). What each key holds:

clip        name of the clip; several lines may be about one clip
category    TC01..TC10, VISTA's task categories
form        "scene" describe what is around, "question" answer, "goal" say how to reach it
text        the question or the goal; empty, or left out, for a scene
references  answers, any of which is right; at least one where split is "train"
recording   a recording (.vrs), its path relative to this file, or ``world:SEED[?...]``; MPS output lies beside it
time_s      [start, end] of the clip in seconds since the recording's first record, or one number: the moment of the
            question, with all that came before it as the clip
split       "train", "validation" or "test"

Read strictly: an unknown key, a wrong type, a recording that is not there or a time outside it is one line for people
that names file and line number. Knows no model and opens no recording itself (``duration_of`` does).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from handrail.streams.errors import DataError, SourceError

Form = Literal["scene", "question", "goal"]
Split = Literal["train", "validation", "test"]
Category = Literal["TC01", "TC02", "TC03", "TC04", "TC05", "TC06", "TC07", "TC08", "TC09", "TC10"]
Text = Annotated[str, msgspec.Meta(min_length=1, pattern=r"\S")]

LONGEST_LINE = 1 << 20  # bytes
SHORTEST_S = 0.01  # of a clip
ROUNDING_S = 0.05  # lengths of clips are often written with one decimal

ASK: dict[Form, str] = {
    "scene": "Describe what is around me: where things are, what happens, and what I should watch out for.",
    "question": "{text}",
    "goal": "I want to do this: {text} Tell me how, step by step.",
}


class _Line(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An object as it stands in the file."""

    clip: Text
    category: Category
    form: Form
    references: list[Text]
    recording: Text
    time_s: float | tuple[float, float]  # a bound in this union makes msgspec 0.23 crash in garbage collection
    split: Split
    text: str = ""


_EXPECTED = {
    "clip": "a name", "category": "one of TC01 to TC10", "form": "scene, question or goal",
    "text": "a text", "references": "a list of answers, none of them empty",
    "recording": "the path of a recording or world:SEED", "time_s": "a number of seconds from 0, or [start, end]",
    "split": "train, validation or test",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Example:
    clip: str
    category: Category
    form: Form
    text: str  # as in the file
    references: tuple[str, ...]
    uri: str  # of the recording, as ``streams.source`` opens it
    start_s: float  # since the recording's first record
    end_s: float
    split: Split
    where: str  # file and line number, for messages

    @property
    def question(self) -> str:
        """What the model is asked."""
        return ASK[self.form].format(text=self.text) if self.form != "question" else self.text


def data_files(path: Path) -> list[Path]:
    """A file itself, or the ``*.jsonl`` files of a folder, by name. Raises DataError when there is none."""
    if path.is_dir():
        files = sorted(path.glob("*.jsonl"))
        if not files:
            raise DataError(f"{path}: expected a folder with .jsonl files, found none in it")
        return files
    if not path.exists():
        raise DataError(f"{path}: expected a .jsonl file or a folder of them, there is nothing")
    return [path]


def read_examples(path: Path) -> Iterator[Example]:
    """Every example of a file or folder, read as it goes. Raises DataError for the first bad line."""
    for found in scan(path):
        if isinstance(found, DataError):
            raise found
        yield found


def scan(path: Path) -> Iterator[Example | DataError]:
    """Every line of a file or folder: the example, or what is wrong with it. Empty lines are passed over."""
    for file in data_files(path):
        try:
            with file.open("rb") as lines:
                number = 0
                while line := lines.readline(LONGEST_LINE + 1):
                    number += 1
                    if len(line) > LONGEST_LINE:
                        yield DataError(f"{file}, line {number}: expected at most {LONGEST_LINE} bytes, got more")
                        while line and not line.endswith(b"\n"):
                            line = lines.readline(LONGEST_LINE)
                        continue
                    line = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
                    if line.strip():
                        yield _example(line, file, number)
        except OSError as e:
            raise DataError(f"{file}: can't be read ({e.strerror})") from e


def check(path: Path, duration_of: Callable[[str], float | None], limit: int = 20) -> list[str]:
    """What is wrong with a data set, a line each, at most ``limit`` of them. ``duration_of``: URI -> seconds (None: not
    known); it raises SourceError for a recording that can't be opened. Raises DataError where there is no data."""
    lengths = cache(lambda uri: _duration(uri, duration_of))
    wrong: list[str] = []
    seen = 0
    for found in scan(path):
        seen += 1
        problem = str(found) if isinstance(found, DataError) else _outside(found, lengths(found.uri))
        if problem is not None:
            wrong.append(problem)
            if len(wrong) >= limit:
                break
    if not seen:
        raise DataError(f"{path}: expected a JSON object a line, found no line")
    return wrong


def _duration(uri: str, duration_of: Callable[[str], float | None]) -> float | SourceError | None:
    try:
        return duration_of(uri)
    except SourceError as e:
        return e


def _outside(example: Example, length: float | SourceError | None) -> str | None:
    if isinstance(length, SourceError):
        return f"{example.where}: recording: {length}"
    if length is not None and example.end_s > length + ROUNDING_S:
        return (f"{example.where}: time_s: expected a time within the recording's {length:.3f} s, "
                f"got {example.end_s:g}")  # fmt: skip
    return None


def _example(line: bytes, file: Path, number: int) -> Example | DataError:
    where = f"{file}, line {number}"
    try:
        value = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as e:
        return DataError(f"{where}: expected one JSON object, {str(e)[:1].lower()}{str(e)[1:]}")
    try:
        raw = msgspec.convert(value, _Line)
    except msgspec.ValidationError as e:
        return DataError(f"{where}: {_explain(str(e), value)}")
    start_s, end_s = (0.0, raw.time_s) if isinstance(raw.time_s, float) else raw.time_s
    if not (0.0 <= start_s and end_s - start_s >= SHORTEST_S):
        return DataError(f"{where}: time_s: expected a start from 0 and a later end, got {start_s:g} to {end_s:g}")
    if (raw.form == "scene") == bool(raw.text.strip()):
        expected = "none" if raw.form == "scene" else f"the {raw.form}"
        return DataError(f"{where}: text: expected {expected} where form is {raw.form}, got {_short(raw.text)}")
    if raw.split == "train" and not raw.references:
        return DataError(f"{where}: references: expected at least one answer where split is train, got none")
    uri = _uri(raw.recording, file.parent)
    if isinstance(uri, str):
        return Example(raw.clip, raw.category, raw.form, raw.text.strip(), tuple(raw.references), uri, start_s, end_s,
                       raw.split, where)  # fmt: skip
    return DataError(f"{where}: recording: {uri}")


def _uri(recording: str, folder: Path) -> str | DataError:
    if recording.startswith("world:"):
        return recording
    if "?" in recording or "\0" in recording:  # "?" begins the options of a URI
        return DataError(f"expected a path without '?', got {_short(recording)}")
    path = folder / recording
    if not path.is_file():
        return DataError(f"{path} is not there; expected a path relative to {folder} or world:SEED")
    return f"vrs:{path}"


def _explain(message: str, value: Any) -> str:
    """msgspec's message with the key as it is written, what would have been right, and what came."""
    if found := re.match(r"Object contains unknown field `(.*)`", message):
        close = difflib.get_close_matches(found[1], _EXPECTED, n=1)
        hint = f"did you mean {close[0]}?" if close else f"expected {', '.join(_EXPECTED)}"
        return f"unknown key {found[1]}; {hint}"
    if found := re.match(r"Object missing required field `(.*)`", message):
        return f"{found[1]}: expected {_EXPECTED[found[1]]}, the key is missing"
    if found := re.search(r" - at `\$\.(\w+)", message):
        return f"{found[1]}: expected {_EXPECTED[found[1]]}, got {_short(value[found[1]])}"
    return "expected one JSON object with the keys " + ", ".join(_EXPECTED)


def _short(value: Any) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= 60 else text[:57] + "..."
