"""KV cache in the device's memory: filled, copied and compared there; only the entries of steps move."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch

from common.devices import cuda_memory
from common.devices.unwritten import NOT_WRITTEN, pattern, repeat
from common.lazy import cupy

Element = tuple[tuple[int, ...], float, float]  # index, value there, expected value
SIGNLESS, INFINITY = 0x7FFF, 0x7F80  # bf16: all bits but the sign; words above infinity's are NaN


class KvCache:
    """The cache of a session, or other entries in the same memory. Each call returns when its work is done.

    words: int16, [layers, 2, kv_heads, positions, row], an array of NumPy, or of a library with NumPy's names. A row
    has the words of an entry: head_dim in bf16, else as `Format` lays it out.
    on: context that queues work on them. unwritten: of the last reset.
    """

    def __init__(self, words: Any, on: AbstractContextManager[Any] | None = None) -> None:
        self.words, self._on = words, on or nullcontext()
        self.unwritten = NOT_WRITTEN

    def entries(self, first: int, end: int) -> torch.Tensor:
        """A copy of positions first..end-1: bfloat16, [layers, 2, kv_heads, end - first, row], on the CPU."""
        with self._on:
            return torch.from_numpy(self._on_cpu(first, end)).view(torch.bfloat16)

    def store(self, first: int, entries: torch.Tensor) -> None:
        """Write entries, shaped as from `entries`, from position `first` on."""
        with self._on:
            self._put(first, _words(entries), entries.shape[-2])
            self._wait()

    def put(self, first: int, entries: "KvCache") -> None:
        """Queue a copy of held entries to position `first` and on, without a wait for it."""
        with self._on:
            self._put(first, entries.words, entries.words.shape[-2])

    def hold(self, entries: torch.Tensor) -> "KvCache":
        """Entries on the CPU, moved once into this memory; not copied if it is the CPU's."""
        with self._on:
            held = self._moved(_words(entries))
            self._wait()
        return self._beside(held)

    def copy(self) -> "KvCache":
        with self._on:
            copied = self._copied()
            self._wait()
        return self._beside(copied)

    def reset(self, history: "KvCache | torch.Tensor | None", position: int, unwritten: float) -> None:
        """Fill with the entries of `history` below `position`, and with `unwritten` from there on."""
        if isinstance(history, torch.Tensor):
            history = self.hold(history[..., :position, :])
        self.unwritten = unwritten
        with self._on:
            self._fill(pattern(torch.bfloat16, unwritten))
            if history is not None:
                self._put(0, history.words, position)
            self._wait()

    def as_reset(self, first: int, end: int) -> "KvCache":
        """Positions first..end-1 as the last reset left them, if it was to a lower position."""
        words, (*heads, positions, row) = pattern(torch.bfloat16, self.unwritten), self.words.shape
        rows = np.arange(np.prod(heads))[:, None] * positions * row  # start of each head's first position
        part = words[(rows + np.arange(first * row, end * row)) % len(words)]
        return self.hold(torch.from_numpy(part.reshape(*heads, end - first, row)))

    def difference(self, other: "KvCache", end: int | None = None) -> Element | None:
        """The first element below position `end` that differs from the other's in any bit, if any."""
        with self._on:
            at = self._first_wrong(other, 0, self.words.shape[-2] if end is None else end)
            return (at, self._value(at), other._value(at)) if at else None

    def written(self, first: int) -> Element | None:
        """The first element that is not NaN, from position `first` on, if any."""
        with self._on:
            at = self._first_wrong(None, first, self.words.shape[-2] - first)
            return (at, self._value(at), torch.nan) if at else None

    def tensor(self) -> torch.Tensor:
        """The same memory as a bfloat16 tensor of torch."""
        return torch.from_dlpack(self.words).view(torch.bfloat16)

    def _first_wrong(self, other: "KvCache | None", first: int, count: int) -> tuple[int, ...] | None:
        """Index of the first element in `count` positions that is not the other's; without one, that is not NaN."""
        for layer, mine in enumerate(self.words[..., first : first + count, :]):
            theirs = None if other is None else other.words[layer, ..., first : first + count, :]
            if at := _first(mine, theirs):
                head, heads, position, column = at
                return layer, head, heads, first + position, column
        return None

    def _value(self, at: tuple[int, ...]) -> float:
        return float(torch.tensor(int(self.words[at]), dtype=torch.int16).view(torch.bfloat16))

    def _fill(self, words: np.ndarray) -> None:
        repeat(self.words.reshape(-1), words)

    def _put(self, first: int, source: Any, count: int) -> None:
        """Copy the first `count` positions of `source`, words here or on the CPU."""
        self.words[..., first : first + count, :] = source[..., :count, :]

    def _beside(self, words: Any) -> "KvCache":
        return type(self)(words, self._on)

    def _copied(self) -> Any:
        return self.words.copy()

    def _moved(self, words: np.ndarray) -> Any:
        """An array on the CPU, moved to this memory."""
        return words

    def _on_cpu(self, first: int, end: int) -> np.ndarray:
        """A copy of positions on the CPU."""
        return self.words[..., first:end, :].copy()

    def _wait(self) -> None:
        """Return when all queued work is done."""


class CudaKvCache(KvCache):
    """In a GPU's memory. words: contiguous; on: the session's stream."""

    def __init__(self, words: Any, on: Any) -> None:
        super().__init__(words, on)
        self._stream = on

    def _first_wrong(self, other: KvCache | None, first: int, count: int) -> tuple[int, ...] | None:
        found = cuda_memory.first_wrong(self._stream, self.words, None if other is None else other.words, first, count)
        if not found:
            return None
        *at, column = found
        these = (*at, slice(column, column + 4))
        lane = _first(self.words[these].get(), None if other is None else other.words[these].get())
        assert lane  # the GPU has found it
        return (*at, column + lane[0])

    def _fill(self, words: np.ndarray) -> None:
        cuda_memory.fill(self._stream, self.words, words)

    def _put(self, first: int, source: Any, count: int) -> None:
        whole = np.ascontiguousarray(source) if isinstance(source, np.ndarray) else source
        cuda_memory.copy_positions(self._stream, self.words, first, whole, 0, count)

    def _copied(self) -> Any:
        return self._moved(self.words)

    def _moved(self, words: Any) -> Any:
        moved = cupy.empty(words.shape, words.dtype)
        cuda_memory.copy(self._stream, moved, np.ascontiguousarray(words) if isinstance(words, np.ndarray) else words)
        return moved

    def _on_cpu(self, first: int, end: int) -> np.ndarray:
        *heads, _, row = self.words.shape
        found = np.empty((*heads, end - first, row), self.words.dtype)
        cuda_memory.copy_positions(self._stream, found, 0, self.words, first, end - first)
        self._wait()
        return found

    def _wait(self) -> None:
        self._stream.synchronize()


def _words(entries: torch.Tensor) -> np.ndarray:
    return entries.view(torch.int16).numpy()


def _first(mine: np.ndarray, theirs: np.ndarray | None) -> tuple[int, ...] | None:
    """Index of the first word that is not `theirs`; without them, that is no NaN of bf16."""
    wrong = (mine & SIGNLESS) <= INFINITY if theirs is None else mine != theirs
    return tuple(map(int, np.unravel_index(wrong.argmax(), wrong.shape))) if wrong.any() else None
