"""``handrail bench signs``: how much of what stands on signs is read, with and without a second look, by its size.

Drawn signs (``sign_pictures``) in the middle of a large picture, and frames that blind people took, whose words were
read by eye (``frames_truth.toml``). A word counts when it is read letter for letter (case aside) in a line of the
confidence from which lines are quoted (``quote.READABLE``); a word read that isn't in the picture counts as wrong.
Words are compared as bags: where a line stands is the tests' matter. Figures hold for this recogniser, these letters
and this spoiling of pictures.
"""

from __future__ import annotations

import argparse
import re
import statistics
import time
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

import cv2
import msgspec
import numpy as np

from handrail.benchmarks.command import Outcome, from_1
from handrail.benchmarks.sign_pictures import CONDITIONS, HEIGHTS_PX, U8, shifted, sign_picture
from handrail.runtime.scenetext.quote import READABLE
from handrail.runtime.scenetext.reader import Line, Reader, open_reader
from handrail.runtime.scenetext.superres import FACTOR, METHOD, average, second_look
from handrail.streams.errors import ConfigError, MissingDependencyError

HELP = "words read on drawn and photographed signs, with and without a second look, by their size"
THRESHOLDS = (0.0, 0.5, 0.6, 0.7, READABLE, 0.8, 0.9)
AVERAGED = 5  # pictures
LEAST_GAIN = 0.1  # words that the second look must add on drawn signs
LEAST_LARGE, LARGE_PX = 0.95, 16  # of words so tall, in plain light

DEFAULT = f"window x{FACTOR:g} {METHOD}"
WINDOWS = ((1.0, "lanczos"), (1.25, "lanczos"), (1.5, "lanczos"), (1.5, "sharpened"), (1.5, "back-projected"))
WHOLE, AVERAGE = "whole picture", f"window x{FACTOR:g} {METHOD}, {AVERAGED} pictures averaged"


@dataclass(slots=True)
class Tally:
    """Of one way of reading and one kind of picture."""

    words: int = 0
    right: int = 0
    wrong: int = 0
    pictures: int = 0
    took_ms: list[float] = field(default_factory=list)
    cpu_ms: list[float] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        self.words, self.right = self.words + other.words, self.right + other.right
        self.wrong, self.pictures = self.wrong + other.wrong, self.pictures + other.pictures
        self.took_ms += other.took_ms
        self.cpu_ms += other.cpu_ms

    def figures(self) -> dict[str, float]:
        found = {
            "words": self.words, "right": round(self.right / self.words, 3) if self.words else 0.0,
            "wrong_a_picture": round(self.wrong / self.pictures, 2),
        }  # fmt: skip
        if self.took_ms:
            found |= {"ms": round(statistics.median(self.took_ms)), "cpu_ms": round(statistics.median(self.cpu_ms))}
        return found


Tallies = dict[tuple[str, str], Tally]  # (way, kind of picture)


def words_of(text: str) -> list[str]:
    return re.findall(r"\w+", unicodedata.normalize("NFKC", text).casefold())


def counted(lines: Iterable[Line], truth: Iterable[str], least: float = READABLE) -> Tally:
    got = Counter(word for line in lines if line.confidence >= least for word in words_of(line.text))
    wanted = Counter(word for text in truth for word in words_of(text))
    return Tally(wanted.total(), (got & wanted).total(), (got - wanted).total(), 1)


def timed(read: Callable[[], list[Line]], tally: Tally) -> list[Line]:
    began, cpu = time.perf_counter(), time.process_time()
    lines = read()
    tally.took_ms.append((time.perf_counter() - began) * 1e3)
    tally.cpu_ms.append((time.process_time() - cpu) * 1e3)
    return lines


def ways(reader: Reader, picture: U8, again: list[U8]) -> Iterator[tuple[str, list[Line], Tally]]:
    """Each way of reading a picture: its name, its lines, and a tally with its time."""
    tally = Tally()
    first = timed(lambda: reader.read(picture), tally)
    yield WHOLE, first, tally
    looks = [(f"window x{factor:g} {method}", picture, factor, method) for factor, method in WINDOWS]
    if again:
        looks.append((AVERAGE, average([picture, *again]), FACTOR, METHOD))
    for name, seen, factor, method in looks:
        tally = Tally()
        yield name, timed(partial(second_look, reader, seen, first, None, factor, method), tally), tally


def drawn(reader: Reader, seeds: int, first_seed: int) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    tallies: Tallies = defaultdict(Tally)
    doubts: dict[tuple[str, float], Tally] = defaultdict(Tally)
    for seed in range(first_seed, first_seed + seeds):
        for height_px in HEIGHTS_PX:
            for condition in CONDITIONS:
                sign = sign_picture(seed, height_px, condition)
                again = shifted(sign, seed, AVERAGED - 1)
                for way, lines, tally in ways(reader, sign.pixels, again):
                    tally.add(counted(lines, sign.words))
                    for kind in ("all", f"{height_px} px", condition):
                        tallies[way, kind].add(tally)
                    for least in THRESHOLDS:
                        doubts[way, least].add(counted(lines, sign.words, least))
    by_confidence = {way: {f"{least:g}": doubts[way, least].figures() for least in THRESHOLDS}
                     for way in (WHOLE, DEFAULT)}  # fmt: skip
    return _table(tallies), by_confidence


class Row(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    height_px: float
    text: str


class Sign(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    frames: list[str]
    lines: list[Row]
    crop: tuple[int, int, int, int] | None = None  # x, y, width, height


class Truth(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    sign: list[Sign]


def photographed(reader: Reader, folder: Path) -> dict[str, Any]:
    """By the size of letters, and what was made up where there is nothing to read."""
    text = files("handrail.benchmarks").joinpath("frames_truth.toml").read_text(encoding="utf-8")
    tallies: Tallies = defaultdict(Tally)
    for sign in msgspec.toml.decode(text, type=Truth).sign:
        for name in sign.frames:
            picture = _frame(folder / name, sign.crop)
            for way, lines, tally in ways(reader, picture, []):
                found = counted(lines, [row.text for row in sign.lines])
                found.took_ms, found.cpu_ms = tally.took_ms, tally.cpu_ms
                tallies[way, "all" if sign.lines else "nothing to read"].add(found)
                for height_px in {row.height_px for row in sign.lines}:
                    part = counted(lines, [row.text for row in sign.lines if row.height_px == height_px])
                    part.wrong = 0  # words of other sizes would count as such
                    tallies[way, f"{height_px:g} px"].add(part)
    return _table(tallies)


def _frame(path: Path, crop: tuple[int, int, int, int] | None) -> U8:
    read = cv2.imread(str(path), cv2.IMREAD_COLOR)
    if read is None:
        raise ConfigError(f"--frames: {path} isn't there or is no picture; expected the frames of EgoBlind-RA")
    x, y, w, h = crop or (0, 0, read.shape[1], read.shape[0])
    return np.ascontiguousarray(read[y : y + h, x : x + w, ::-1], dtype=np.uint8)


def _table(tallies: Mapping[tuple[str, str], Tally]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for (way, kind), tally in tallies.items():
        found.setdefault(way, {})[kind] = tally.figures()
    return found


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--count", type=from_1, default=3, metavar="N", help="pictures of each size and condition (3)")
    parser.add_argument("--seed", type=int, default=0, help="of the first picture (0)")
    parser.add_argument("--frames", type=Path, metavar="DIR", help="frames of EgoBlind-RA, to read these too")
    parser.add_argument("--threads", type=from_1, default=1, help="of the recogniser (1, as in a session)")


def run(args: argparse.Namespace) -> Outcome:
    reader, why = open_reader(args.threads)
    if reader is None:
        raise MissingDependencyError(why)
    table, by_confidence = drawn(reader, args.count, args.seed)
    figures: dict[str, Any] = {
        "pictures_a_size_and_condition": args.count, "seed": args.seed, "threads": args.threads, "readable": READABLE,
        "second_look": DEFAULT, "drawn": table, "drawn_by_confidence": by_confidence,
    }  # fmt: skip
    there = args.frames is not None and args.frames.is_dir()
    figures["photographed"] = photographed(reader, args.frames) if there else "not read: no folder of frames"
    whole, second = table[WHOLE]["all"]["right"], table[DEFAULT]["all"]["right"]
    large = table[DEFAULT][f"{LARGE_PX} px"]["right"]
    line = (f"words read: {whole:.0%} in the whole picture, {second:.0%} with a second look, {large:.0%} of {LARGE_PX} "
            f"px; {table[WHOLE]['all']['ms']} and {table[DEFAULT]['all']['ms']} ms a look")  # fmt: skip
    if there:
        seen = [figures["photographed"][way]["all"]["right"] for way in (WHOLE, DEFAULT)]
        line += f"; on frames {seen[0]:.0%} and {seen[1]:.0%}"
    else:
        line += "; no frames were read (--frames)"
    return Outcome(figures, second >= whole + LEAST_GAIN and large >= LEAST_LARGE, line)
