"""Past of a step of the reference: the entries that it reads, where they are, and a digest that stands for them."""

import hashlib
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Past:
    """Entries of positions 0 to n-1.

    pieces: in their order, bf16, [layers, 2, kv_heads, positions of the piece, head_dim], on any device of torch.
    digest: equal for no other content.
    """

    pieces: tuple[Tensor, ...]
    digest: bytes

    @classmethod
    def of(cls, entries: Tensor) -> "Past":
        return cls((), b"").then(entries)

    @property
    def positions(self) -> int:
        return sum(piece.shape[-2] for piece in self.pieces)

    def then(self, entries: Tensor) -> "Past":
        """With `entries` after it."""
        return Past((*self.pieces, entries), digest_of(self.digest, entries))


def digest_of(*parts: bytes | Tensor) -> bytes:
    """Digest of bytes, and of the bits of tensors on the CPU."""
    digest = hashlib.blake2b()
    for part in parts:
        digest.update(part if isinstance(part, bytes) else part.contiguous().view(torch.uint8).numpy().data)
    return digest.digest()
