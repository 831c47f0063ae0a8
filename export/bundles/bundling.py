"""A trained model becomes a bundle: graphs, embeddings, tokenizer, statistics, each hashed in the manifest.

Adapters are merged into the weights first. One large thing at a time is in memory beside the model itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import onnx
import torch
from torch import nn

from handrail.export.backbones.base import Backbone
from handrail.export.graphs.causal import causal_graph, is_causal
from handrail.export.graphs.decoder import decoder_graph, mask_names
from handrail.export.graphs.linears import Blocks, Rows, linears_of
from handrail.export.graphs.onnx_file import fused, let_go, save
from handrail.export.graphs.quantise import Quant, quantise
from handrail.export.graphs.sensors import write_fusion, write_primus, write_vision
from handrail.export.model.fused import FusedModel
from handrail.export.model.fusion import TOKENS_OUT
from handrail.runtime.bundle import About, BundleWriter, Source
from handrail.runtime.engine.decoder import PREFILL
from handrail.runtime.grid import Statistics
from handrail.runtime.providers import Provider, faults, profile
from handrail.streams.errors import ConfigError, HandrailError

ROWS = 8192  # of the embedding table at a time


@dataclass(frozen=True, slots=True)
class Parts:
    """All that a bundle is made from."""

    model: FusedModel
    primus: nn.Module | None  # None: trained without the IMU stream
    statistics: Statistics
    source: Source  # of the backbone
    licence: str
    provenance: tuple[str, ...]  # a line each: from what, and how, it was trained


def write_bundle(
    parts: Parts, target: Path, quant: Quant, provider: Provider, *, replace: bool = False,
    step: Callable[[str], None] = lambda name: None, look: Callable[[Path], None] = lambda folder: None,
) -> None:
    """Whole or not at all. ``look`` is shown the folder of graphs before it becomes a bundle, and may raise. Raises
    BundleError, OutputError."""
    if provider == "tensorrt" and quant != "none":
        raise ConfigError(f"--quant {quant}: its operators are ONNX Runtime's own, which TensorRT doesn't take")
    with BundleWriter(target, replace=replace) as bundle:
        found = write_graphs(parts, bundle.folder, quant, provider, step)
        stage: Any = 0 if parts.model.fusion is None else parts.model.fusion.stage
        about = About(
            name=target.name, family=parts.model.backbone.family, source=parts.source, licence=parts.licence,
            provenance=parts.provenance, stage=stage, quantisation=quant, provider=provider, **found,
        )  # fmt: skip
        if provider == "tensorrt":
            _fit_for_tensorrt(bundle.folder, about)
        look(bundle.folder)
        step("hashes")
        bundle.describe(about)


def _fit_for_tensorrt(folder: Path, about: About) -> None:
    """As far as can be told without it. Raises HandrailError."""
    for path in sorted(folder.glob("*.onnx")):
        if lines := faults(onnx.load(str(path), load_external_data=False), profile(about, path.name)):
            raise HandrailError(f"{path.name}: TensorRT would not take it: {lines[0]} ({len(lines)} in all)")


def write_graphs(
    parts: Parts, folder: Path, quant: Quant = "none", provider: Provider = "cpu",
    step: Callable[[str], None] = lambda name: None,
) -> dict[str, Any]:
    """Into a folder; returns the sections of the manifest. ``step`` is told what comes next."""
    model, backbone = parts.model, parts.model.backbone
    backbone.merge_lora()
    step("vision graph")
    write_vision(backbone, folder, quant, provider)
    step("sensor graphs")
    if parts.primus is not None:
        write_primus(parts.primus, folder)
    if model.fusion is not None:
        write_fusion(model.fusion, backbone.d_model, folder)
    step("embeddings")
    write_embeddings(backbone, folder / "embeddings.npy")
    step("decoder")
    write_decoder(backbone, folder / "decoder.onnx", quant, provider)
    backbone.tokenizer.backend_tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "chat_template.jinja").write_text(backbone.side.template, encoding="utf-8")
    (folder / "statistics.json").write_bytes(msgspec.json.encode(parts.statistics.to_json()))
    return sections(parts, quant, provider)


def write_decoder(backbone: Backbone, path: Path, quant: Quant, provider: Provider) -> None:
    """With ONNX Runtime's operators for the CPU; as opset 20 alone has it for the others."""
    if provider == "cpu" and is_causal(backbone):
        _write_causal(backbone, path, quant)
        return
    graph = decoder_graph(backbone)
    if provider == "cpu":
        graph = fused(graph)
    whole = path if quant == "none" else path.with_name("decoder-whole.onnx")
    written = save(graph, whole)
    let_go(graph)
    if quant == "none":
        return
    quantise(whole, path, quant)
    for file in written:
        file.unlink()


def _write_causal(backbone: Backbone, path: Path, quant: Quant) -> None:
    """With weights in few bits also the graph that reads many tokens at a time, beside it."""
    linears = linears_of(quant)
    save(causal_graph(backbone, linears), path)
    if isinstance(linears, Blocks):
        save(causal_graph(backbone, Rows(linears)), path.with_name(PREFILL))


def write_embeddings(backbone: Backbone, path: Path) -> None:
    """[V, d], as the decoder takes them (Gemma's are scaled)."""
    table = backbone.model.get_input_embeddings().weight
    kind = np.float16 if table.dtype in (torch.float16, torch.bfloat16) else np.float32
    out = np.lib.format.open_memmap(path, mode="w+", dtype=kind, shape=tuple(table.shape))
    with torch.no_grad():
        for first in range(0, len(table), ROWS):
            ids = torch.arange(first, min(first + ROWS, len(table)), device=table.device)
            out[first : first + len(ids)] = backbone.embed(ids).float().cpu().numpy()
    out.flush()


def decoder_section(backbone: Backbone, quant: Quant = "none", provider: Provider = "cpu") -> dict[str, Any]:
    """What ``runtime.engine.decoder`` needs to know of ``decoder.onnx``."""
    text = backbone.text_config
    shared = provider == "cpu" and is_causal(backbone)
    return {
        "cache": "shared" if shared else "grown", "prefill": shared and quant != "none",
        "layers": text.num_hidden_layers, "kv_heads": text.num_key_value_heads,
        "head_dim": getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads,
        "d_model": backbone.d_model, "axes": 3 if backbone.mrope else 1,
        "masks": dict(zip(mask_names(backbone), backbone.windows().values(), strict=True)),
        "both_ways": backbone.both_ways, "deepstack": backbone.deepstack_layers,
    }  # fmt: skip


def sections(parts: Parts, quant: Quant = "none", provider: Provider = "cpu") -> dict[str, Any]:
    """What the runtime needs to know beside the graphs."""
    backbone, fusion = parts.model.backbone, parts.model.fusion
    return {
        "decoder": decoder_section(backbone, quant, provider),
        "vision": {
            "tokens_per_frame": backbone.tokens_per_frame, "grid": backbone.frame_grid,
            "pixels": backbone.side.image.shape,
        },
        "preprocess": msgspec.to_builtins(backbone.side.image),
        "tokens": msgspec.to_builtins(backbone.side.tokens),
        "fusion": {"stage": fusion.stage, "tokens": TOKENS_OUT[fusion.stage]} if fusion is not None else {},
    }  # fmt: skip
