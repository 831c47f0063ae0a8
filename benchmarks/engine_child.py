"""One engine with one model in a process of its own: reads lines of JSON, answers each with one.

    python engine_child.py '{"engine": "openvino-genai", "model": "ov-int8", "threads": 2, "prompt": 170, ...}'

Run as a file, in the engine's own interpreter, which needn't have Handrail: it imports what its engine needs and no
more. ``{"do": "measure"}`` reads the prompt and writes tokens, ``{"do": "perplexity"}`` reads a text. Tokens are given,
so that no tokenizer is timed. Greedy everywhere.
"""

from __future__ import annotations

import itertools
import json
import math
import sys
import time
from collections.abc import Callable
from typing import Any

Job = dict[str, Any]
WINDOW = 500  # tokens that a perplexity looks back at most: each window starts anew


class Handrail:
    def __init__(self, job: Job) -> None:
        from pathlib import Path

        import numpy as np

        from handrail.runtime.engine.decoder import Decoder

        self.np, folder, threads = np, Path(job["model"]), job["threads"]
        section = json.loads((folder / "section.json").read_text(encoding="utf-8"))
        self.table = np.load(folder.parent / "embeddings.npy", mmap_mode="r")
        self.decoder = Decoder.of_graph(folder / "decoder.onnx", section, threads=threads, spin=threads > 1)

    def begin(self) -> None:
        self.decoder.rewind(0)

    def read(self, tokens: list[int]) -> Any:
        first, n = self.decoder.length, len(tokens)
        return self.decoder.read(self.table[tokens], self.np.arange(first, first + n)[None], self.np.full(n, -1))


class OfBundle:
    """A bundle's decoder and its encoder; tokens are any, since times need no others."""

    def __init__(self, job: Job) -> None:
        from pathlib import Path

        import numpy as np

        from handrail.runtime.bundle import open_bundle
        from handrail.runtime.engine.decoder import Decoder
        from handrail.runtime.providers import open_session

        bundle, threads = open_bundle(Path(job["model"])), job["threads"]
        self.np, self.axes, self.table = np, bundle.manifest.decoder["axes"], bundle.embeddings()
        self.decoder = Decoder(bundle, threads=threads, spin=threads > 1)
        self.vision = open_session(bundle.path("vision.onnx"), "cpu", threads=threads, spin=threads > 1)
        self.frame = np.zeros((1, *bundle.manifest.vision["pixels"]), np.float32)

    def measure(self, prompt: list[int], new: int) -> dict[str, float]:
        began = time.perf_counter()
        self.vision.run(None, {"pixels": self.frame})
        encoded = time.perf_counter()
        return {"encode_ms": (encoded - began) * 1e3, **in_turn(self, prompt, new)}

    def begin(self) -> None:
        self.decoder.rewind(0)

    def read(self, tokens: list[int]) -> Any:
        np, first, n = self.np, self.decoder.length, len(tokens)
        embeds = np.asarray(self.table[np.array(tokens) % len(self.table)], np.float32)
        places = np.broadcast_to(np.arange(first, first + n), (self.axes, n))
        return self.decoder.read(embeds, places, np.full(n, -1))


class Transformers:
    def __init__(self, job: Job) -> None:
        import torch
        from transformers import AutoModelForCausalLM

        torch.set_num_threads(job["threads"])
        self.torch: Any = torch
        self.model = AutoModelForCausalLM.from_pretrained(job["model"], dtype=torch.float32).eval()
        self.past: Any = None

    def begin(self) -> None:
        self.past = None

    def read(self, tokens: list[int]) -> Any:
        with self.torch.inference_mode():
            out = self.model(
                self.torch.tensor([tokens]), past_key_values=self.past, use_cache=True, logits_to_keep=1
            )
        self.past = out.past_key_values
        return out.logits[0, -1].numpy()


class LlamaCpp:
    def __init__(self, job: Job) -> None:
        import llama_cpp
        import numpy as np

        self.c, self.np = llama_cpp, np
        plain = llama_cpp.llama_model_default_params
        if job.get("no_tiles"):

            def without_tiles() -> Any:
                parameters = plain()
                parameters.use_extra_bufts = False
                return parameters

            llama_cpp.llama.llama_cpp.llama_model_default_params = without_tiles
        self.llm = llama_cpp.Llama(
            job["model"], n_ctx=2048, n_batch=512, n_threads=job["threads"], n_threads_batch=job["threads"],
            verbose=False,
        )  # fmt: skip
        self.context = self.llm.ctx
        self.vocabulary = self.llm.n_vocab()

    def begin(self) -> None:
        self.c.llama_memory_clear(self.c.llama_get_memory(self.context), True)

    def read(self, tokens: list[int]) -> Any:
        array = (self.c.llama_token * len(tokens))(*tokens)
        if self.c.llama_decode(self.context, self.c.llama_batch_get_one(array, len(tokens))):
            raise RuntimeError("llama_decode failed")
        return self.np.ctypeslib.as_array(self.c.llama_get_logits_ith(self.context, -1), (self.vocabulary,))


class OnnxGenai:
    def __init__(self, job: Job) -> None:
        import onnxruntime_genai as og

        config = og.Config(job["model"])
        threads = {"intra_op_num_threads": job["threads"]}
        config.overlay(json.dumps({"model": {"decoder": {"session_options": threads}}}))
        self.og, self.model = og, og.Model(config)
        self.generator: Any = None

    def begin(self) -> None:
        parameters = self.og.GeneratorParams(self.model)
        parameters.set_search_options(max_length=1024, min_length=1024, do_sample=False)
        self.generator = self.og.Generator(self.model, parameters)

    def read(self, tokens: list[int]) -> Any:
        self.generator.append_tokens(tokens)
        return self.generator.get_logits()[0, -1]

    def measure(self, prompt: list[int], new: int) -> dict[str, float]:
        """By its own loop, which is quicker than looking at scores."""
        self.begin()
        began = time.perf_counter()
        self.generator.append_tokens(prompt)
        read = time.perf_counter()
        self.generator.generate_next_token()
        first = time.perf_counter()
        for _ in range(new):
            self.generator.generate_next_token()
        return timed(began, read, first, time.perf_counter(), new)


class OpenVino:
    def __init__(self, job: Job) -> None:
        import numpy as np
        import openvino as ov
        import openvino_genai as genai

        self.ov, self.np, self.genai, self.job = ov, np, genai, job
        self.pipeline = genai.LLMPipeline(job["model"], "CPU", INFERENCE_NUM_THREADS=job["threads"])
        self.request: Any = None
        self.length = 0

    def measure(self, prompt: list[int], new: int) -> dict[str, float]:
        config = self.genai.GenerationConfig()
        config.max_new_tokens, config.ignore_eos, config.do_sample = new + 1, True, False
        ids = self.np.array([prompt], self.np.int64)
        fed = self.genai.TokenizedInputs(self.ov.Tensor(ids), self.ov.Tensor(self.np.ones_like(ids)))
        metrics = self.pipeline.generate(fed, config).perf_metrics
        first_ms, step_ms = float(metrics.get_ttft().mean), float(metrics.get_tpot().mean)
        return {"prefill_ms": first_ms, "ttft_ms": first_ms, "decode_tok_s": 1e3 / step_ms}

    def begin(self) -> None:
        """Its pipeline gives no scores: the same model through OpenVINO itself."""
        if self.request is None:
            path = f"{self.job['model']}/openvino_model.xml"
            compiled = self.ov.Core().compile_model(path, "CPU", {"INFERENCE_NUM_THREADS": self.job["threads"]})
            self.request = compiled.create_infer_request()
        self.request.reset_state()
        self.length = 0

    def read(self, tokens: list[int]) -> Any:
        np, first, n = self.np, self.length, len(tokens)
        self.length += n
        fed = {
            "input_ids": np.array([tokens], np.int64), "attention_mask": np.ones((1, self.length), np.int64),
            "position_ids": np.arange(first, self.length)[None], "beam_idx": np.zeros(1, np.int32),
        }  # fmt: skip
        known = {name for i in self.request.model_inputs for name in i.names}
        return self.request.infer({k: v for k, v in fed.items() if k in known})["logits"][0, -1]


ENGINES: dict[str, Callable[[Job], Any]] = {
    "handrail": Handrail, "bundle": OfBundle, "transformers": Transformers, "llama-cpp-python": LlamaCpp,
    "onnxruntime-genai": OnnxGenai, "openvino-genai": OpenVino,
}  # fmt: skip


def timed(began: float, read: float, first: float, end: float, new: int) -> dict[str, float]:
    return {"prefill_ms": (read - began) * 1e3, "ttft_ms": (first - began) * 1e3, "decode_tok_s": new / (end - first)}


def measure(engine: Any, prompt: list[int], new: int) -> dict[str, float]:
    return dict(engine.measure(prompt, new)) if hasattr(engine, "measure") else in_turn(engine, prompt, new)


def in_turn(engine: Any, prompt: list[int], new: int) -> dict[str, float]:
    """The prompt, then a token at a time."""
    engine.begin()
    began = time.perf_counter()
    scores = engine.read(prompt)
    read = time.perf_counter()
    token = int(scores.argmax())
    first = time.perf_counter()
    for _ in range(new):
        token = int(engine.read([token]).argmax())
    return timed(began, read, first, time.perf_counter(), new)


def perplexity(engine: Any, text: list[int]) -> dict[str, float]:
    """Of every token given those before it in its window, read one at a time as in an answer."""
    import numpy as np

    losses = []
    for start in range(0, len(text), WINDOW):
        window = text[start : start + WINDOW]
        engine.begin()
        for token, following in itertools.pairwise(window):
            scores = np.asarray(engine.read([token]), np.float64)
            losses.append(float(np.logaddexp.reduce(scores) - scores[following]))
    return {"ppl": math.exp(sum(losses) / len(losses))}


def peak_mib() -> dict[str, float]:
    with open("/proc/self/status", encoding="ascii") as lines:
        return {"peak_mib": next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))}


def main() -> None:
    job = json.loads(sys.argv[1])
    answers = sys.stdout

    def answer(what: Any) -> None:
        answers.write(json.dumps(what) + "\n")
        answers.flush()

    sys.stdout = sys.stderr
    try:
        engine = ENGINES[job["engine"]](job)
        answer({"ready": True})
        for line in sys.stdin:
            match json.loads(line):
                case {"do": "measure", "turn": turn}:
                    answer(measure(engine, job["text"][turn : turn + job["prompt"]], job["new"]))
                case {"do": "memory"}:
                    answer(peak_mib())
                case _:
                    answer(perplexity(engine, job["text"]))
    except Exception as e:  # the parent tells it in its table
        answer({"error": f"{type(e).__name__}: {str(e).splitlines()[0] if str(e) else ''}"[:200]})


if __name__ == "__main__":
    main()
