"""Quantized matrices in a checkpoint: where a layout has their numbers, scales and zero points, and how it packs them.

Numbers, scales and zero points are taken as they are stored; nothing is quantized again.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from common.errors import LabError
from common.lazy import torch
from common.model.checkpoint import AGAIN
from common.model.format import Format, numbers_of

Parts = Mapping[str, "torch.Tensor"]  # tensors of a matrix, by the last part of their names

USE = "use the bf16 checkpoint of this model, which format= rounds"
WORDS, REALS, BYTES = ("I32",), ("F8_E4M3",), ("I8",)  # dtypes, as safetensors spells them
BESIDES = {"g_idx": WORDS, "weight_shape": ("I64", "I32")}  # tensors without numbers, and their dtypes


@dataclass(frozen=True)
class Part:
    """A tensor of a matrix: the last part of its name, its dtypes, and its order of rows and columns (or groups).

    turned  stored as [columns, rows]
    packed  axis along which 32-bit words pack numbers, the first in the lowest bits: 0 rows, 1 columns
    mixed   a word has its even columns before its odd ones
    """

    name: str
    dtypes: tuple[str, ...]
    turned: bool = False
    packed: int | None = None
    mixed: bool = False

    def shape(self, rows: int, columns: int, bits: int) -> tuple[int, ...]:
        """Shape of the tensor of a matrix."""
        sizes = [rows, columns]
        if self.packed is not None:
            sizes[self.packed] //= 32 // bits
        return tuple(sizes[::-1] if self.turned else sizes)

    def read(self, tensor: "torch.Tensor", bits: int) -> "torch.Tensor":
        """[rows, columns] of the tensor, a number each."""
        matrix = tensor.T if self.turned else tensor
        if self.packed is None:
            return matrix
        words = matrix.T if self.packed == 0 else matrix
        numbers = numbers_of(words.contiguous().view(torch.uint8), bits, self.mixed)
        return numbers.T if self.packed == 0 else numbers


@dataclass(frozen=True)
class Quantization:
    """One layout of quantized matrices, which are all those of the layers; the head and the embedding are not.

    format   of the packed rows; its groups divide every row and the checkpoint's groups
    group    columns that share a scale in the checkpoint; 0: a whole row. block: rows that share it
    zeros    zero points; None: without any. less: to be added to those that are stored
    besides  names of its tensors in BESIDES
    reading  all that gives the stored bytes their meaning, as text
    check    raises LabError for zero points [rows, groups] of a matrix, by its name, that the configuration rules out
    """

    format: Format
    group: int
    reading: str
    numbers: Part
    scales: Part
    zeros: Part | None = None
    less: int = 0
    block: int = 1
    besides: tuple[str, ...] = ()
    check: "Callable[[torch.Tensor, str], None]" = lambda zero, name: None

    def shapes(self, rows: int, columns: int) -> dict[str, tuple[tuple[int, ...], tuple[str, ...]]]:
        """Shape and dtypes of each tensor of a matrix."""
        bits, groups = self.format.bits, -(-columns // (self.group or columns))
        found = {self.numbers.name: (self.numbers.shape(rows, columns, bits), self.numbers.dtypes)}
        found[self.scales.name] = self.scales.shape(-(-rows // self.block), groups, bits), self.scales.dtypes
        if self.zeros:
            found[self.zeros.name] = self.zeros.shape(rows, groups, bits), self.zeros.dtypes
        return found | {name: ((columns if name == "g_idx" else 2,), BESIDES[name]) for name in self.besides}

    def rows(self, parts: Parts, name: str) -> "torch.Tensor":
        """A matrix in its format, bf16 elements [rows, row_bytes / 2]. parts: its tensors. name: of the matrix.

        Raises LabError for NaN among the numbers, for a scale that is not positive and finite, and for what its
        configuration rules out.
        """
        bits = self.format.bits
        numbers = self._numbers(self.numbers.read(parts[self.numbers.name], bits), name)
        stored = parts[self.scales.name]
        scale = self.scales.read(stored, bits).repeat_interleave(self.block, 0)[: len(numbers)]
        zero = torch.zeros(scale.shape, dtype=torch.int32)
        if self.zeros:
            zero = self.zeros.read(parts[self.zeros.name], bits).int() + self.less
            self.check(zero, name)
        columns = numbers.shape[1]
        group = self.group or columns
        if "g_idx" in parts and not torch.equal(parts["g_idx"].long(), torch.arange(columns) // group):
            raise LabError(f"{name}: g_idx is not of groups of {group} columns in order; desc_act does", USE)
        if "weight_shape" in parts and (shape := parts["weight_shape"].tolist()) != [*numbers.shape]:
            raise LabError(f"{name}: weight_shape is {shape}, and weight_packed has {[*numbers.shape]}", AGAIN)
        kept = scale.to(torch.float16 if self.format.half else torch.bfloat16)
        usable = torch.isfinite(scale) & (scale > 0)
        if not bool(usable.all()):
            raise LabError(f"{name}: a scale is {scale[~usable][0].item()}", AGAIN)
        if not torch.equal(kept.double(), scale.double()):
            raise LabError(f"{name}: a scale has more digits than {'fp16' if self.format.half else 'bf16'}", USE)
        if self.group != self.format.group:  # a part of a group is last in a row; `format` has a part for each scale
            times, count = self.group // self.format.group, columns // self.format.group
            kept, zero = (each.repeat_interleave(times, 1)[:, :count] for each in (kept, zero))
        return self.format.joined(numbers, kept, zero)

    def _numbers(self, stored: "torch.Tensor", name: str) -> "torch.Tensor":
        """Numbers as `Format.joined` takes them, uint8 [rows, columns]."""
        if self.format.kind == "fp8":
            numbers = stored.view(torch.uint8)
            if bool((numbers & 0x7F == 0x7F).any()):
                raise LabError(f"{name}: a weight is NaN", AGAIN)
            return numbers
        if stored.dtype == torch.uint8:
            return stored
        half, low, high = 2 ** (self.format.bits - 1), int(stored.min()), int(stored.max())
        if low < -half or high >= half:
            raise LabError(f"{name}: numbers from {low} to {high}, beyond num_bits {self.format.bits}", USE)
        return (stored.int() + half).byte()
