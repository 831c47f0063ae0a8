"""What is built is what is here: every folder and data file is in the wheel; nothing answers to a bare room name."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
PACKAGES: list[str] = PROJECT["tool"]["setuptools"]["packages"]
FOLDERS: dict[str, str] = PROJECT["tool"]["setuptools"]["package-dir"]
ENTRY_POINTS: dict[str, str] = {
    **PROJECT["project"]["scripts"], **PROJECT["project"]["entry-points"]["handrail.commands"],
}
ROOMS = sorted(FOLDERS.values())


def folder_of(package: str) -> Path:
    room, *rest = package.removeprefix("handrail.").split(".")
    return ROOT.joinpath(FOLDERS[f"handrail.{room}"], *rest)


def shipped_files() -> set[str]:
    """Every file in a room that is not rubbish, as the wheel should name it; what was measured here stays here."""
    return {
        f"handrail/{path.relative_to(ROOT)}"
        for room in ROOMS
        for path in (ROOT / room).rglob("*")
        if path.is_file() and not {"__pycache__", "results"} & set(path.parts)
    }


def test_every_folder_with_python_in_it_is_a_listed_package() -> None:
    folders = {path.parent for room in ROOMS for path in (ROOT / room).rglob("*.py")}
    assert folders == {folder_of(package) for package in PACKAGES}


def test_every_package_has_an_init_so_that_tools_agree_on_where_it_begins() -> None:
    assert [package for package in PACKAGES if not (folder_of(package) / "__init__.py").is_file()] == []


def test_the_link_for_static_tools_points_at_the_root() -> None:
    link = ROOT / ".typing" / "handrail"
    assert link.is_symlink() and os.readlink(link) == ".."


@pytest.mark.parametrize("room", ROOMS)
def test_a_bare_room_name_can_not_be_imported(room: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", f"import handrail.{room}; import {room}"], cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    assert f"No module named '{room}'" in done.stderr.splitlines()[-1]


# Distribution -> import name, where they differ. What is only run or loaded (linters, the SDK's extras) has none.
IMPORTED_AS = {
    "opencv-python-headless": "cv2", "espeakng-loader": "espeakng_loader", "projectaria-tools": "projectaria_tools",
    "onnx-ir": "onnx_ir", "pillow": "PIL", "llama-cpp-python": "llama_cpp", "onnxruntime-genai": "onnxruntime_genai",
    "openvino-genai": "openvino_genai",
}
ONLY_RUN = {"projectaria-client-sdk", "termcolor", "onnxruntime-gpu", "tensorrt-cu13"}
LATER = {"torch", "transformers", "peft", "accelerate", "safetensors", "onnx", "onnx_ir", "onnxruntime", "tokenizers"}


def test_what_the_rooms_import_is_what_the_project_requires() -> None:
    """Both ways: nothing is imported that set-up doesn't install, and nothing is installed that nothing uses."""
    extras = PROJECT["project"]["optional-dependencies"]
    required = [*PROJECT["project"]["dependencies"]]
    for extra in extras:
        required += extras[extra] if extra != "dev" else []
    names = {re.split(r"[<>=\[ ]", line)[0] for line in required} - ONLY_RUN
    imported = {
        name.split(".")[0]
        for room in ROOMS
        for path in (ROOT / room).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        for name in imports_of(node)
    }
    with_others = {"markupsafe", "openvino"}  # jinja2's and openvino-genai's
    assert imported - set(sys.stdlib_module_names) - with_others - {"handrail", "aria"} == {
        IMPORTED_AS.get(name, name) for name in names
    }


def imports_of(node: ast.AST) -> list[str]:
    match node:
        case ast.Import(names=names):
            return [alias.name for alias in names]
        case ast.ImportFrom(module=str(module), level=0):
            return [module]
        case _:
            return []


def test_the_lock_files_hold_every_requirement_with_hashes() -> None:
    def names(lines: list[str]) -> set[str]:
        bare = [line.split("[")[0].split(">")[0].split("=")[0].split("<")[0] for line in lines]
        return {name.strip().lower() for name in bare}

    def locked(name: str) -> set[str]:
        lines = (ROOT / "requirements" / name).read_text().splitlines()
        entries = [i for i, line in enumerate(lines) if line[:1].isalpha()]
        assert entries and all("==" in lines[i] and lines[i + 1].strip().startswith("--hash=sha256:") for i in entries)
        return names([lines[i] for i in entries])

    extras = PROJECT["project"]["optional-dependencies"]
    base = names([*PROJECT["project"]["dependencies"], *extras["speech"], *extras["bench"], "setuptools"])
    assert base <= locked("base.lock") <= locked("dev.lock")
    assert names([*extras["dev"], *extras["pyttsx3"]]) <= locked("dev.lock")
    assert names([*extras["cpu"], *extras["text"], *extras["export"]]) - {"torch"} <= locked("export.lock")
    assert locked("aria.lock") == names(extras["aria"])
    asked = (ROOT / "requirements" / "aria.in").read_text().splitlines()
    assert [line for line in asked if not line.startswith("#")] == extras["aria"]


@pytest.fixture(scope="module")
def wheel_and_sdist(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The wheel, built from the unpacked sdist as an installer would, and the sdist. Nothing is written here."""
    work = tmp_path_factory.mktemp("build")
    source = work / "source"
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        source.mkdir(exist_ok=True)
        (source / name).write_bytes((ROOT / name).read_bytes())
    for file in sorted(shipped_files()):
        relative = Path(file).relative_to("handrail")
        (source / relative).parent.mkdir(parents=True, exist_ok=True)
        (source / relative).write_bytes((ROOT / relative).read_bytes())

    def build(hook: str, where: Path) -> Path:
        code = f"import setuptools.build_meta as b, sys; print(b.{hook}(sys.argv[1]))"
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", code, str(work)], cwd=where, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return work / done.stdout.splitlines()[-1]

    sdist = build("build_sdist", source)
    with tarfile.open(sdist) as archive:
        archive.extractall(work / "unpacked", filter="data")
    (unpacked,) = (work / "unpacked").iterdir()
    return build("build_wheel", unpacked), sdist


@pytest.fixture(scope="module")
def installed(wheel_and_sdist: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("target")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--no-compile"]
    done = subprocess.run([*command, "--target", target, wheel_and_sdist[0]], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return target


def test_the_wheel_holds_every_file_of_every_room(installed: Path) -> None:
    found = {str(path.relative_to(installed)) for path in (installed / "handrail").rglob("*") if path.is_file()}
    assert found == shipped_files()


def test_the_wheel_carries_its_licence_and_its_command(installed: Path) -> None:
    (info,) = installed.glob("handrail-*.dist-info")
    assert "Apache License" in (info / "licenses" / "LICENSE").read_text()
    found = [
        line.split(" = ") for line in (info / "entry_points.txt").read_text().splitlines() if " = " in line
    ]
    assert dict(found) == ENTRY_POINTS


def test_every_module_of_the_wheel_imports_away_from_the_checkout(installed: Path, tmp_path: Path) -> None:
    """With the dependencies' folder, but without its .pth files: the editable install must not answer instead. Modules
    for answers and training may miss what `make setup-export` brings, where it isn't here."""
    modules = sorted(
        ".".join(Path(file).with_suffix("").parts).removesuffix(".__init__")
        for file in shipped_files() if file.endswith(".py") and not file.endswith("__main__.py")
    )  # fmt: skip
    code = (
        "import importlib, json, sys\n"
        f"sys.path[:0] = [{str(installed)!r}]\n"
        f"sys.path.append({sysconfig.get_paths()['purelib']!r})\n"
        "def file_of(name):\n"
        "    try:\n"
        "        return importlib.import_module(name).__file__\n"
        "    except ModuleNotFoundError as e:\n"
        f"        assert e.name.split('.')[0] in {LATER!r}, e\n"
        f"        return {str(installed)!r}\n"
        f"print(json.dumps([file_of(m) for m in {modules!r}]))\n"
    )
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    files: list[str] = json.loads(done.stdout.splitlines()[-1])
    assert len(files) == len(modules) and all(file.startswith(str(installed)) for file in files)


def test_every_entry_point_names_something_that_is_there() -> None:
    for target in ENTRY_POINTS.values():
        module, attribute = target.split(":")
        path = ROOT.joinpath(*module.removeprefix("handrail.").split(".")).with_suffix(".py")
        assert path.is_file(), target
        assigned = set()
        for node in ast.parse(path.read_text()).body:
            match node:
                case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                    assigned.add(name)
                case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                    assigned.add(name)
                case ast.ImportFrom(names=names):
                    assigned.update(alias.asname or alias.name for alias in names)
        assert attribute in assigned, target
