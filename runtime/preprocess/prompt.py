"""A question as token ids: the model's chat template, with the places of frames and sensors spelt out.

A conversation is a list of turns; a turn's own order is: fixed text, frames, sensors, question. Fixed text stands
first so that what the decoder has read of it can be kept. The template marks each frame by one placeholder; the text
encoder needs as many image tokens as the vision graph gives. The template comes with the bundle, so it runs sandboxed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class Turn:
    """What the wearer's side says once, and the answer to it."""

    question: str
    frames: int = 0
    sensor_tokens: int = 0
    before: str = ""  # text before the frames
    answer: str | None = None  # None: it is to be written now; only the last turn's


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
        return self.talk([Turn(question, frames, sensor_tokens)])

    def talk(self, turns: Sequence[Turn]) -> str:
        """A conversation that ends where the next answer begins."""
        messages = [message for turn in turns for message in self._messages(turn)]
        frames, sensors = sum(t.frames for t in turns), sum(t.sensor_tokens for t in turns)
        try:
            text = self._template.render(messages=messages, add_generation_prompt=True, **self._plan.specials)
        except TemplateError as e:
            raise ConfigError(f"the chat template fails: {e}") from e
        if text.count(self._plan.placeholder) != frames or text.count(SENSOR) != sensors:
            raise ConfigError(f"the chat template wrote {text.count(self._plan.placeholder)} frames of {frames}")
        return text.replace(self._plan.placeholder, self._plan.frame)

    def _messages(self, turn: Turn) -> list[dict[str, Any]]:
        content: list[dict[str, str]] = [{"type": "text", "text": self._plain(turn.before)}] if turn.before else []
        content += [{"type": "image"}] * turn.frames
        content.append({"type": "text", "text": SENSOR * turn.sensor_tokens + self._plain(turn.question)})
        said: list[dict[str, Any]] = [{"role": "user", "content": content}]
        if turn.answer is not None:
            said.append({"role": "assistant", "content": [{"type": "text", "text": self._plain(turn.answer)}]})
        return said

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
