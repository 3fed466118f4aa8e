"""Rounding of real numbers to bf16, and its legal results."""

from math import inf

import torch
from torch import Tensor


def rounding_error(got: Tensor, want: Tensor) -> Tensor:
    """Distance of `want` from the nearest real number that rounds to the bf16 number `got`; 0 for a legal rounding.

    got, want: float64 of one shape, `got` holding bf16 numbers. NaN where `got` is not finite.
    """
    short = got.bfloat16()
    low, high = ((got + torch.nextafter(short, torch.full_like(short, end)).double()) / 2 for end in (-inf, inf))
    return torch.where(got.isfinite(), torch.maximum(low - want, want - high).clamp(min=0), torch.nan)


def half_way(value: Tensor) -> Tensor:
    """Mask of elements of `value` (float64) exactly half way between two neighboring bf16 numbers."""
    near = value.bfloat16()
    beyond = torch.where(value > near.double(), torch.inf, -torch.inf).bfloat16()
    return (value != near.double()) & (value == (near.double() + torch.nextafter(near, beyond).double()) / 2)
