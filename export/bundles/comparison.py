"""One language model's weights in every engine's format, all made from one float32 copy: for ``handrail bench engine``.

    python -m handrail.export.bundles.comparison '{"model": "smollm2-135m", "folder": DIR, "engine": "handrail", ...}'

A line of JSON is answered: the tokens of a text, or why a format couldn't be made. Ours and GGUF are made here. The
formats of onnxruntime-genai and OpenVINO are made by their own tools, in the interpreter that has them; whatever lies
in the folder already is taken as it is.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from handrail.export.weights import registry as models

BITS = {32: "fp32", 8: "int8", 4: "int4"}
QUANTS = {32: "none", 8: "w8", 4: "w4"}
GGUF = {32: "F32", 8: "Q8_0", 4: "Q4_0"}


def answer(job: dict[str, Any]) -> dict[str, Any]:
    """``engine`` and ``bits``: the format to make, at ``target``, with ``python``; else the tokens of the file
    ``text``."""
    source, folder = models.ready(job["model"]), Path(job["folder"])
    folder.mkdir(parents=True, exist_ok=True)
    unpack(source, folder)
    if "engine" in job:
        return {"fault": make(job["engine"], job["bits"], folder, Path(job["target"]), source, job["python"])}
    from handrail.export.backbones.text import open_text

    text = Path(job["text"]).read_text(encoding="utf-8")
    return {"tokens": open_text(str(folder / "fp32")).prompter.encode(text)}


def make(engine: str, bits: int, folder: Path, target: Path, source: Path, python: str) -> str | None:
    """If it isn't there. Returns why it couldn't be made, or None."""
    if target.exists():
        return None
    try:
        if engine == "handrail":
            _ours(target, bits, folder / "fp32")
        elif engine == "llama-cpp-python":
            _gguf(target, GGUF[bits], source)
        elif engine == "onnxruntime-genai":
            _run(python, "-m", "onnxruntime_genai.models.builder", "-i", str(folder / "fp32"), "-o", str(target),
                 "-p", BITS[bits], "-e", "cpu", "-c", str(folder / "cache"), "--extra_options",
                 "accuracy_level=4")  # fmt: skip
        elif engine == "openvino-genai":
            _run(python, "-m", "optimum.commands.optimum_cli", "export", "openvino", "-m", str(folder / "fp32"),
                 "--task", "text-generation-with-past", "--weight-format", BITS[bits], str(target))  # fmt: skip
    except (OSError, subprocess.CalledProcessError) as e:
        detail = getattr(e, "stderr", None) or str(e)
        return f"its model can't be made: {detail.strip().splitlines()[-1][:160] if detail.strip() else e}"
    return None


def unpack(source: Path, folder: Path) -> None:
    """To ``folder/fp32``, once, in the format of transformers."""
    target = folder / "fp32"
    if target.exists():
        return
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    packed = next(source.glob("*.gguf")).name
    tokenizer = AutoTokenizer.from_pretrained(source, gguf_file=packed)
    model = AutoModelForCausalLM.from_pretrained(source, gguf_file=packed, dtype=torch.float32)
    plain = model.config.to_dict()
    plain.pop("quantization_config", None)
    whole = type(model)(type(model.config)(**plain))
    whole.load_state_dict(model.state_dict())
    whole.float().save_pretrained(target)
    tokenizer.save_pretrained(target)


def _ours(target: Path, bits: int, fp32: Path) -> None:
    import numpy as np
    import torch

    from handrail.export.backbones.text import open_text
    from handrail.export.bundles.bundling import decoder_section, write_decoder

    backbone, quant = open_text(str(fp32)), QUANTS[bits]
    target.mkdir(parents=True)
    write_decoder(backbone, target / "decoder.onnx", quant, "cpu")  # type: ignore[arg-type]
    section = decoder_section(backbone, quant)  # type: ignore[arg-type]
    table = backbone.embed(torch.arange(backbone.text_config.vocab_size)).detach().numpy()
    np.save(target.parent / "embeddings.npy", table)
    (target / "section.json").write_text(json.dumps(section), encoding="utf-8")


def _gguf(target: Path, kind: str, source: Path) -> None:
    """From the packed file's values, unpacked; all matrices in the one kind."""
    import numpy as np
    from gguf import GGMLQuantizationType, GGUFReader, GGUFValueType, GGUFWriter
    from gguf.quants import dequantize, quantize

    reader = GGUFReader(next(source.glob("*.gguf")))
    writer = GGUFWriter(target, reader.fields["general.architecture"].contents())
    for key, field in reader.fields.items():
        if key.startswith("GGUF.") or key in ("general.architecture", "general.quantization_version"):
            continue
        if field.types[0] == GGUFValueType.ARRAY:
            writer.add_array(key, field.contents())
        elif key != "general.file_type":
            writer.add_key_value(key, field.contents(), field.types[0])
    wanted = GGMLQuantizationType[kind]
    for tensor in reader.tensors:
        whole = dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        if whole.ndim > 1 and wanted != GGMLQuantizationType.F32:
            writer.add_tensor(tensor.name, quantize(whole, wanted), raw_dtype=wanted)
        else:
            writer.add_tensor(tensor.name, whole)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _run(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True, text=True)  # noqa: S603


if __name__ == "__main__":
    sys.stdout.write(json.dumps(answer(json.loads(sys.argv[1]))) + "\n")
