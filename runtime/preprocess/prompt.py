"""A question as token ids: the model's chat template, with the places of frames and sensors spelt out.

The template marks each frame by one placeholder; the text encoder needs as many image tokens as the vision graph gives.
Sensor tokens stand before the question. The template comes with the bundle, so it runs sandboxed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
from jinja2.exceptions import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer

from handrail.streams.errors import ConfigError

SENSOR = "<sensor>"


class TokenPlan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Ids and texts of a bundle's tokens."""

    image: int  # id at which a frame's features are written
    sensor: int  # id at which the fusion's tokens are written
    end: tuple[int, ...]  # any of them ends an answer
    placeholder: str  # what the template writes for a frame
    frame: str  # what stands for it instead
    specials: dict[str, str] = {}  # what the template asks for by name: bos_token, ...


class Prompter:
    """Raises ConfigError where template and tokens don't fit each other."""

    def __init__(self, tokenizer: Path | Tokenizer, template: str, plan: TokenPlan) -> None:
        self._tokenizer = tokenizer if isinstance(tokenizer, Tokenizer) else Tokenizer.from_file(str(tokenizer))
        if self._tokenizer.token_to_id(SENSOR) != plan.sensor:
            raise ConfigError(f"the tokenizer has no {SENSOR} with id {plan.sensor}: it belongs to another bundle")
        self._plan = plan
        added = self._tokenizer.get_added_tokens_decoder().values()
        self._marks = sorted({plan.placeholder, *(t.content for t in added if t.content.strip())} - {""}, key=len)[::-1]
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        environment.globals["raise_exception"] = _refuse
        try:
            self._template = environment.from_string(template)
        except TemplateError as e:
            raise ConfigError(f"the chat template can't be read: {e}") from e

    def ids(self, question: str, frames: int, sensor_tokens: int) -> list[int]:
        """Of one turn: ``frames`` frames, ``sensor_tokens`` sensor tokens, then the question."""
        return self.encode(self.text(question, frames, sensor_tokens))

    def text(self, question: str, frames: int, sensor_tokens: int) -> str:
        """What is tokenised."""
        question = self._plain(question)
        content: list[dict[str, str]] = [{"type": "image"}] * frames
        content = [*content, {"type": "text", "text": SENSOR * sensor_tokens + question}]
        try:
            text = self._template.render(
                messages=[{"role": "user", "content": content}], add_generation_prompt=True, **self._plan.specials
            )
        except TemplateError as e:
            raise ConfigError(f"the chat template fails: {e}") from e
        if text.count(self._plan.placeholder) != frames or text.count(SENSOR) != sensor_tokens:
            raise ConfigError(f"the chat template wrote {text.count(self._plan.placeholder)} frames of {frames}")
        return text.replace(self._plan.placeholder, self._plan.frame)

    def encode(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    def decode(self, ids: list[int]) -> str:
        text: str = self._tokenizer.decode(ids, skip_special_tokens=True)
        return text

    def _plain(self, question: str) -> str:
        """A question can't hold a place for a frame or a sensor, nor end a turn: it is data."""
        before = ""
        while before != question:  # what is left of one mark must not make another
            before = question
            for mark in self._marks:
                question = question.replace(mark, " ")
        return question


def _refuse(message: Any) -> None:
    raise TemplateError(str(message))
