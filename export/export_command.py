"""``handrail export``: a trained checkpoint becomes a bundle; ``--check`` compares its graphs with torch."""

from __future__ import annotations

import argparse
from typing import Any

from handrail.runtime.terminal import print_table, say, write_json
from handrail.streams.errors import ConfigError, MissingDependencyError


class ExportCommand:
    name = "export"
    help = "a trained checkpoint becomes a bundle that the runtime loads without torch"
    examples = (
        "handrail export runs/stage2/last --out bundles/walk",
        "handrail export runs/stage2/last --out bundles/walk --quant w8",
        "handrail export --check --tiny all --json parity.json",
    )

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--check", action="store_true", help="compare graphs with torch and write nothing")
        parser.add_argument(
            "--tiny", metavar="FAMILY", help="with --check: tiny random models of a family (qwen3-vl, ...), or all"
        )

    def run(self, args: argparse.Namespace) -> int:
        try:
            import handrail.export.checking as checking
            from handrail.export.backbones.families import FAMILIES
        except ModuleNotFoundError as e:
            raise MissingDependencyError(f"{e.name} isn't installed: run `make setup-export`") from e
        if not args.check or args.tiny is None:
            raise ConfigError("export: expected --check --tiny FAMILY")
        if args.tiny != "all" and args.tiny not in FAMILIES:
            raise ConfigError(f"--tiny {args.tiny}: expected all or one of {', '.join(FAMILIES)}")
        reports = [
            report
            for family in (FAMILIES if args.tiny == "all" else [args.tiny])
            for report in checking.check_tiny(family, say)
        ]
        return _told(reports, args.json)


def _told(reports: list[Any], json_file: Any) -> int:
    graphs = sorted({graph for r in reports for graph in r.max_abs_diff})
    print_table(
        "torch against ONNX Runtime: largest difference",
        ("backbone", "stage", "decoder", "tokens equal", *graphs),
        [(r.family, r.stage, r.variant, "yes" if r.tokens_equal else "NO",
          *(f"{r.max_abs_diff[g]:.1e}" for g in graphs)) for r in reports],
    )  # fmt: skip
    held = all(r.held for r in reports)
    if json_file is not None:
        write_json(json_file, {"held": held, "backbones": [r.to_json() for r in reports]})
    say("every greedy answer is the same" if held else "an answer differs: see the table")
    return 0 if held else 1


command = ExportCommand()
