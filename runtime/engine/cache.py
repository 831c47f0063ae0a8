"""Keys and values of one conversation, in memory that is taken once: what the decoder graph reads and adds to.

Two kinds, as a bundle's decoder has it. *Shared*: past and present are one buffer, filled from the front; forgetting
costs nothing. *Grown*: the graph gives all keys anew, one longer; two buffers take turns, and forgetting copies.
Untouched pages of a buffer cost no memory. Knows no tokens and no scores.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

F32 = NDArray[np.float32]


class Cache(Protocol):
    def bind(self, binding: Any, new: int) -> None:
        """Past and present of the next read of ``new`` tokens, as inputs and outputs of the graph."""
        ...

    def added(self, new: int) -> None:
        """The read is done."""
        ...

    def rewind(self, length: int) -> None: ...


class SharedCache:
    def __init__(self, names: Iterable[str], heads: int, head_dim: int, context: int) -> None:
        self._kept = {name: np.zeros((1, heads, context, head_dim), np.float32) for name in names}

    def bind(self, binding: Any, new: int) -> None:
        for name, kept in self._kept.items():
            bind_input(binding, f"past.{name}", kept)
            bind_output(binding, f"present.{name}", kept)

    def added(self, new: int) -> None:
        pass

    def rewind(self, length: int) -> None:
        pass


class GrownCache:
    def __init__(self, names: Iterable[str], heads: int, head_dim: int, context: int) -> None:
        self._heads, self._width, self._length = heads, head_dim, 0
        size = heads * context * head_dim
        self._now = {name: np.zeros(size, np.float32) for name in names}
        self._next = {name: np.zeros(size, np.float32) for name in self._now}

    def bind(self, binding: Any, new: int) -> None:
        for name in self._now:
            bind_input(binding, f"past.{name}", self._view(self._now[name], self._length))
            bind_output(binding, f"present.{name}", self._view(self._next[name], self._length + new))

    def added(self, new: int) -> None:
        self._now, self._next = self._next, self._now
        self._length += new

    def rewind(self, length: int) -> None:
        if length == self._length:
            return
        for name, now in self._now.items():
            self._view(self._next[name], length)[:] = self._view(now, self._length)[:, :, :length]
        self._now, self._next = self._next, self._now
        self._length = length

    def _view(self, flat: F32, length: int) -> F32:
        """[1, heads, length, head_dim]"""
        return flat[: self._heads * length * self._width].reshape(1, self._heads, length, self._width)


def bind_input(binding: Any, name: str, array: NDArray[Any]) -> None:
    """The array's own memory: it must stay until the run is over."""
    binding.bind_input(name, "cpu", 0, array.dtype, array.shape, array.ctypes.data)


def bind_output(binding: Any, name: str, array: NDArray[Any]) -> None:
    binding.bind_output(name, "cpu", 0, array.dtype, array.shape, array.ctypes.data)
