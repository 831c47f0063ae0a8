"""A language model alone, through the decoder's export: for comparing quantisations on real weights.

No frames and no sensors: whoever asks for them gets an error.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, AutoTokenizer

from handrail.export.backbones.base import Backbone, Seen, Side
from handrail.export.backbones.opening import add_sensor_token, readable
from handrail.runtime.preprocess import ImagePlan
from handrail.runtime.preprocess.prompt import SENSOR, TokenPlan
from handrail.streams.errors import SourceError


class TextOnly(Backbone):
    family = "text"

    @property
    def language(self) -> nn.Module:
        return self.model.model

    @property
    def tokens_per_frame(self) -> int:
        return 0

    def see(self, pixels: Tensor) -> Seen:
        raise TypeError("a language model alone sees no frames")


def open_text(folder: str, dtype: torch.dtype = torch.float32) -> TextOnly:
    """From a local directory in the format of transformers, or with one GGUF file (its weights are unpacked). Raises
    SourceError."""
    if not Path(folder).is_dir():
        raise SourceError(f"{folder}: expected a folder with a language model, or a name that `handrail models` lists")
    gguf = sorted(Path(folder).glob("*.gguf"))
    packed: dict[str, Any] = {"gguf_file": gguf[0].name} if gguf else {}
    safe = {} if gguf else {"use_safetensors": True}
    plain: dict[str, Any] = {"trust_remote_code": False, **packed}
    with readable(folder, "no language model there"):
        tokenizer: Any = AutoTokenizer.from_pretrained(folder, **plain)
        model, loaded = AutoModelForCausalLM.from_pretrained(
            folder, dtype=dtype, attn_implementation="sdpa", output_loading_info=True, **plain, **safe
        )
    if missing := sorted(loaded["missing_keys"]):
        raise SourceError(f"{folder}: expected weights of {missing[0]}, found none ({len(missing)} are missing)")
    add_sensor_token(model, tokenizer)
    model.config.text_config = model.config  # as in the others
    return TextOnly(model, tokenizer, text_side(tokenizer))


def text_side(tokenizer: Any) -> Side:
    """The question alone is the prompt."""
    tokens = TokenPlan(-1, tokenizer.convert_tokens_to_ids(SENSOR), (tokenizer.eos_token_id,), "\0", "")
    image = ImagePlan(16, 16, "bicubic", (0.0, 0.0, 0.0), (1.0, 1.0, 1.0))
    return Side(image, tokens, "{{ messages[0]['content'][-1]['text'] }}")
