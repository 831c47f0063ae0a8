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
from pathlib import Path

from handrail.runtime.terminal import say, write_json
from handrail.streams.errors import ConfigError, DeviceError, OutputError


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
                 "real: as it would be on the wearer, measured; not for world: on few cores, which draw it too slowly",
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
        with Recorder(out, report=not args.no_report) as recorder:
            replayed = replay(
                args.uri, config=config, speed=args.speed, sound=args.sound, wav=wav, hooks=recorder.hooks()
            )
        summary = recorder.finish(replayed, wav)
        for path in filter(None, (out / "summary.json", args.json)):
            write_json(path, summary)
        print_summary(summary)
        for note in replayed.info.notes:
            say(f"note: {note}")
        say(f"results: {out}" + ("" if args.no_report else f"; look at {out / 'report.html'}"))
        if (lost := recorder.sound_lost) is not None:
            raise DeviceError(f"not all of it was heard: {lost}")
        return 0


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
