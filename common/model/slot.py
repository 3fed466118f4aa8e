"""One tensor in a flat buffer: its place, its shape, and the format of a matrix."""

from dataclasses import dataclass, replace
from math import prod

from common.lazy import torch
from common.model.format import Format

PLAIN = Format()


@dataclass(frozen=True)
class Slot:
    """One tensor: `offset` of its first element, its row-major `shape`, and the format of its rows."""

    offset: int
    shape: tuple[int, ...]
    format: Format = PLAIN

    @property
    def size(self) -> int:
        """Elements of its buffer that it takes."""
        return prod(self.shape[:-1]) * self._row

    @property
    def stored(self) -> tuple[int, ...]:
        """Shape in elements of the buffer, scales and padding included."""
        return *self.shape[:-1], self._row

    @property
    def _row(self) -> int:
        return self.format.row_bytes(self.shape[-1]) // 2 if self.format.scaled else self.shape[-1]

    def at(self, base: int) -> "Slot":
        return replace(self, offset=self.offset + base)

    def rows(self, begin: int, count: int) -> "Slot":
        """`count` rows of a matrix, or elements of a vector, from number `begin` on."""
        each = self.size // self.shape[0]
        return replace(self, offset=self.offset + begin * each, shape=(count, *self.shape[1:]))

    def of(self, buffer: "torch.Tensor") -> "torch.Tensor":
        """Its elements in their shape: a view of the flat `buffer`, or what a format below bf16 means, in fp32."""
        found = buffer[self.offset : self.offset + self.size]
        if not self.format.scaled:
            return found.view(self.shape)
        return self.format.decode(found.view(self.stored), self.shape[-1])
