"""Tokens to text, one at a time: what is certain leaves at once, half a character never does.

A tokenizer's ``decode`` is asked for the last few tokens only. Those of the last text that left stay in front of the
new ones: SentencePiece drops the space at the beginning of what it decodes, and bytes that stand for themselves
(``<0xE4>``) are read as one run. A text that ends in a replacement character may still become something else, so it
waits; what never becomes a character is dropped.

Knows no tokenizer: ``decode`` takes ids, leaves special tokens out and writes U+FFFD for what it can't read.
"""

from __future__ import annotations

from collections.abc import Callable

UNREADABLE = "\N{REPLACEMENT CHARACTER}"
_MOST_WAITING = 16  # tokens; text whose every token ends inside a character is then let go up to the last one
_TAIL = 4  # tokens that hold any unfinished character: it has three bytes at most


class Detokeniser:
    """Its pieces together are ``decode`` of all tokens less what can't be read. A decode takes 34 tokens at most."""

    def __init__(self, decode: Callable[[list[int]], str]) -> None:
        self._decode = decode
        self._before: list[int] = []  # tokens that have left
        self._waiting: list[int] = []
        self._done = ""  # what the text of both has given already

    def add(self, token: int) -> str:
        """Newly certain text; often none."""
        self._waiting.append(token)
        text = self._text()
        if text.endswith(UNREADABLE):
            return self._let_go(text) if len(self._waiting) > _MOST_WAITING else ""
        if text == self._done:  # a special token must not push out what stands in front; a space may yet count
            self._waiting = [] if text else self._waiting[-_MOST_WAITING:]
            return ""
        piece = self._piece(text)
        self._before, self._waiting = self._waiting[-_MOST_WAITING - 1 :], []
        self._done = self._text()
        return piece

    def end(self) -> str:
        """What is left, without bytes that make no character. The next token begins a new text."""
        piece = self._piece(self._text())
        self._before, self._waiting, self._done = [], [], ""
        return piece

    def _text(self) -> str:
        return self._decode(self._before + self._waiting)

    def _piece(self, text: str) -> str:
        return text[len(self._done) :].replace(UNREADABLE, "")

    def _let_go(self, text: str) -> str:
        """All but an unfinished character, which the last tokens hold; they begin what is decoded next."""
        piece = self._piece(text.rstrip(UNREADABLE))
        self._before, self._waiting = [], self._waiting[-_TAIL:]
        self._done = self._text().rstrip(UNREADABLE)
        return piece
