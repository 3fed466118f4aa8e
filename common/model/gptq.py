"""Numbers of a matrix that make the error of its products small, not that of each weight.

GPTQ, Frantar et al. 2022 (arXiv:2210.17323), algorithm 1: columns are rounded one after another, and the error of each
is fed into those that follow, weighted by the inverse of the inputs' second moments. Scales are those of rounding to
nearest. Rows do not depend on each other, so a row for which that rounding is better keeps it.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from common.model.format import Format

if TYPE_CHECKING:
    import torch

DAMP = 0.01  # share of the mean second moment that each column gets, as in the paper
BLOCK = 128  # columns whose errors reach the others by one product


@dataclass(frozen=True)
class Calibration:
    """Inputs of the matrices of a model on some text.

    sha      of all that decides them but the weights, the model and the code
    code     digest of the code that computes them
    moments  yields (name, layer or None, `moments` of `encode`) of each matrix
    """

    sha: str
    code: str
    moments: "Callable[[], Iterator[tuple[str, int | None, torch.Tensor]]]"


def encode(form: Format, values: "torch.Tensor", moments: "torch.Tensor") -> "torch.Tensor":
    """Rows of `form` as `Format.encode` gives them. values: [rows, columns].

    moments: float64 [columns, columns], the sum of x x^T over the inputs x of the matrix.
    No row has a larger `loss` than by `Format.encode`.
    """
    import torch

    wanted, (scale, zero) = values.double(), form.scales(values)
    damped = moments + torch.eye(len(moments)) * (DAMP * moments.diagonal().mean() or 1)  # or: no input but zeros
    inverse = torch.cholesky_inverse(torch.linalg.cholesky(damped))
    factor = torch.linalg.cholesky(inverse, upper=True)
    left, numbers = wanted.clone(), torch.empty(values.shape, dtype=torch.uint8)
    group = form.group or len(moments)
    for begin in range(0, len(moments), BLOCK):
        block = left[:, begin : begin + BLOCK].clone()  # side by side in memory
        end = begin + block.shape[1]
        errors = torch.empty_like(block)
        for i in range(begin, end):
            column, own = block[:, i - begin, None], slice(i // group, i // group + 1)
            parts = scale[:, own], zero[:, own]
            number = numbers[:, i, None] = form.nearest(column, *parts)
            error = errors[:, i - begin, None] = (column - form.weights(number, *parts)) / factor[i, i]
            block[:, i - begin :] -= error * factor[i, i:end]
        left[:, end:] -= errors @ factor[begin:end, end:]
    nearest = form.nearest(values, scale, zero)
    losses = [loss(form.weights(each, scale, zero).double() - wanted, moments) for each in (numbers, nearest)]
    chosen = torch.where((losses[0] < losses[1])[:, None], numbers, nearest)
    return form.joined(chosen, scale, zero)


def loss(difference: "torch.Tensor", moments: "torch.Tensor") -> "torch.Tensor":
    """Sum of squares of the errors of each row's products, [rows]. difference: of weights, float64 [rows, columns]."""
    return ((difference @ moments) * difference).sum(1)
