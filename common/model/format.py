"""Formats of matrices and of the KV cache in memory.

Their other half, for kernels, is common/kernel/weights.cuh, scaled.cuh and entries.cuh.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache

from common.errors import LabError
from common.lazy import torch

BITS = {"bf16": 16, "int8": 8, "fp8": 8, "int4": 4}
OF_CACHE = ("bf16", "fp8", "int8")  # formats of the KV cache, whose rows have one scale
SPELLING = re.compile(r"(bf16|int8|fp8|int4)(?::([1-9][0-9]{0,5}))?(:zeros)?(:fp16)?")
PACKET = 16  # bytes of the widest load; rows and their scales begin at a multiple of it
WORD = 8  # columns that every shape has a multiple of, and that a group must have
TRIED = 64  # columns of a group in trials, at most: several packets of the widest load
NIBBLES = (0, 2, 4, 6, 1, 3, 5, 7)  # column of each nibble of a word: those of a pair are 16 bits apart
REAL_MOST = 448.0  # largest number of e4m3


@dataclass(frozen=True)
class Format:
    """Format of the rows of a matrix.

    kind   bf16; int8 or int4; or fp8, e4m3. Below bf16 a weight is scale * (number - zero point)
    group  neighbouring columns that share a scale; 0: all of a row
    zeros  groups of integers have a zero point; else numbers are signed and it is 0
    half   scales are fp16 and not bf16
    """

    kind: str = "bf16"
    group: int = 0
    zeros: bool = False
    half: bool = False

    def __str__(self) -> str:
        group, half = f":{self.group}" if self.group else "", ":fp16" * self.half
        return f"{self.kind}{group}{':zeros' * self.zeros}{half}"

    @property
    def scaled(self) -> bool:
        """True for a format below bf16, whose rows have scales."""
        return self.kind != "bf16"

    @property
    def bits(self) -> int:
        """Bits of a number."""
        return BITS[self.kind]

    def groups(self, columns: int) -> int:
        """Scales of a row."""
        return columns // (self.group or columns) if self.scaled else 0

    def scales_at(self, columns: int) -> int:
        """Byte of a row from which its scales lie."""
        return whole(columns * self.bits // 8, PACKET) if self.scaled else 2 * columns

    def row_bytes(self, columns: int) -> int:
        """Bytes of a row of a matrix, with all that it holds beside its weights."""
        each = 4 if self.zeros else 2
        return self.scales_at(columns) + whole(self.groups(columns) * each, PACKET)

    def check(self, columns: Iterable[int], place: str) -> None:
        """Raise LabError unless groups divide rows of so many columns. place: names the matrix in the message."""
        for width in columns:
            if self.group and width % self.group:
                raise LabError(
                    f"{place}: a group of {self.group} does not divide rows of {width} weights",
                    f"give a group that does, or {self.kind}, one scale a row",
                )

    @property
    def tried(self) -> "Format":
        """The same for the small models of trials: groups of TRIED columns at most."""
        return replace(self, group=min(self.group, TRIED))

    @property
    def numbers(self) -> "torch.Tensor":
        """All numbers of a format below bf16 without zero points, ascending: float64."""
        if self.kind == "fp8":
            every = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn).double()
            return every[every.isfinite()].unique()
        half = 2 ** (self.bits - 1)
        return torch.arange(1 - half, half, dtype=torch.float64)

    @property
    def _scales(self) -> "torch.dtype":
        return torch.float16 if self.half else torch.bfloat16

    @property
    def codec(self) -> str:
        """The type of the format in kernels."""
        if not self.scaled:
            return "Bf16"
        flags = (str(flag).lower() for flag in (self.kind == "fp8", self.zeros, self.half))
        return f"Scaled<{self.bits}, {self.group}, {', '.join(flags)}>"

    def encode(self, values: "torch.Tensor") -> "torch.Tensor":
        """Rows of numbers, rounded to the nearest, as bf16 elements [..., row_bytes / 2]. values: [..., columns]."""
        if not self.scaled:
            return values.bfloat16()
        *outer, columns = values.shape
        rows = values.reshape(-1, columns)
        scale, zero = self.scales(rows)
        return self.joined(self.nearest(rows, scale, zero), scale, zero).view(*outer, self.row_bytes(columns) // 2)

    def scales(self, values: "torch.Tensor") -> "tuple[torch.Tensor, torch.Tensor]":
        """Scales, fp32 [rows, groups], and zero points, int32 likewise, for `values` [rows, columns].

        A scale is the smallest number with which none of its group is out of range, and that of a group of zeros 1.
        """
        rows, columns = values.shape
        groups = self.groups(columns)
        grouped = values.float().view(rows, groups, columns // groups)
        low, high = (grouped.amin(2), grouped.amax(2)) if self.zeros else (None, grouped.abs().amax(2))
        if low is not None:
            low, high = low.clamp(max=0), high.clamp(min=0)  # 0 stays 0: a zero point is a number
        most = REAL_MOST if self.kind == "fp8" else 2**self.bits - 1 if self.zeros else 2 ** (self.bits - 1) - 1
        scale = _rounded_up((high if low is None else high - low) / most, self._scales)
        scale = torch.where(scale == 0, 1.0, scale)
        zero = torch.zeros_like(scale, dtype=torch.int32)
        if low is not None:
            zero = (-low / scale).round().int().clamp(0, 2**self.bits - 1)
        return scale, zero

    def nearest(self, values: "torch.Tensor", scale: "torch.Tensor", zero: "torch.Tensor") -> "torch.Tensor":
        """The numbers nearest to `values` [rows, columns] as `joined` takes them; scale, zero: as from `scales`."""
        numbers = values.float().view(*scale.shape, values.shape[1] // scale.shape[1]) / scale[:, :, None]
        if self.kind == "fp8":
            bits = numbers.clamp(-REAL_MOST, REAL_MOST).to(torch.float8_e4m3fn).view(torch.uint8)
        else:
            half = 2 ** (self.bits - 1)
            shift = zero[:, :, None] if self.zeros else half
            bits = (numbers.round().int() + shift).clamp(0 if self.zeros else 1, 2 * half - 1).byte()
        return bits.view(values.shape)

    def weights(self, bits: "torch.Tensor", scale: "torch.Tensor", zero: "torch.Tensor") -> "torch.Tensor":
        """The weights that such numbers are, exact in fp32 [rows, columns]."""
        if self.kind == "fp8":
            numbers = bits.contiguous().view(torch.float8_e4m3fn).float()
        else:
            numbers = bits.float() - (0 if self.zeros else 2 ** (self.bits - 1))
        grouped = numbers.view(*scale.shape, bits.shape[1] // scale.shape[1])
        return ((grouped - zero[:, :, None]) * scale.float()[:, :, None]).view(bits.shape)

    def joined(self, bits: "torch.Tensor", scale: "torch.Tensor", zero: "torch.Tensor") -> "torch.Tensor":
        """Rows of the parts that they have, as `encode` gives them.

        bits: uint8 [rows, columns], a number each as the kernels read it: e4m3, or an unsigned integer, offset by half
        of the range without zero points. scale: of bf16 or fp16 [rows, groups]. zero: likewise, int32.
        """
        rows, columns = bits.shape
        out = torch.zeros(rows, self.row_bytes(columns), dtype=torch.uint8, device=bits.device)
        packed = bits
        if self.bits == 4:
            ordered = bits.reshape(rows, -1, 8)[:, :, NIBBLES]
            packed = (ordered[:, :, 0::2] | ordered[:, :, 1::2] << 4).reshape(rows, -1)
        out[:, : packed.shape[1]] = packed
        halves = scale.to(self._scales).contiguous().view(torch.int16)
        if self.zeros:  # the zero point is in the lower half of a word
            halves = torch.stack((zero.to(torch.int16), halves), dim=2).view(rows, -1)
        at = self.scales_at(columns)
        out[:, at : at + 2 * halves.shape[1]] = halves.contiguous().view(torch.uint8)
        return out.view(torch.bfloat16)

    def decode(self, rows: "torch.Tensor", columns: int) -> "torch.Tensor":
        """Numbers [..., columns], exact in fp32; bf16 as it is. rows: bf16 elements [..., row_bytes / 2]."""
        if not self.scaled:
            return rows
        outer = rows.shape[:-1]
        rows = rows.reshape(-1, rows.shape[-1])
        content = rows.contiguous().view(torch.uint8)
        packed, at, groups = content[:, : columns * self.bits // 8], self.scales_at(columns), self.groups(columns)
        halves = content[:, at : at + groups * (4 if self.zeros else 2)].contiguous().view(torch.int16)
        zero = torch.zeros_like(halves)
        if self.zeros:
            zero, halves = halves[:, 0::2], halves[:, 1::2].contiguous()
        return self.weights(numbers_of(packed, self.bits, True), halves.view(self._scales), zero).view(*outer, columns)


def numbers_of(content: "torch.Tensor", bits: int, mixed: bool) -> "torch.Tensor":
    """The numbers, uint8 [rows, columns], in bytes [rows, columns * bits / 8]. mixed: columns are as in NIBBLES."""
    if bits == 8:
        return content
    numbers = torch.stack((content & 15, content >> 4), dim=2).view(len(content), -1, 8)
    return (numbers[:, :, [NIBBLES.index(i) for i in range(8)]] if mixed else numbers).reshape(len(content), -1)


@cache
def read_format(text: str) -> Format:
    """The Format of `int4:128:zeros`: a kind, the columns of a group, and whether groups have zero points.

    Raises LabError for any other text.
    """
    match = SPELLING.fullmatch(text)
    form = match and Format(match[1], int(match[2] or 0), *map(bool, match.groups()[2:]))
    if not form or form.group % WORD or (not form.scaled and text != "bf16") or (form.kind == "fp8" and form.zeros):
        raise LabError(
            f"no format {text!r}",
            f"give one of {', '.join(BITS)}; below bf16 with columns of a group, a multiple of {WORD}, as int4:128, "
            "with zero points of integers, as int4:128:zeros, and with scales in fp16, as int8:fp16",
        )
    return form


@cache
def read_kv_format(text: str) -> Format:
    """The Format of the KV cache. Raises LabError for any other than those of OF_CACHE."""
    if text not in OF_CACHE:
        raise LabError(f"no format {text!r} of the KV cache", f"give one of {', '.join(OF_CACHE)}")
    return Format(text)


def read_formats(text: str) -> tuple[str, str, str]:
    """Formats in `int4:128/int8/fp8`: of the layers' matrices, of the LM head and of the KV cache; bf16 if left out.

    Raises LabError for any other text.
    """
    form, head, kv, *more = [*text.split("/"), "bf16", "bf16"][: max(3, text.count("/") + 1)]
    if more:
        raise LabError(f"formats {text!r}", "give those of the layers, the LM head and the KV cache: int4:128/int8/fp8")
    return str(read_format(form)), str(read_format(head)), str(read_kv_format(kv))


def whole(size: int, unit: int) -> int:
    """`size` rounded up to a multiple of `unit`."""
    return -(-size // unit) * unit


def _rounded_up(values: "torch.Tensor", kind: "torch.dtype") -> "torch.Tensor":
    """The smallest numbers of `kind`, which has 16 bits, that are not below `values` >= 0, as fp32."""
    nearest = values.to(kind)
    next_one = (nearest.view(torch.int16) + 1).view(kind)
    return torch.where(nearest.float() < values, next_one, nearest).float()
