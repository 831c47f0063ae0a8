"""``handrail replay URI --out DIR``: the replay with everything it leaves behind.

    events.jsonl   what happened, the same bit for bit every time (mode 0600: it says where somebody walked)
    timings.jsonl  what was measured: stage times
    guidance.wav   what was heard, on the recording's time line
    report.html    the page to look at
    summary.json   the figures, keys stable
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from handrail.runtime.terminal import say, write_json
from handrail.streams.errors import ConfigError, DeviceError, OutputError

if TYPE_CHECKING:
    from handrail.streams.source import SourceInfo


class ReplayCommand:
    name = "replay"
    help = "play a recording or a simulated walk through the whole path: what would have been heard, when, and why"
    examples = (
        "handrail replay world:7 --out out/walk",
        "handrail replay vrs:walk.vrs --out out/walk --json figures.json",
        'handrail replay "world:7?kind=head-bar" --config wearer.toml',
        'handrail replay "vrs:walk.vrs?loop=25" --out out/load --speed real --sound card',
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
            help="the wearer's settings, TOML: [wearer] speech_rate_wpm, units, step_length_m, directions, mono; "
                 "[audio] voice, period_ms",
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
        out = _folder(args.out)
        wav = out / "guidance.wav" if args.sound == "wav" else None
        uri = _drawn(args.uri) if args.speed == "real" and args.uri.startswith("world:") else args.uri
        with Recorder(out, report=not args.no_report) as recorder:
            replayed = replay(
                uri, config=config, speed=args.speed, sound=args.sound, wav=wav, hooks=recorder.hooks()
            )
        summary = recorder.finish(replayed, wav)
        for path in filter(None, (out / "summary.json", args.json)):
            write_json(path, summary)
        print_summary(summary)
        say(recorder.in_one_line(summary))
        for note in replayed.info.notes:
            say(f"note: {note}")
        say(f"results: {out}" + ("" if args.no_report else f"; look at {out / 'report.html'}"))
        if (lost := recorder.sound_lost) is not None:
            raise DeviceError(f"not all of it was heard: {lost}")
        return 0


def _drawn(uri: str) -> str:
    """A simulated walk as a tape: its pictures take longer to draw than to walk through."""
    from handrail.runtime.recorder import Bar
    from handrail.streams.drawn import tape_of

    def opened(info: SourceInfo) -> None:
        say(f"drawing {info.uri} first, once: {info.duration_s or 0:.0f} s of walk", sys.stderr)
        bar.opened(info)

    with Bar("drawing") as bar:
        return f"tape:{tape_of(uri, opened, bar.sample)}"


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
