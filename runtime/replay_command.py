"""``handrail replay URI --out DIR``: the replay with everything it leaves behind.

    events.jsonl   what happened, the same bit for bit every time (mode 0600: it says where somebody walked)
    timings.jsonl  what was measured: stage times
    guidance.wav   what was heard, on the recording's time line
    report.html    the page to look at
    summary.json   the figures, keys stable
"""

from __future__ import annotations

import argparse
import math
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from handrail.runtime.terminal import say, write_json
from handrail.streams.errors import ConfigError, DeviceError, OutputError

if TYPE_CHECKING:
    from handrail.runtime.answer.opening import Loaded
    from handrail.streams.source import SourceInfo


class ReplayCommand:
    name = "replay"
    help = "play a recording or a simulated walk through the whole path: what would have been heard, when, and why"
    examples = (
        "handrail replay world:7 --out out/walk",
        "handrail replay vrs:walk.vrs --out out/walk --json figures.json",
        'handrail replay "world:7?kind=head-bar" --config wearer.toml',
        'handrail replay "vrs:walk.vrs?loop=25" --out out/load --speed real --sound card',
        'handrail replay vrs:walk.vrs --model BUNDLE --question "what is in front of me?@12" --goal "find the door@20"',
        "handrail replay vrs:walk.vrs --model BUNDLE --ocr on --question \"read that@4.5\"",
    )

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "uri",
            help="vrs:PATH[?loop=N][&non_causal=1][&mps=DIR], world:SEED[?gen=1|2][&seconds=S][&kind=K], or tape:PATH",
        )
        parser.add_argument(
            "--out", type=Path, metavar="DIR", default=Path("out/replay"),
            help="where everything goes; made when it isn't there (default: out/replay)",
        )  # fmt: skip
        parser.add_argument(
            "--config", type=Path, metavar="FILE",
            help="the wearer's settings, TOML: [wearer] speech_rate_wpm, units, step_length_m, directions, aid, "
                 "detail, mono; [audio] voice, period_ms",
        )  # fmt: skip
        parser.add_argument(
            "--speed", choices=("virtual", "real"), default="virtual",
            help="virtual: declared stage times, the same result every time, as fast as it goes (default); "
                 "real: as it would be on the wearer, measured; a world: is drawn first, and kept",
        )  # fmt: skip
        parser.add_argument(
            "--sound", choices=("wav", "card", "null"), default="wav",
            help="wav: guidance.wav (default); card: the sound card; null: a card that discards; "
                 "the last two need --speed real",
        )  # fmt: skip
        _add_answers(parser)
        parser.add_argument("--no-report", action="store_true", help="leave report.html out")

    def run(self, args: argparse.Namespace) -> int:
        # Imported here: OpenCV and numpy take a second that a mistyped option shouldn't wait for.
        from handrail.runtime.config import load_config
        from handrail.runtime.recorder import Recorder
        from handrail.runtime.replay import replay
        from handrail.runtime.summary import print_summary

        if args.sound != "wav" and args.speed == "virtual":
            raise ConfigError(f"--sound {args.sound}: plays in real time; add --speed real")
        config = load_config(args.config)
        loaded = _loaded(args)
        out = _folder(args.out)
        wav = out / "guidance.wav" if args.sound == "wav" else None
        real_walk = args.speed == "real" and args.uri.startswith("world:")
        uri = _drawn(args.uri, pictures=loaded is not None) if real_walk else args.uri
        with Recorder(out, report=not args.no_report) as recorder:
            replayed = replay(
                uri, config=config, speed=args.speed, sound=args.sound, wav=wav, hooks=recorder.hooks(), loaded=loaded
            )
        summary = recorder.finish(replayed, wav)
        for path in filter(None, (out / "summary.json", args.json)):
            write_json(path, summary)
        print_summary(summary)
        say(recorder.in_one_line(summary))
        for note in (*replayed.info.notes, *(() if loaded is None else loaded.notes)):
            say(f"note: {note}")
        say(f"results: {out}" + ("" if args.no_report else f"; look at {out / 'report.html'}"))
        if (lost := recorder.sound_lost) is not None:
            raise DeviceError(f"not all of it was heard: {lost}")
        return 0


_SAMPLING = "fixed:10"


def _add_answers(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("questions and goals")
    group.add_argument(
        "--model", type=Path, metavar="BUNDLE",
        help="a folder that `handrail export` wrote: answers questions and goals",
    )  # fmt: skip
    group.add_argument(
        "--question", action="append", default=[], type=timed, metavar="TEXT@SECONDS", dest="questions",
        help="ask so many seconds into the recording; may be given several times. \"read that\" reads text aloud",
    )  # fmt: skip
    group.add_argument(
        "--goal", action="append", default=[], type=timed, metavar="TEXT@SECONDS", dest="goals",
        help="a goal from then on: its next step is spoken when it is due, until it is reached or replaced",
    )  # fmt: skip
    group.add_argument(
        "--typed", action="store_true",
        help="lines typed on the terminal are asked as they come (needs --speed real); so are: goal: TEXT, give up, "
             "hush, repeat, read that, describe, more, less",
    )  # fmt: skip
    group.add_argument(
        "--sampling", default=_SAMPLING, metavar="uniform|backward|fixed:SECONDS|last",
        help="which frames a question takes, 8 at most: evenly over all that is held (60 s at most), one a second back "
             "from the question, evenly over the last SECONDS (default: fixed:10), or the newest alone",
    )  # fmt: skip
    group.add_argument(
        "--ocr", choices=("off", "auto", "on"), default="auto",
        help="text in the pictures: off; auto: read when a question is about it (default); on: read as frames arrive",
    )  # fmt: skip
    group.add_argument(
        "--labels", choices=("auto", "on", "off"), default="auto",
        help="words for obstacles (\"chair\") from a detector (`handrail models fetch nanodet`): auto: when a model "
             "is given (default)",
    )  # fmt: skip
    group.add_argument(
        "--provider", choices=("cpu", "cuda", "tensorrt"), help="where the model runs (default: what it was made for)"
    )


def timed(text: str) -> tuple[str, float]:
    """TEXT@SECONDS"""
    words, at, seconds = text.rpartition("@")
    try:
        at_s = float(seconds)
    except ValueError:
        at_s = math.nan
    if not at or not words.strip() or not 0 <= at_s < math.inf:
        raise argparse.ArgumentTypeError(f"expected TEXT@SECONDS, like \"what is ahead?@12.5\", got {text[:80]!r}")
    return words.strip(), at_s


def _loaded(args: argparse.Namespace) -> Loaded | None:
    """What answers are made with; None where nothing of it is asked for."""
    if args.sampling != _SAMPLING and args.model is None:
        raise ConfigError(f"--sampling {args.sampling}: says which frames a model is shown; add --model BUNDLE")
    wanted = args.model is not None or args.questions or args.goals or args.typed
    if not wanted and args.labels != "on" and args.ocr != "on" and args.provider is None:
        return None
    from handrail.runtime.answer import opening  # needs onnxruntime and tokenizers
    from handrail.runtime.engine.features import Sampling
    from handrail.runtime.progress import BytesBar

    asked = [opening.Asked(text, at_s) for text, at_s in args.questions]
    asked += [opening.Asked(f"goal: {text}", at_s) for text, at_s in args.goals]
    labels = args.labels == "on" or (args.labels == "auto" and args.model is not None)
    if args.typed and args.speed == "virtual":
        raise ConfigError("--typed: is asked in real time; add --speed real")
    if args.provider is not None and args.model is None:
        raise ConfigError(f"--provider {args.provider}: says where a model runs; add --model BUNDLE")
    options = opening.Options(
        args.model, args.provider, Sampling.parse(args.sampling), args.ocr, labels,
        tuple(sorted(asked, key=lambda a: a.at_s)), args.typed,
    )  # fmt: skip
    with BytesBar("model") as bar:
        return opening.load(options, hashed=bar, said=lambda line: say(line, sys.stderr))


def _drawn(uri: str, *, pictures: bool) -> str:
    """A simulated walk as a tape: drawing its frames takes longer than walking. ``pictures``: colour ones too."""
    from handrail.runtime.recorder import Bar
    from handrail.runtime.replay import PICTURES_HZ
    from handrail.streams.drawn import tape_of
    from handrail.streams.source import DecodePlan

    def opened(info: SourceInfo) -> None:
        say(f"drawing {info.uri} first, once: {info.duration_s or 0:.0f} s of walk", sys.stderr)
        bar.opened(info)

    with Bar("drawing") as bar:
        plan = DecodePlan(rgb_hz=PICTURES_HZ) if pictures else DecodePlan()
        return f"tape:{tape_of(uri, opened, bar.sample, plan)}"


def _folder(path: Path) -> Path:
    """Made when missing. Raises OutputError when it can't be written to."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise OutputError(f"--out {path}: can't be made ({e.strerror}); choose another folder") from e
    if not os.access(path, os.W_OK | os.X_OK):
        raise OutputError(f"--out {path}: no permission to write there; choose another folder")
    return path


command = ReplayCommand()
