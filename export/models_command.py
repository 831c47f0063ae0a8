"""``handrail models list|fetch|verify``: weights and tokenizers, pinned, fetched once and checked before use."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from handrail.runtime.terminal import print_table, say, write_json
from handrail.streams.errors import ConfigError


class ModelsCommand:
    name = "models"
    help = "weights and tokenizers for export: what there is, fetch it, verify it"
    examples = (
        "handrail models list",
        "handrail models fetch smollm2-135m",
        "handrail models fetch qwen3-vl-2b",
        "handrail models verify",
    )

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True, metavar="list|fetch|verify")
        what = "name, origin, licence and whether it is here"
        verbs.add_parser("list", help=what, description=what)
        what = ("fetch models into the cache ($HANDRAIL_CACHE, else ~/.cache/handrail); what was broken off goes on, "
                "what is here already and right stays. Of a hub's model (HF_ENDPOINT, HF_TOKEN) the pinned commit is "
                "fetched; what comes first is remembered with its hashes, and anything else is refused from then on")
        fetch = verbs.add_parser("fetch", help="fetch models into the cache, checked", description=what)
        fetch.add_argument("names", nargs="+", metavar="MODEL", help="as `handrail models list` shows them")
        fetch.add_argument("--revision", metavar="COMMIT", help="of a hub's model: another commit than the pinned one")
        what = "read every byte again and compare with what was pinned; exit code 1 when anything differs"
        verify = verbs.add_parser("verify", help=what, description=what)
        verify.add_argument("names", nargs="*", metavar="MODEL", help="all that are here when none is named")

    def run(self, args: argparse.Namespace) -> int:
        verbs: dict[str, Callable[[argparse.Namespace], tuple[int, dict[str, Any]]]] = {
            "list": _list, "fetch": _fetch, "verify": _verify,
        }  # fmt: skip
        code, figures = verbs[args.verb](args)
        if args.json is not None:
            write_json(args.json, figures)
        return code


command = ModelsCommand()


def _list(args: argparse.Namespace) -> tuple[int, dict[str, Any]]:
    from handrail.export.weights import registry as models

    rows: list[dict[str, Any]] = []
    for name, model in models.registry().items():
        pins = models.pins_of(name)
        rows.append({
            "model": name, "state": models.state(name), "bytes": sum(p.bytes for p in pins.values()) if pins else None,
            "licence": model.licence, "origin": model.origin, "about": model.about,
            "folder": str(models.folder_of(name)),
        })  # fmt: skip
    columns = ("model", "state", "MB", "licence", "from")
    print_table("models", columns, [
        (r["model"], r["state"], None if r["bytes"] is None else round(r["bytes"] / 1e6, 1), r["licence"], r["origin"])
        for r in rows
    ])  # fmt: skip
    return 0, {"models": rows}


def _fetch(args: argparse.Namespace) -> tuple[int, dict[str, Any]]:
    from handrail.export.weights import registry as models
    from handrail.export.weights.fetching import fetch
    from handrail.runtime.progress import BytesBar

    if args.revision is not None and len(args.names) > 1:
        raise ConfigError("--revision: a commit belongs to one model; fetch the others by themselves")
    for name in args.names:
        models.find(name)  # all of them are known before the first is fetched
    figures: list[dict[str, Any]] = []
    for name in args.names:
        model = models.find(name)
        say(f"{name}: from {model.origin}; licence: {model.licence}")
        with BytesBar(name) as bar:
            fetched = fetch(name, args.revision, bar.start)
        pins = models.pins_of(name) or {}
        folder = models.folder_of(name)
        size = sum(pin.bytes for pin in pins.values())
        say(f"{name}: {len(fetched)} of {len(pins)} files fetched, {size / 1e6:.1f} MB, all verified: {folder}")
        if name == "nanodet":
            from handrail.runtime.labels.opening import nanodet_path

            say(f"{name}: as ONNX, for the runtime: {nanodet_path()}")
        if isinstance(model, models.Hub) and (lock := models.read_lock(name, model)) is not None:
            say(f"{name}: pinned to commit {lock.revision} in {models.lock_path(name)}")
        figures.append({
            "model": name, "folder": str(folder), "fetched": fetched,
            "files": {file: {"bytes": pin.bytes, "sha256": pin.sha256} for file, pin in pins.items()},
        })  # fmt: skip
    return 0, {"models": figures}


def _verify(args: argparse.Namespace) -> tuple[int, dict[str, Any]]:
    from handrail.export.weights import registry as models
    from handrail.runtime.progress import BytesBar

    for name in args.names:
        models.find(name)
    names = args.names or [name for name in models.registry() if models.state(name) != "absent"]
    if not names:
        say("No model is here; `handrail models list` shows what there is.")
    figures: list[dict[str, Any]] = []
    for name in names:
        with BytesBar(name) as bar:
            found = models.faults(name, bar)
        for fault in found:
            say(f"{name}{'/' * bool(fault.file)}{fault.file}: {fault.what}")
        if not found:
            say(f"{name}: {len(models.pins_of(name) or {})} files, all as pinned")
        elif found[0].file:
            say(f"mend {name} with: handrail models fetch {name}")
        figures.append({"model": name, "ok": not found, "faults": found})
    return int(any(not f["ok"] for f in figures)), {"models": figures}
