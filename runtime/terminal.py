"""What every command shares when it talks to people and to files: a line, a table, a JSON file.

Tables are drawn on a terminal and are plain columns anywhere else. Knows no command and no event.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import IO, Any

import msgspec

from handrail.streams.errors import OutputError

_LONGEST_LINE = 1000  # characters


def one_line(text: object) -> str:
    """``text`` on one line without control characters: file names and error messages can't steer the terminal."""
    line = " ".join("".join(c if c.isprintable() else " " for c in str(text)).split())
    return line if len(line) <= _LONGEST_LINE else line[: _LONGEST_LINE - 1] + "…"


def say(text: object, file: IO[str] | None = None) -> None:
    """One line for people, to ``file`` or standard output. A character the terminal can't show becomes ``?``."""
    _put(one_line(text), sys.stdout if file is None else file)


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """A short table on standard output. A column of numbers (or None, shown as ``-``) is set to the right."""
    body = [list(row) for row in rows]
    right = [bool(body) and all(isinstance(row[i], int | float | None) for row in body) for i in range(len(columns))]
    cells = [[_cell(value) for value in row] for row in body]
    if sys.stdout.isatty():
        _draw_table(title, columns, cells, right)
        return
    widths = [max(len(cell) for cell in column) for column in zip(columns, *cells, strict=True)]
    _put(one_line(title), sys.stdout)
    for row in [list(columns), *cells]:
        padded = [c.rjust(w) if r else c.ljust(w) for c, w, r in zip(row, widths, right, strict=True)]
        _put("  ".join(padded).rstrip(), sys.stdout)


def _draw_table(title: str, columns: Sequence[str], cells: list[list[str]], right: list[bool]) -> None:
    from rich import box  # here: rich costs a tenth of a second that an option error shouldn't pay
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(one_line(title), style="bold"), title_justify="left", pad_edge=False, box=box.SIMPLE_HEAD)
    for column, to_the_right in zip(columns, right, strict=True):
        table.add_column(Text(column), justify="right" if to_the_right else "left", overflow="fold")
    for row in cells:
        table.add_row(*map(Text, row))  # Text: a "[red]" in a cell is no markup
    Console(markup=False, highlight=False).print(table)


def _put(line: str, file: IO[str]) -> None:
    encoding = getattr(file, "encoding", None) or "utf-8"
    try:
        file.write(line.encode(encoding, "replace").decode(encoding) + "\n")
        file.flush()
    except BrokenPipeError:
        raise  # whoever read it has gone, which is no fault
    except OSError as e:
        raise OutputError(f"standard output can't be written ({e.strerror}); send it elsewhere") from e


def _cell(value: object) -> str:
    match value:
        case None:
            return "-"
        case float():
            return f"{value:.1f}" if abs(value) >= 10 else f"{value:.3g}"
        case _:
            return one_line(value)


def check_writable(path: Path) -> None:
    """Find out before the work is done that its figures can't be written. Raises OutputError."""
    if path.is_dir():
        raise OutputError(f"{path}: expected a file name, got a folder")
    there = next(p for p in (path, *path.absolute().parents) if p.exists())
    if there != path and not there.is_dir():
        raise OutputError(f"{path}: expected a folder at {there}, got a file")
    if not os.access(there, os.W_OK):
        raise OutputError(f"{path}: no permission to write there; choose another file")


def write_json(path: Path, figures: Any) -> None:
    """Write ``figures`` (anything msgspec encodes) indented, whole or not at all; makes its folder. OutputError."""
    text = msgspec.json.format(msgspec.json.encode(figures), indent=2) + b"\n"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise OutputError(f"{path}: its folder can't be made ({e.strerror}); choose another place") from e
    write_whole(path, text)


def write_whole(path: Path, content: bytes) -> None:
    """Write a file so that a reader sees the old one or the new one, never half of it. Raises OutputError."""
    # A pipe or device (/dev/stdout) has no half-written state, and renaming over it would replace it by a file.
    try:
        special = path.exists() and not path.is_file()
        part = path if special else path.with_name(path.name + ".part")
        part.write_bytes(content)
        if not special:
            part.replace(path)
    except OSError as e:
        raise OutputError(f"{path}: can't be written ({e.strerror}); choose another place or make room") from e
