"""Where a bundle's graphs run: ONNX Runtime's providers, asked for strictly, and the shapes TensorRT is built for.

A provider that was asked for and doesn't load is an error with its reason, not a silent fall-back to the CPU.
TensorRT builds its engines on the device, from the bundle's plain graphs, for explicit ranges of every shape that
changes; what can be told of that without a GPU is told beforehand (``faults``). Knows nothing of what graphs compute.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from handrail.runtime.bundle import About, Manifest
from handrail.runtime.grid.imu import AXES, LENGTH
from handrail.streams.errors import ConfigError, MissingDependencyError

Provider = Literal["cpu", "cuda", "tensorrt"]
NAMES: dict[Provider, str] = {
    "cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider", "tensorrt": "TensorrtExecutionProvider",
}  # fmt: skip
OPSET = 20  # the newest that TensorRT's parser takes
LONGEST = 4096  # tokens of a prompt and its answer
CHUNK = 1024  # of a prompt, read at one time
MOST_FRAMES, MOST_WINDOWS = 8, 128

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Range:
    """Of one input's shape; ``usual`` is what the engine is tuned for."""

    least: Shape
    usual: Shape
    most: Shape


def profile(manifest: About, graph: str) -> dict[str, Range]:
    """Input -> the shapes that the runtime gives it; inputs whose shape is fixed aren't in it."""
    match graph:
        case "vision.onnx":
            pixels = tuple(manifest.vision["pixels"])
            return {"pixels": Range((1, *pixels), (1, *pixels), (MOST_FRAMES, *pixels))}
        case "primus.onnx":
            return {"windows": Range(*((n, AXES, LENGTH) for n in (1, 2, MOST_WINDOWS)))}
        case "fusion.onnx":
            return {}
        case "decoder.onnx":
            return _decoder(manifest.decoder)
    raise ConfigError(f"{graph}: a bundle has no such graph")


def _decoder(decoder: Mapping[str, Any]) -> dict[str, Range]:
    """Any number of new tokens up to ``CHUNK`` after a past of any length; tuned for one after half the longest."""
    d, axes, past = decoder["d_model"], decoder["axes"], LONGEST // 2
    found = {
        "inputs_embeds": Range((1, 1, d), (1, 1, d), (1, CHUNK, d)),
        "position_ids": Range((axes, 1, 1), (axes, 1, 1), (axes, 1, CHUNK)),
    }
    for mask in decoder["masks"]:
        found[mask] = Range((1, 1, 1, 1), (1, 1, 1, past + 1), (1, 1, CHUNK, LONGEST + CHUNK))
    if k := decoder["deepstack"]:
        found["deepstack"] = Range((k, 1, 1, d), (k, 1, 1, d), (k, 1, CHUNK, d))
    heads, width = decoder["kv_heads"], decoder["head_dim"]
    kept = Range((1, heads, 0, width), (1, heads, past, width), (1, heads, LONGEST, width))
    return found | {f"past.{n}.{part}": kept for n in range(decoder["layers"]) for part in ("key", "value")}


def faults(model: Any, found: Mapping[str, Range]) -> list[str]:
    """Why TensorRT can't take an ONNX model (``onnx.ModelProto``) with this profile: one line each, as far as can be
    told without it; none if it can."""
    lines = [f"opset {o.version} of {o.domain or 'ai.onnx'}: expected ai.onnx alone, {OPSET} at most"
             for o in model.opset_import if o.domain not in ("", "ai.onnx") or o.version > OPSET]  # fmt: skip
    lines += sorted({f"{node.op_type} of {node.domain}: not an operator of ONNX itself"
                     for node in model.graph.node if node.domain not in ("", "ai.onnx")})  # fmt: skip
    for i in model.graph.input:
        dims = [d.dim_value if d.HasField("dim_value") else None for d in i.type.tensor_type.shape.dim]
        lines += _shape_faults(i.name, dims, found.get(i.name))
    return lines


def _shape_faults(name: str, dims: list[int | None], found: Range | None) -> list[str]:
    if found is None:
        return [f"{name}: its shape {dims} changes and no range says how far"] if None in dims else []
    if len(dims) != len(found.least):
        return [f"{name}: {len(dims)} axes in the graph and {len(found.least)} in its range"]
    lines = []
    for axis, (dim, *of) in enumerate(zip(dims, found.least, found.usual, found.most, strict=True)):
        if of != sorted(of):
            lines.append(f"{name}: axis {axis}: {of} isn't in order")
        if dim is not None and {*of} != {dim}:
            lines.append(f"{name}: axis {axis}: {dim} in the graph, {of[0]} to {of[-1]} in its range")
    return lines


def tensorrt_options(manifest: Manifest, graph: str, cache: Path) -> dict[str, str]:
    """For ONNX Runtime's TensorRT provider: the ranges, and where built engines stay (they fit one device alone).

    In a folder for each bundle: the provider tells engines apart by file and node names, which all bundles share.
    """
    found = profile(manifest, graph)
    engines = cache / manifest.manifest_sha256[:24]
    options = {"trt_engine_cache_enable": "1", "trt_engine_cache_path": str(engines), "trt_fp16_enable": "0"}
    if found:
        for which, of in (("min", "least"), ("opt", "usual"), ("max", "most")):
            shapes = ",".join(f"{name}:{'x'.join(map(str, getattr(r, of)))}" for name, r in found.items())
            options[f"trt_profile_{which}_shapes"] = shapes
    return options


def open_session(
    graph: Path, provider: Provider, options: Mapping[str, str] | None = None, threads: int = 1, *, spin: bool = False,
    arena: bool = True,
) -> Any:
    """An ``onnxruntime.InferenceSession`` on that provider. Raises MissingDependencyError where it doesn't load.

    ``spin``: waiting threads keep their core, which is quicker alone and slower beside others. ``arena``: whether it
    keeps the memory that it once took; worth its size where sessions run all the time.
    """
    ort = _onnxruntime()
    settings = ort.SessionOptions()
    settings.intra_op_num_threads, settings.inter_op_num_threads = threads, 1
    settings.add_session_config_entry("session.intra_op.allow_spinning", str(int(spin)))
    settings.log_severity_level = 3
    settings.enable_cpu_mem_arena = arena
    settings.enable_mem_pattern = False  # one is kept for every shape, and prompts have any length
    # Measured for prompts of 170 tokens on two cores: its attention in one pass takes twice the time of that in three.
    os.environ.setdefault("ORT_GQA_DISABLE_FLASH_ATTENTION", "1")
    if provider == "tensorrt":  # of CUDA's graphs, what works out shapes rightly stays on the CPU
        settings.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    name = NAMES[provider]
    if name not in ort.get_available_providers():
        there = ", ".join(ort.get_available_providers())
        raise MissingDependencyError(
            f"{provider} was asked for, and the onnxruntime installed here has {there}: on a machine with a GPU, "
            f"pip uninstall onnxruntime, then pip install 'handrail[{provider}]'"
        )
    try:
        session = ort.InferenceSession(str(graph), settings, providers=[(name, dict(options or {}))])
    except Exception as e:  # native errors come as several types
        raise MissingDependencyError(f"{graph.name}: {provider} doesn't take it ({str(e).splitlines()[0]})") from e
    if name not in session.get_providers():
        raise MissingDependencyError(f"{provider} was asked for and didn't load: is there a device and its driver?")
    return session


def _onnxruntime() -> Any:
    try:
        import onnxruntime
    except ModuleNotFoundError as e:
        raise MissingDependencyError("onnxruntime isn't installed: pip install 'handrail[cpu]'") from e
    return onnxruntime
