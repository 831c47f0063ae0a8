"""Rules of the house that no linter knows, read off the source: who may import whom, and what may stand in no file."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

# Arrows between rooms: nothing points back.
MAY_IMPORT = {
    "streams": {"streams"},
    "device": {"device", "streams"},
    "runtime": {"runtime", "device", "streams"},
    "export": {"export", "runtime", "streams"},
    "eval": {"eval", "runtime", "device", "streams"},
    "benchmarks": {"benchmarks", "eval", "runtime", "device", "streams"},
}
ON_DEVICE = ("streams", "runtime", "device")
MODULES = sorted(path for room in MAY_IMPORT for path in (ROOT / room).rglob("*.py"))


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), name_of(path))


def imports_of(path: Path) -> Iterator[tuple[int, str]]:
    """(line, dotted name) of every import, those inside functions too."""
    for node in ast.walk(tree_of(path)):
        match node:
            case ast.Import(names=names):
                yield from ((node.lineno, alias.name) for alias in names)
            case ast.ImportFrom(module=module, names=names, level=0):
                yield from ((node.lineno, f"{module}.{alias.name}") for alias in names)
            case ast.ImportFrom():
                yield node.lineno, "." * node.level


@cache
def text_files() -> tuple[Path, ...]:
    """Every text file that is, or is about to be, under version control."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True)
    if done.returncode:
        pytest.skip("not a git checkout: can't tell the project's files from others")
    paths = [ROOT / name for name in done.stdout.decode().split("\0") if name]
    return tuple(path for path in paths if path.is_file() and not path.is_symlink() and b"\0" not in path.read_bytes())


def lines_matching(pattern: str, paths: tuple[Path, ...]) -> list[str]:
    compiled = re.compile(pattern)
    return [
        f"{name_of(path)}:{number}: {line.strip()}"
        for path in paths
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1)
        if compiled.search(line)
    ]


def test_there_is_something_to_check() -> None:
    assert len(MODULES) > 10 and len(text_files()) > 20


@pytest.mark.parametrize("room", MAY_IMPORT)
def test_rooms_import_only_what_they_may(room: str) -> None:
    wrong = [
        f"{name_of(path)}:{line}: {name}"
        for path in MODULES if path.relative_to(ROOT).parts[0] == room
        for line, name in imports_of(path)
        if name.startswith(".") or (name.split(".")[0] == "handrail" and name.split(".")[1] not in MAY_IMPORT[room])
    ]  # fmt: skip
    assert wrong == []


def test_device_takes_only_errors_the_clock_and_children_from_streams() -> None:
    allowed = ("handrail.streams.errors.", "handrail.streams.clock.", "handrail.streams.child.")
    wrong = [
        f"{name_of(path)}:{line}: {name}"
        for path in MODULES if path.relative_to(ROOT).parts[0] == "device"
        for line, name in imports_of(path)
        if name.startswith("handrail.streams") and not name.startswith(allowed)
    ]  # fmt: skip
    assert wrong == []


def test_the_truth_of_the_simulated_world_is_out_of_reach_of_the_runtime() -> None:
    wrong = [
        f"{name_of(path)}:{line}: {name}"
        for path in MODULES if path.relative_to(ROOT).parts[0] in ("runtime", "device")
        for line, name in imports_of(path)
        if name.startswith("handrail.streams.world")
    ]  # fmt: skip
    assert wrong == []


def test_what_runs_on_the_device_imports_no_training_library() -> None:
    wrong = [
        f"{name_of(path)}:{line}: {name}"
        for path in MODULES if path.relative_to(ROOT).parts[0] in ON_DEVICE
        for line, name in imports_of(path)
        if name.split(".")[0] in {"torch", "torchvision", "transformers", "tensorflow", "jax"}
    ]  # fmt: skip
    assert wrong == []


def test_native_readers_are_imported_in_the_reader_process_only() -> None:
    """They can take the interpreter down (segmentation faults on damaged recordings)."""
    wrong = [
        f"{name_of(path)}:{line}: {name}"
        for path in MODULES if not path.is_relative_to(ROOT / "streams" / "reader")
        for line, name in imports_of(path)
        if name.split(".")[0] in {"projectaria_tools", "aria", "pyvrs"}
    ]  # fmt: skip
    assert wrong == []


def test_every_module_says_what_it_does() -> None:
    silent = [name_of(path) for path in MODULES if path.read_text().strip() and not ast.get_docstring(tree_of(path))]
    assert silent == []


def test_no_file_names_a_place_on_one_machine() -> None:
    places = "work|root|home|Users|opt/pypi|opt/wheels"
    assert lines_matching(rf"(?<![\w.~$}}])/(?:{places})/\w", text_files()) == []


def test_no_file_names_a_host_of_a_package_registry() -> None:
    hosts = ("pypi" + r"\.org", "python" + "hosted", r"registry\." + "npmjs", r"deb\." + "debian")
    assert lines_matching("|".join(hosts), text_files()) == []


def test_no_code_reads_the_wall_clock() -> None:
    code = tuple(path for path in text_files() if path.suffix in (".py", ".sh"))
    assert lines_matching(r"\btime\.time(_ns)?" + r"\(", code) == []
    assert lines_matching(r"\bdatetime\.(now|utcnow|today)" + r"\(", code) == []


def test_nothing_spoken_promises_that_the_way_is_free() -> None:
    """Strings of the speech and device rooms: saying so because nothing was seen can hurt."""
    promise = re.compile(r"\b(saf(e|ely|ety)|clear(ed|ly)?)\b", re.IGNORECASE)
    paths = [p for p in MODULES if p.is_relative_to(ROOT / "runtime" / "speech") or p.is_relative_to(ROOT / "device")]
    wrong = [
        f"{name_of(path)}:{node.lineno}: {node.value!r}"
        for path in paths
        for node in spoken_constants(tree_of(path))
        if isinstance(node.value, str) and promise.search(node.value)
    ]
    assert wrong == []


def spoken_constants(tree: ast.AST) -> Iterator[ast.Constant]:
    """All constants but docstrings and the list of forbidden words itself."""
    for node in ast.iter_child_nodes(tree):
        match node:
            case ast.Expr(value=ast.Constant()) | ast.Assign(targets=[ast.Name(id="FORBIDDEN")]):
                continue
            case ast.Constant():
                yield node
            case _:
                yield from spoken_constants(node)
