"""KV cache in the device's memory: filled, copied and compared there; only the entries of steps move."""

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch

from common.devices.unwritten import NOT_WRITTEN, pattern, repeat

Element = tuple[tuple[int, ...], float, float]  # index, value there, expected value
SIGNLESS, INFINITY = 0x7FFF, 0x7F80  # of bf16: all bits but the sign; words above infinity's are NaN


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
            return torch.from_numpy(self._on_cpu(self.words[..., first:end, :])).view(torch.bfloat16)

    def store(self, first: int, entries: torch.Tensor) -> None:
        """Write entries, shaped as from `entries`, from position `first` on."""
        with self._on:
            self.words[..., first : first + entries.shape[-2], :] = self._moved(_words(entries))
            self._wait()

    def hold(self, entries: torch.Tensor) -> "KvCache":
        """Entries on the CPU, moved once into this memory; not copied if it is the CPU's."""
        with self._on:
            held = self._moved(_words(entries))
            self._wait()
        return self._beside(held)

    def copy(self) -> "KvCache":
        with self._on:
            copied = self.words.copy()
            self._wait()
        return self._beside(copied)

    def reset(self, history: "KvCache | torch.Tensor | None", position: int, unwritten: float) -> None:
        """Fill with the entries of `history` below `position`, and with `unwritten` from there on."""
        if isinstance(history, torch.Tensor):
            history = self.hold(history[..., :position, :])
        self.unwritten = unwritten
        with self._on:
            self._fill(self.words, unwritten)
            if history is not None:
                self.words[..., :position, :] = history.words[..., :position, :]
            self._wait()

    def as_reset(self, first: int, end: int, unwritten: float) -> Any:
        """The words of positions first..end-1 after a reset to a lower position."""
        words, (*heads, positions, row) = pattern(torch.bfloat16, unwritten), self.words.shape
        rows = np.arange(np.prod(heads))[:, None] * positions * row  # start of each head's first position
        part = words[(rows + np.arange(first * row, end * row)) % len(words)]
        with self._on:
            moved = self._moved(part.reshape(*heads, end - first, row))
            self._wait()
        return moved

    def difference(self, other: "KvCache", end: int | None = None) -> Element | None:
        """The first element below position `end` that differs from the other's in any bit, if any."""
        mine, theirs = (each.words[..., :end, :] for each in (self, other))
        with self._on:
            at = self._first(one != two for one, two in zip(mine, theirs, strict=True))
            return (at, _value(mine, at), _value(theirs, at)) if at else None

    def written(self, first: int) -> Element | None:
        """The first element that is not NaN, from position `first` on, if any."""
        rest = self.words[..., first:, :]
        with self._on:
            at = self._first((layer & SIGNLESS) <= INFINITY for layer in rest)
            return ((*at[:3], first + at[3], at[4]), _value(rest, at), torch.nan) if at else None

    def tensor(self) -> torch.Tensor:
        """The same memory as a bfloat16 tensor of torch."""
        return torch.from_dlpack(self.words).view(torch.bfloat16)

    def _first(self, layers: Iterable[Any]) -> tuple[int, ...] | None:
        """Index of the first true element. layers: a boolean array for each layer, so that none is large."""
        for layer, wrong in enumerate(layers):
            if wrong.any():
                at = np.unravel_index(self._on_cpu(wrong).argmax(), wrong.shape)
                return layer, *map(int, at)
        return None

    def _fill(self, words: Any, unwritten: float) -> None:
        repeat(words.reshape(-1), self._moved(pattern(torch.bfloat16, unwritten)))

    def _beside(self, words: Any) -> "KvCache":
        return type(self)(words, self._on)

    def _moved(self, words: np.ndarray) -> Any:
        """An array on the CPU, moved to this memory."""
        return words

    def _on_cpu(self, words: Any) -> np.ndarray:
        """A copy on the CPU."""
        return words.copy()

    def _wait(self) -> None:
        """Return when all queued work is done."""


class CudaKvCache(KvCache):
    """In a GPU's memory. on: the session's stream."""

    def __init__(self, words: Any, on: Any) -> None:
        import cupy

        super().__init__(words, on)
        self._cupy, self._stream = cupy, on

    def _moved(self, words: np.ndarray) -> Any:
        moved = self._cupy.empty(words.shape, words.dtype)
        moved.set(np.ascontiguousarray(words), stream=self._stream)
        return moved

    def _on_cpu(self, words: Any) -> np.ndarray:
        return words.get()

    def _wait(self) -> None:
        self._stream.synchronize()


def _words(entries: torch.Tensor) -> np.ndarray:
    return entries.view(torch.int16).numpy()


def _value(words: Any, at: tuple[int, ...]) -> float:
    return float(torch.tensor(int(words[at]), dtype=torch.int16).view(torch.bfloat16))
