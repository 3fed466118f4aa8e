"""Rounding of real numbers to a format of the KV cache, and its legal results."""

from math import inf

import torch
from torch import Tensor

from common.model.format import Format

LEAST = 2.0**-100  # a row's largest magnitude: below it all numbers may be 0, and the scale 1 (entries.cuh)


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


def wrong_ties(form: Format, rows: Tensor, want: Tensor) -> Tensor:
    """Mask of numbers exactly half way between two of a format below bf16 that were not rounded to the even one.

    rows, want: as for `row_error`. Of the numbers in their order every second one is even, among them 0.
    """
    columns, numbers = want.shape[-1], form.numbers
    at = form.scales_at(columns) // 2
    scale = rows[..., at : at + 1].double()
    halves, zero = (numbers[1:] + numbers[:-1]) / 2, len(numbers) // 2
    below = torch.searchsorted(halves, (want / scale).contiguous()).clamp(max=len(halves) - 1)
    even = numbers[below + (below - zero) % 2]
    return (halves[below] * scale == want) & (form.decode(rows, columns).double() != even * scale)


def row_error(form: Format, rows: Tensor, want: Tensor) -> Tensor:
    """As `rounding_error`, of rows in a format below bf16 with one scale each: the scale's distance, if it is larger.

    rows: bf16, [..., row], as `Format.encode` gives them. want: float64, [..., columns]. A number is legal if it is the
    nearest with the stored scale, and a scale if it is the smallest that has its whole row in range. NaN also for bits
    that are no number.
    """
    columns, numbers = want.shape[-1], form.numbers
    at = form.scales_at(columns) // 2
    short, got = rows[..., at : at + 1], form.decode(rows, columns).double()
    scale, largest = short.double(), want.abs().amax(-1, keepdim=True)
    below = torch.nextafter(short, torch.zeros_like(short)).double()
    wrong = torch.maximum(largest - numbers[-1] * scale, numbers[-1] * below - largest)
    wrong = torch.where(scale == 1, torch.minimum(wrong, largest - LEAST), wrong)
    number = got / scale
    place = torch.searchsorted(numbers, number.contiguous()).clamp(max=len(numbers) - 1)
    ends = torch.nn.functional.pad((numbers[1:] + numbers[:-1]) / 2, (1, 1), value=inf)  # between two, and beyond all
    ends[0] = -inf
    error = torch.maximum(ends[place] * scale - want, want - ends[place + 1] * scale)
    return torch.where(numbers[place] == number, torch.maximum(error, wrong).clamp(min=0), torch.nan)
