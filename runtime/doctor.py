"""``handrail doctor``: is everything here that a session needs, does it work, and what mends it.

Each check is a function that gives lines; adding one to ``CHECKS`` is all it takes. Native code (SDK, OpenCV, voice,
sound) runs in child processes: that it dies is one of the findings. A note is something a session can do without.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Literal

import msgspec
from packaging.requirements import Requirement

from handrail.runtime.machine import usable_cores
from handrail.runtime.terminal import print_table, say, write_json
from handrail.streams.errors import MissingDependencyError

CHILD_TIMEOUT_S = 60.0  # a first import from a cold disk
LEAST_DISK_MB = 500  # a report with sound and a log of ten minutes take 50
LEAST_MEMORY_MB = 1500  # reader, reflex, voice and the loop together
NAME_COLUMNS, FOUND_COLUMNS = 32, 54  # of the table
NEEDED_EXTRAS = ("aria", "speech")  # the others widen what Handrail can do
EXCLUDES = {"onnxruntime": "onnxruntime-gpu", "onnxruntime-gpu": "onnxruntime"}  # each overwrites the other's files
NO_DEPS = ("projectaria-client-sdk", "projectaria-tools")  # their own requirements pull jupyter and moviepy


class Finding(msgspec.Struct, frozen=True):
    name: str
    state: Literal["ok", "missing", "note"]
    found: str
    mend: str = ""  # the command or act that mends it


def ok(name: str, found: str) -> Finding:
    return Finding(name, "ok", found)


def python_version() -> Iterator[Finding]:
    found = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info[:2] in ((3, 11), (3, 12)):
        yield ok("python", found)
    else:
        yield Finding("python", "missing", f"{found}, expected 3.11 or 3.12", "make a new environment with python3.12")


def dependencies() -> Iterator[Finding]:
    """Every requirement of the distribution with its extra: what is wanted, what is installed."""
    for requirement in map(Requirement, metadata.requires("handrail") or []):
        extra = re.search(r'extra == "(.+?)"', str(requirement.marker))
        if extra and extra[1] == "dev":
            continue
        name = requirement.name
        wanted = str(requirement).partition(";")[0].strip()
        absent: Literal["missing", "note"] = "missing" if extra is None or extra[1] in NEEDED_EXTRAS else "note"
        mend = f"pip install {'--no-deps ' if name in NO_DEPS else ''}'{wanted}'"
        if (other := EXCLUDES.get(name)) is not None and installed(other):
            mend = f"pip uninstall {other} && {mend}"
        label = f"{name} [{extra[1]}]" if extra else name
        try:
            found = metadata.version(name)
        except metadata.PackageNotFoundError:
            yield Finding(label, absent, f"not installed, wanted {wanted}", mend)
            continue
        if requirement.specifier.contains(found, prereleases=True):
            yield ok(label, found)
        else:
            yield Finding(label, absent, f"{found}, wanted {wanted}", mend)


def conflicts() -> Iterator[Finding]:
    """Distributions that overwrite each other's files."""
    for pair, harm in (
        (("onnxruntime", "onnxruntime-gpu"), "CUDA is silently gone"),
        (("opencv-python-headless", "opencv-python"), "two versions of cv2 in one folder"),
    ):
        there = [name for name in pair if installed(name)]
        if len(there) == 2:
            yield Finding(" + ".join(pair), "missing", f"both installed: {harm}", f"pip uninstall {pair[1]} {pair[0]}, "
                          f"then install the one you want")


def native_code() -> Iterator[Finding]:
    """The parts that may take a process down with them."""
    yield child("OpenCV semi-global matching", "pip install --force-reinstall opencv-python-headless", """
import cv2, numpy
left = numpy.random.default_rng(0).integers(0, 255, (64, 160), dtype=numpy.uint8)
right = numpy.roll(left, -8, axis=1)
found = numpy.median(cv2.StereoSGBM_create(0, 32, 5).compute(left, right)[:, 48:-16]) / 16
assert abs(found - 8) < 0.5, f"expected a disparity of 8, got {found}"
print("works, version", cv2.__version__)
""")
    if installed("projectaria-tools"):
        yield child("recordings (projectaria_tools)", "pip install --no-deps projectaria-tools==2.3.0",
                    "import projectaria_tools.core.data_provider as p; print('import works')")
    if installed("projectaria-client-sdk"):
        yield child("Aria client SDK", "pip install --no-deps projectaria-client-sdk==2.5.1 && pip install termcolor",
                    "import aria.sdk, aria.sdk_gen2; print('import works')")


def sound() -> Iterator[Finding]:
    yield child("voice espeak-ng", "pip install 'handrail[speech]'", """
import asyncio
from handrail.device.espeak import EspeakVoice
async def main():
    voice = EspeakVoice()
    try:
        return await voice.render("Handrail is ready.", 240)
    finally:
        await voice.close()
sound = asyncio.run(main())
assert abs(sound.samples).max() > 0.05, "expected speech, got silence"
print(f"speaks, {sound.duration_s:.1f} s rendered")
""")
    card = child("sound card", "plug in or switch on a sound device; replays write guidance.wav without one", """
import asyncio
from handrail.device.card_speaker import CardSpeaker
async def main():
    speaker = CardSpeaker()
    print(f"present, buffer {speaker.buffer_ms:.0f} ms")
    await speaker.close()
asyncio.run(main())
""")
    yield card if card.state == "ok" else Finding(card.name, "note", card.found, card.mend)


def machine() -> Iterator[Finding]:
    folder = Path.cwd()
    free_mb = shutil.disk_usage(folder).free // 1_000_000
    yield (ok("disk", f"{free_mb} MB free") if free_mb >= LEAST_DISK_MB else
           Finding("disk", "missing", f"{free_mb} MB free, expected {LEAST_DISK_MB}", "make room on its disk"))
    try:
        with tempfile.TemporaryFile(dir=folder):
            yield ok("write permission", "this folder")
    except OSError as e:
        yield Finding("write permission", "note", f"this folder can't be written ({e.strerror})",
                      "cd to a folder you may write to, or name one with --out")
    memory_mb = available_memory_mb()
    if memory_mb is None:
        yield Finding("memory", "note", "can't be told: no /proc/meminfo")
    elif memory_mb >= LEAST_MEMORY_MB:
        yield ok("memory", f"{memory_mb} MB available")
    else:
        yield Finding("memory", "note", f"{memory_mb} MB available, a session takes {LEAST_MEMORY_MB}",
                      "end other programs")
    cores = usable_cores()
    yield (ok("processor", f"{cores} cores") if cores >= 2 else
           Finding("processor", "note", f"{cores} core, depth at 10 Hz takes 2", "give the machine a second core"))


def clock() -> Iterator[Finding]:
    """The loop's clock must be monotonic and finer than a period of sound."""
    info = time.get_clock_info("monotonic")
    ticks = [time.monotonic_ns() for _ in range(1000)]
    steady = info.monotonic and all(a <= b for a, b in itertools.pairwise(ticks))
    fine = info.resolution <= 1e-4 and ticks[-1] > ticks[0]
    if steady and fine:
        yield ok("clock", f"monotonic, {info.resolution * 1e9:.0f} ns")
    else:
        yield Finding("clock", "missing", f"monotonic: {steady}, resolution {info.resolution} s",
                      "use a Linux kernel with a working CLOCK_MONOTONIC")


CHECKS: tuple[Callable[[], Iterator[Finding]], ...] = (
    python_version, dependencies, conflicts, native_code, sound, machine, clock,
)


class Doctor:
    name = "doctor"
    help = "check what is installed and attached, and say what mends it"
    examples = ("handrail doctor", "handrail doctor --json doctor.json")

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        pass

    def run(self, args: argparse.Namespace) -> int:
        findings = [finding for check in CHECKS for finding in check()]
        if args.json is not None:
            write_json(args.json, {"findings": findings, "ok": not missing(findings)})
        print_table("handrail doctor", ("", "what", "found"), [row for f in findings for row in _rows(f)])
        for f in findings:
            if f.mend:
                say(f"mend {f.name} with:")
                say(f.mend)
        lacking = missing(findings)
        say(f"{len(lacking)} missing: {', '.join(f.name for f in lacking)}" if lacking else "Nothing is missing.")
        return MissingDependencyError.exit_code if lacking else 0


command = Doctor()


def _rows(f: Finding) -> list[tuple[str, str, str]]:
    """One a line of what was found, so that the table fits a window of 100 columns."""
    names, found = textwrap.wrap(f.name, NAME_COLUMNS) or [""], textwrap.wrap(f.found, FOUND_COLUMNS) or [""]
    return [
        (f.state if i == 0 else "", name, line)
        for i, (name, line) in enumerate(itertools.zip_longest(names, found, fillvalue=""))
    ]


def missing(findings: Iterable[Finding]) -> list[Finding]:
    return [f for f in findings if f.state == "missing"]


def child(name: str, mend: str, code: str) -> Finding:
    """Run Python ``code`` in a process of its own; what it prints last is what was found."""
    try:
        done = subprocess.run(  # noqa: S603  our own code
            [sys.executable, "-c", code], capture_output=True, text=True, errors="replace", timeout=CHILD_TIMEOUT_S,
            stdin=subprocess.DEVNULL, check=False,
        )
    except subprocess.TimeoutExpired:
        return Finding(name, "missing", f"no answer in {CHILD_TIMEOUT_S:.0f} s", mend)
    if done.returncode == 0:
        return ok(name, last_line(done.stdout))
    if done.returncode < 0:
        with contextlib.suppress(ValueError):
            return Finding(name, "missing", f"the process died with {signal.Signals(-done.returncode).name}", mend)
    return Finding(name, "missing", last_line(done.stderr) or f"exit code {done.returncode}", mend)


def last_line(text: str) -> str:
    """The last line that says something; of an error of ours, the message alone."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return re.sub(r"^handrail[\w.]*: ", "", lines[-1]) if lines else ""


def installed(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def available_memory_mb() -> int | None:
    with contextlib.suppress(OSError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) // 1000
    return None
