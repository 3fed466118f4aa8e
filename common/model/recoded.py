"""Weights from one format to another: bf16 ones rounded to the nearest of a format below, and back."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from common.cache.weight_files import BLOCK
from common.model.layout import Layout

if TYPE_CHECKING:
    import torch


def recoded(weights: "torch.Tensor", layout: Layout, target: Layout) -> "torch.Tensor":
    """`weights` (flat, of `layout`) as flat weights of `target`, of the same shapes: bf16, [its weights_size]."""
    import torch

    flat = torch.zeros(target.weights_size, dtype=torch.bfloat16)
    for offset, piece in pieces(weights, layout, target):
        flat[offset : offset + len(piece)] = piece
    return flat


def pieces(weights: "torch.Tensor", layout: Layout, target: Layout) -> "Iterator[tuple[int, torch.Tensor]]":
    """Yield (offset in flat weights of `target`, bf16 [n]) of every tensor, some rows at a time; as in `recoded`."""
    for name, layer in target.tensors():
        before, after = layout.weight(name, layer), target.weight(name, layer)
        if before.format == after.format:  # bit by bit: numbers and scales are not made anew
            yield after.offset, weights[before.offset : before.offset + before.size]
            continue
        rows, columns = before.shape
        some = max(1, BLOCK // columns)
        for begin in range(0, rows, some):
            count = min(some, rows - begin)
            encoded = after.format.encode(before.rows(begin, count).of(weights))
            yield after.rows(begin, count).offset, encoded.reshape(-1)
