"""The language decoder beside other engines: same weights, same prompt, same bits, one run.

Each engine and model is a process of its own (``engine_child``); a round starts them all, then times them one after the
other, so that what slows the machine slows all. A peer that isn't installed is told as absent, with how to get it. Then
what keeping frames' features is worth (``vision_cache``), and bundles of one's own.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from handrail.benchmarks.command import Outcome, from_1
from handrail.benchmarks.engine_ratios import Rounds, beside_the_best, median
from handrail.runtime.bundle import open_bundle
from handrail.runtime.terminal import print_table, say
from handrail.streams.cache import cache_folder
from handrail.streams.errors import ConfigError, HandrailError

HELP = "the language decoder beside other engines: first token, tokens a second, memory, perplexity"
OURS = "handrail"
PEERS = {
    "transformers": "make setup-export",
    "llama-cpp-python": "pip install llama-cpp-python",
    "onnxruntime-genai": "pip install onnxruntime-genai",
    "openvino-genai": "pip install openvino-genai",
}
MODEL = "smollm2-135m"
PROMPT, NEW, TEXT = 170, 64, 1000  # tokens
FIGURES = ("prefill_ms", "decode_tok_s", "ttft_ms")
WARM = 1  # rounds that don't count, after one when it starts


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--rounds", type=from_1, default=5, help="interleaved runs of each (5)")
    add("--threads", default="1,2", help="comma-separated (1,2)")
    add("--bits", default="8,4,32", help="of the weights, comma-separated (8,4,32)")
    add("--peers", default=",".join(PEERS), help="comma-separated, or none (all that are installed)")
    add("--peer-python", action="append", default=[], metavar="[PEER=]PATH",
        help="the interpreter that has a peer (this one); may be given again")  # fmt: skip
    add("--convert-python", action="append", default=[], metavar="PEER=PATH",
        help="the interpreter that makes a peer's model, where that needs other packages")  # fmt: skip
    add("--models", type=Path, metavar="DIR", help="where the formats lie (in the cache)")
    add("--text", type=Path, default=Path("README.md"), help="of the prompt and the perplexities (README.md)")
    add("--bundle", action="append", type=Path, default=[], metavar="DIR",
        help="what `handrail export` wrote, measured with its encoder; may be given again")  # fmt: skip
    add("--skip", default="", help="comma-separated: engines, vision, perplexity")
    add("--plot", type=Path, metavar="FILE", help="PNG or SVG; beside --json if that is given")


def run(args: argparse.Namespace) -> Outcome:
    skip = set(filter(None, args.skip.split(",")))
    figures: dict[str, Any] = {"model": MODEL, "prompt_tokens": PROMPT, "new_tokens": NEW, "rounds": args.rounds}
    held, lines = True, []
    for folder in args.bundle:  # before minutes of work
        open_bundle(folder)
    if "engines" not in skip:
        records, absent = _engines(args, "perplexity" not in skip)
        figures |= {"engines": records, "absent": absent}
        _told(records, absent)
        fast = _standing(records)
        held, lines = OURS not in absent and all(good for good, _ in fast), [line for _, line in fast]
        plot = args.plot or (args.json.with_suffix(".svg") if args.json is not None else None)
        if plot is not None:
            from handrail.benchmarks.engine_plot import draw

            draw(records, plot)
    if args.bundle:
        figures["bundles"] = bundles = _bundles(args.bundle, _numbers(args.threads, "--threads"), args.rounds)
        _bundles_told(bundles)
    if "vision" not in skip:
        from handrail.benchmarks.vision_cache import AIM, vision_cache

        say("frames kept against frames encoded when asked")
        figures["vision_cache"] = found = vision_cache(args.rounds)
        held &= found["speedup"]["high"] >= AIM
        lines.append(f"a question with 8 frames: {found['speedup']['ratio']} times sooner with kept features")
    return Outcome(figures, held, "; ".join(lines))


def _model(engine: str, bits: int, folder: Path) -> Path | None:
    """Where an engine's format lies; None where it has none of these bits."""
    kind = {32: "fp32", 8: "int8", 4: "int4"}[bits]
    match engine:
        case "handrail":
            return folder / f"handrail-{({32: 'none', 8: 'w8', 4: 'w4'}[bits])}"
        case "transformers":
            return folder / "fp32" if bits == 32 else None
        case "llama-cpp-python":
            return folder / f"{({32: 'f32', 8: 'q8_0', 4: 'q4_0'}[bits])}.gguf"
    return folder / f"{'og' if engine == 'onnxruntime-genai' else 'ov'}-{kind}"


def _export(folder: Path, **job: Any) -> dict[str, Any]:
    """The export room, in a process of its own: torch's memory goes with it. Raises HandrailError."""
    whole = json.dumps({"model": MODEL, "folder": str(folder), **job})
    command = [sys.executable, "-m", "handrail.export.bundles.comparison", whole]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own command
    if done.returncode:
        raise HandrailError((done.stderr.strip().splitlines() or ["its export failed"])[-1])
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


class Child:
    """An engine in its own process."""

    def __init__(self, python: str, job: dict[str, Any]) -> None:
        script = Path(__file__).with_name("engine_child.py")
        self.process = subprocess.Popen(  # noqa: S603
            [python, str(script), json.dumps(job)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        self._answer()

    def ask(self, what: str, **more: int) -> dict[str, float]:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps({"do": what, **more}) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise HandrailError("its process died") from None
        return self._answer()

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        found: dict[str, Any] = json.loads(line) if line.startswith("{") else {"error": "its process died"}
        if "error" in found:
            self.close()
            raise HandrailError(found["error"])
        return found


def _engines(args: argparse.Namespace, perplexities: bool) -> tuple[list[dict[str, Any]], dict[str, str]]:
    folder = args.models or cache_folder("engine")
    say("the same weights for everyone")
    tokens = _export(folder, text=str(args.text))["tokens"]
    job: dict[str, Any] = {"prompt": PROMPT, "new": NEW, "text": tokens[:TEXT]}
    if len(job["text"]) < TEXT:
        raise ConfigError(f"--text {args.text}: expected {TEXT} tokens or more, found {len(tokens)}")
    pythons, makers = _pythons(args.peer_python), _pythons(args.convert_python)
    wanted = [OURS, *(p for p in args.peers.split(",") if p in PEERS)]
    records: list[dict[str, Any]] = []
    absent: dict[str, str] = {}
    for threads in _numbers(args.threads, "--threads"):
        for bits in _numbers(args.bits, "--bits"):
            say(f"{threads} threads, {bits} bits")
            group = Group()
            for name in wanted:
                model = _model(name, bits, folder)
                if model is None or name in absent:
                    continue
                python = sys.executable if name in (OURS, "transformers") else pythons.get(name, pythons[""])
                made = _export(folder, engine=name, bits=bits, target=str(model), python=makers.get(name, python))
                if made["fault"]:
                    absent[name] = f"{made['fault']}; to get it: {PEERS.get(name, '')}"
                else:
                    group.add(name, python, {**job, "engine": name, "model": str(model), "threads": threads})
            group.measure(args.rounds, perplexities and threads > 1)
            absent |= {name: f"{why}; to get it: {PEERS.get(name, '')}" for name, why in group.lost.items()}
            records += group.records(threads, bits)
    return records, absent


def _bundles(folders: list[Path], threads: list[int], rounds: int) -> list[dict[str, Any]]:
    """Each of them alone: how long a frame, a prompt and a token take here."""
    records = []
    for folder in folders:
        for count in threads:
            say(f"{folder.name}, {count} threads")
            tokens = list(range(PROMPT + WARM + rounds))
            job = {"engine": "bundle", "model": str(folder), "threads": count, "prompt": PROMPT, "new": NEW}
            child = Child(sys.executable, {**job, "text": tokens})
            try:
                runs = [child.ask("measure", turn=turn) for turn in range(WARM + rounds)][WARM:]
                peak_mib = child.ask("memory")["peak_mib"]
            finally:
                child.close()
            record: dict[str, Any] = {"bundle": folder.name, "threads": count}
            record |= {figure: round(median(runs, figure), 2) for figure in ("encode_ms", *FIGURES)}
            records.append({**record, "peak_mib": round(peak_mib, 1)})
    return records


def _bundles_told(records: list[dict[str, Any]]) -> None:
    print_table(
        f"bundles: {PROMPT} tokens read, {NEW} written",
        ("bundle", "threads", "a frame ms", "prefill ms", "tokens/s", "first token ms", "peak MiB"),
        [tuple(r[k] for k in ("bundle", "threads", "encode_ms", *FIGURES, "peak_mib")) for r in records],
    )  # fmt: skip


class Group:
    """All engines of one number of threads and bits. Each round starts them anew and in another order: how quick an
    engine is depends by a tenth on which memory it was given, and the first to ask has been given the worst."""

    def __init__(self) -> None:
        self.measured: dict[str, Rounds] = {}
        self.lost: dict[str, str] = {}
        self._jobs: dict[str, tuple[str, dict[str, Any]]] = {}
        self._beside: dict[str, dict[str, float]] = {}

    def add(self, name: str, python: str, job: dict[str, Any]) -> None:
        self._jobs[name] = python, job
        self.measured[name] = []

    def measure(self, rounds: int, perplexities: bool) -> None:
        for turn in range(rounds):
            self._round(turn + 1, perplexities and turn + 1 == rounds)

    def records(self, threads: int, bits: int) -> list[dict[str, Any]]:
        peers: dict[str, Rounds] = {name: found for name, found in self.measured.items() if name != OURS}
        records = []
        for name, found in self.measured.items():
            record: dict[str, Any] = {"engine": name, "bits": bits, "threads": threads}
            record |= {figure: round(median(found, figure), 2) for figure in FIGURES}
            beside = self._beside[name]
            record["ppl"] = round(beside["ppl"], 3) if "ppl" in beside else None
            record["peak_mib"] = round(beside["peak_mib"], 1)
            if name == OURS and peers:
                record["ratio_to_best_peer"] = beside_the_best(found, peers)
            record["runs"] = [{k: round(v, 3) for k, v in r.items()} for r in found]
            records.append(record)
        return records

    def _round(self, turn: int, perplexities: bool) -> None:
        names = list(self._jobs)
        names = names[turn % len(names) :] + names[: turn % len(names)] if names else []
        children: dict[str, Child] = {}
        try:
            for name in names:
                with self._losing(name):
                    children[name] = _started(*self._jobs[name])
            for name in list(children):
                with self._losing(name):
                    self.measured[name] = [*self.measured[name], children[name].ask("measure", turn=turn)]
                    self._beside[name] = children[name].ask("memory")
            for name in [n for n in children if perplexities and n in self._jobs]:
                with self._losing(name):
                    self._beside[name] |= children[name].ask("perplexity")
        finally:
            for child in children.values():
                child.close()

    @contextlib.contextmanager
    def _losing(self, name: str) -> Iterator[None]:
        """An engine that dies is measured no more, and what it gave counts for nothing."""
        try:
            yield
        except (HandrailError, OSError) as e:
            self.lost[name] = str(e)
            self._jobs.pop(name, None)
            self.measured.pop(name, None)


def _started(python: str, job: dict[str, Any]) -> Child:
    """An engine that has answered once. Built for AMX, llama.cpp dies of it where the machine doesn't let it: it then
    does without, from then on. Raises HandrailError where it dies twice."""
    child = Child(python, job)
    try:
        child.ask("measure", turn=0)
        return child
    except HandrailError:
        job["no_tiles"] = True  # it alone knows what that means; others get a second try
    child = Child(python, job)
    child.ask("measure", turn=0)
    return child


def _told(records: list[dict[str, Any]], absent: dict[str, str]) -> None:
    print_table(
        f"{MODEL}: {PROMPT} tokens read, {NEW} written",
        ("engine", "bits", "threads", "prefill ms", "tokens/s", "first token ms", "perplexity", "peak MiB"),
        [tuple(r[k] for k in ("engine", "bits", "threads", *FIGURES, "ppl", "peak_mib")) for r in records],
    )  # fmt: skip
    for name, why in absent.items():
        say(f"{name}: absent ({why})")


def _standing(records: list[dict[str, Any]]) -> list[tuple[bool, str]]:
    """Against the fastest peer with the same bits: held where the interval reaches 1."""
    found = []
    for record in records:
        beside = record.get("ratio_to_best_peer")
        if beside is None or record["bits"] == 32:
            continue
        for what, r in beside.items():
            line = f"{record['bits']} bits, {record['threads']} threads, {what}: {r['ratio']} x {r['peer']}"
            found.append((r["high"] >= 1.0, f"{line} [{r['low']}, {r['high']}]"))
    return found


def _pythons(given: list[str]) -> dict[str, str]:
    """Peer -> interpreter; "" -> that of the others."""
    found = {"": sys.executable}
    for item in given:
        name, equals, path = item.rpartition("=")
        if equals and name not in PEERS:
            raise ConfigError(f"{item}: expected one of {', '.join(PEERS)} before '='")
        if shutil.which(path) is None:
            raise ConfigError(f"{item}: no interpreter there")
        found[name] = path
    return found


def _numbers(text: str, option: str) -> list[int]:
    known = {"--bits": {"32", "8", "4"}}.get(option)
    items = text.split(",")
    if not all(i.isascii() and i.isdigit() and int(i) > 0 and (known is None or i in known) for i in items):
        raise ConfigError(f"{option} {text}: expected {'some of 8, 4, 32' if known else 'whole numbers from 1'}")
    return [int(i) for i in items]
