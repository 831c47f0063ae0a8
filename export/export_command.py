"""``handrail export``: a trained checkpoint becomes a bundle; ``--check`` compares graphs with torch."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from handrail.runtime.terminal import print_table, say, write_json
from handrail.streams.errors import ConfigError, HandrailError, MissingDependencyError, SourceError

if TYPE_CHECKING:
    from handrail.export.graphs.quantise import Quant
    from handrail.export.parity.compare import Report

INSTALL = "run `make setup-export`"


class ExportCommand:
    name = "export"
    help = "a trained checkpoint becomes a bundle that the runtime loads without torch"
    examples = (
        "handrail export runs/stage2 --out bundles/walk",
        "handrail export runs/stage2 --out bundles/walk --quant w8 --imu-encoder best_model.ckpt",
        "handrail export tiny:qwen3-vl --out bundles/random --provider tensorrt",
        "handrail export --check --tiny all --json parity.json",
        "handrail export --check --language smollm2-135m --text essay.txt",
        "handrail export --check --random 125,250,500",
    )

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add = parser.add_argument
        add("checkpoint", nargs="?", type=Path, metavar="CHECKPOINT", help="of a training, tiny:FAMILY, or random:SIZE")
        add("--out", type=Path, metavar="BUNDLE", help="the folder to make")
        add("--replace", action="store_true", help="the bundle that is there, in one step")
        add("--quant", choices=("none", "w8", "w4"), default="none", help="of encoder's and decoder's weights (none)")
        add("--provider", choices=("cpu", "cuda", "tensorrt"), default="cpu",
            help="cpu: with ONNX Runtime's own operators (default); the others: as ONNX alone has them")  # fmt: skip
        add("--imu-encoder", type=Path, metavar="FILE", help="the PRIMUS weights it was trained with")
        add("--backbone", metavar="SOURCE", help="where the backbone lies now, if it has moved")
        add("--check", action="store_true", help="compare graphs with torch; with a checkpoint, those of its bundle")
        add("--tiny", metavar="FAMILY", help="with --check alone: random models of a family (qwen3-vl, ...), or all")
        add("--language", metavar="NAME|DIR",
            help="with --check alone: a language model, its greedy text and perplexities")
        add("--random", type=_millions, metavar="N[,N]",
            help="with --check alone: random models of N million parameters, time and memory of their export")
        add("--text", type=Path, metavar="FILE", help="for the perplexities: 2,000 tokens or more")

    def run(self, args: argparse.Namespace) -> int:
        _needs_torch()
        alone = [f"--{name}" for name in ("tiny", "language", "random") if getattr(args, name) is not None]
        if len(alone) > 1 or (alone and (args.checkpoint or args.out)):
            raise ConfigError(f"{alone[0]}: a check of its own; leave out CHECKPOINT, --out and other checks")
        if args.tiny is not None:
            return _tiny(args)
        if args.language is not None:
            return _language(args)
        if args.random is not None:
            return _memory(args)
        if args.checkpoint is None or args.out is None:
            raise ConfigError("export: expected CHECKPOINT and --out, or --check with --tiny, --language or --random")
        return _bundle(args)


def _needs_torch() -> None:
    try:
        import onnxscript
        import torch
        import transformers

        del onnxscript, torch, transformers
    except ModuleNotFoundError as e:
        raise MissingDependencyError(f"export needs {e.name}, which isn't installed: {INSTALL}") from e


def _bundle(args: argparse.Namespace) -> int:
    from handrail.export.backbones.sources import RANDOM, TINY
    from handrail.export.bundles.bundling import write_bundle
    from handrail.export.bundles.loading import load_trained, untrained
    from handrail.export.parity.checking import BundleCheck
    from handrail.runtime.bundle import check_destination, open_bundle

    check_destination(args.out, args.replace)
    if str(args.checkpoint).startswith((TINY, RANDOM)):
        if args.imu_encoder or args.backbone:
            raise ConfigError(f"--imu-encoder and --backbone: {args.checkpoint} is untrained and has its own")
        parts = untrained(str(args.checkpoint))
    else:
        parts = load_trained(args.checkpoint, args.imu_encoder, backbone=args.backbone)
    reports: list[Report] = []
    compare = BundleCheck(parts, args.quant, args.provider) if args.check else None

    def look(folder: Path) -> None:
        if compare is not None:
            say("compared with torch")
            reports.append(compare(folder))
            if not reports[0].held:
                raise HandrailError("a graph differs from torch: see the table; no bundle was made")

    try:
        write_bundle(parts, args.out, args.quant, args.provider, replace=args.replace, step=say, look=look)
    finally:
        if reports:
            _told(reports, args.json, {})
    bundle = open_bundle(args.out)
    total = sum(f.bytes for f in bundle.manifest.files.values())
    if args.json is not None:
        made = {"bundle": str(args.out), "files": len(bundle.manifest.files), "bytes": total}
        write_json(args.json, made | {"compared": [r.to_json() for r in reports]})
    say(f"{args.out}: {len(bundle.manifest.files)} files, {total / 1e6:.1f} MB, verified")
    return 0


def _tiny(args: argparse.Namespace) -> int:
    from handrail.export.backbones.families import FAMILIES
    from handrail.export.parity.checking import PAPER_WIDTH, STAGES, check_tiny, fusion_parameters

    if not args.check:
        raise ConfigError("--tiny: only with --check")
    if args.tiny != "all" and args.tiny not in FAMILIES:
        raise ConfigError(f"--tiny {args.tiny}: expected all or one of {', '.join(FAMILIES)}")
    families = FAMILIES if args.tiny == "all" else [args.tiny]
    reports = [report for family in families for report in check_tiny(family, say)]
    sizes = {f"stage {stage}, d_lm {PAPER_WIDTH}": fusion_parameters(PAPER_WIDTH, stage) for stage in STAGES}
    for network, parameters in sizes.items():
        say(f"fusion network, {network}: {parameters:,} parameters")
    return _told(reports, args.json, sizes)


def _told(reports: list[Report], json_file: Path | None, sizes: dict[str, int]) -> int:
    graphs = sorted({graph for r in reports for graph in r.max_abs_diff})
    print_table(
        "torch against ONNX Runtime: largest difference",
        ("backbone", "stage", "graphs", "tokens equal", *graphs),
        [(r.family, r.stage, r.variant, "yes" if r.tokens_equal else "NO",
          *(f"{r.max_abs_diff.get(g, 0.0):.1e}" for g in graphs)) for r in reports],
    )  # fmt: skip
    held = all(r.held for r in reports)
    if json_file is not None:
        write_json(json_file, {"held": held, "fusion": sizes, "backbones": [r.to_json() for r in reports]})
    if all(r.tokens_equal for r in reports):
        say("every greedy answer is the same")
    else:
        say("greedy answers differ, as weights in few bits may do" if held else "a graph differs: see the table")
    return 0 if held else 1


def _language(args: argparse.Namespace) -> int:
    from handrail.export.parity.language import TEXT_TOKENS, check_language
    from handrail.export.weights import registry as models

    if not args.check or args.text is None:
        raise ConfigError("--language: expected --check and --text FILE with it")
    try:
        text = args.text.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as e:
        raise SourceError(f"{args.text}: can't be read as text ({e})") from e
    folder = str(models.ready(args.language)) if args.language in models.registry() else args.language
    report = check_language(folder, text, say)
    print_table(
        f"perplexity of {report.tokens} tokens" + ("" if report.tokens >= TEXT_TOKENS else " (fewer than comparable)"),
        ("weights", "perplexity", "MB", "export s"),
        [(name, value, report.megabytes.get(name), report.export_s.get(name))
         for name, value in report.perplexity.items()],
    )  # fmt: skip
    if args.json is not None:
        write_json(args.json, report.to_json())
    say("greedy text equal to transformers: " + ("yes" if report.greedy_equal else "NO"))
    return 0 if report.greedy_equal else 1


def _millions(text: str) -> list[int]:
    numbers = [int(n) if n.isascii() and n.isdigit() else 0 for n in text.split(",")]
    if not all(1 <= n <= 100_000 for n in numbers):
        raise argparse.ArgumentTypeError(f"expected millions of parameters, as 125,250, got {text!r}")
    return numbers


def _memory(args: argparse.Namespace) -> int:
    from handrail.export.parity.memory import LEAST, check_memory

    if not args.check:
        raise ConfigError("--random: only with --check")
    if min(args.random) < LEAST:
        raise ConfigError(f"--random {min(args.random)}: expected {LEAST} million parameters or more")
    quants: tuple[Quant, ...] = ("none", "w8", "w4") if args.quant == "none" else (args.quant,)
    rows = list(check_memory(args.random, quants, say))
    print_table(
        "export of a random decoder",
        ("million parameters", "weights", "in float32 GiB", "peak GiB", "copies", "s"),
        [(round(r.parameters / 1e6), r.quant, r.weights_gib, r.peak_gib, r.copies, r.seconds) for r in rows],
    )
    held = all(r.copies < 2 for r in rows)
    if args.json is not None:
        write_json(args.json, {"held": held, "rows": [asdict(r) for r in rows]})
    say("never two copies in float32" if held else "two copies in float32 were held: see the table")
    return 0 if held else 1


command = ExportCommand()
