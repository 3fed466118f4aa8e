"""Quantized checkpoints: which tensors a matrix has instead of its weight, and its rows in the kernels' format.

Numbers, scales and zero points are taken as they are stored; nothing is quantized again.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from reprlib import repr as short
from typing import TYPE_CHECKING, Any

from common.errors import LabError
from common.model.checkpoint import AGAIN
from common.model.format import WORD, Format

if TYPE_CHECKING:
    import torch

Parts = Mapping[str, "torch.Tensor"]
Shapes = Mapping[str, tuple[int, ...]]  # of the tensors of a matrix, by the last part of their name

BLOCK = 128  # rows and columns that share a scale in the fp8 layout of Qwen3
AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)  # column of each nibble of a word
USE = "use the bf16 checkpoint of this model, which format= rounds"


@dataclass(frozen=True)
class Quantization:
    """One layout of quantized matrices, which are all those of the layers; the head and the embedding are not.

    format   of the rows that are made
    shapes   tensors of a matrix [rows, columns] and their shapes
    dtypes   that each of them may have, as safetensors spells them
    numbers  (uint8 numbers [rows, columns] as `Format.joined` takes them, scales [rows, groups], zero points likewise
             as int32) of these tensors
    """

    name: str
    format: Format
    shapes: Callable[[int, int], Shapes]
    dtypes: Mapping[str, Sequence[str]]
    numbers: "Callable[[Parts], tuple[torch.Tensor, torch.Tensor, torch.Tensor]]"

    def rows(self, parts: Parts, name: str) -> "torch.Tensor":
        """A matrix in its format, bf16 elements [rows, row_bytes / 2]. parts: its tensors. name: of the matrix.

        Raises LabError for NaN among the numbers, and for a scale that is not positive and finite.
        """
        import torch

        numbers, scale, zero = self.numbers(parts)
        kept = scale.to(torch.float16 if self.format.half else torch.bfloat16)
        usable = torch.isfinite(scale) & (scale > 0)
        if not bool(usable.all()):
            raise LabError(f"{name}: a scale is {scale[~usable][0].item()}", AGAIN)
        if not torch.equal(kept.double(), scale.double()):
            raise LabError(f"{name}: a scale has more digits than {'fp16' if self.format.half else 'bf16'}", USE)
        if self.format.kind == "fp8" and bool((numbers & 0x7F == 0x7F).any()):
            raise LabError(f"{name}: a weight is NaN", AGAIN)
        return self.format.joined(numbers, kept, zero)


def read_quantization(file: str, config: Mapping[str, Any]) -> Quantization | None:
    """The layout that `quantization_config` of a config.json describes; None for a checkpoint that is not quantized.

    Raises LabError for one that is not supported, with what it asks for.
    """
    found = config.get("quantization_config")
    if found is None:
        return None
    if not isinstance(found, Mapping):
        raise LabError(f"{file}: quantization_config is {short(found)}", "give the config.json of the checkpoint")
    method = found.get("quant_method")
    readers = {"fp8": _fp8, "gptq": _gptq, "awq": _awq, "compressed-tensors": _compressed}
    if method not in readers:
        raise LabError(
            f"{file}: quant_method is {short(method)}", f"give a checkpoint of {', '.join(readers)}, or one in bf16"
        )
    return readers[method](f"{file}, {method}", found)


def _fp8(place: str, config: Mapping[str, Any]) -> Quantization:
    """e4m3 with a scale for 128 x 128 weights, which is stored as `weight_scale_inv` and multiplied."""
    _only(place, config, "weight_block_size", [BLOCK, BLOCK])
    _only(place, config, "fmt", "e4m3", "e4m3")

    def shapes(rows: int, columns: int) -> Shapes:
        return {"weight": (rows, columns), "weight_scale_inv": (-(-rows // BLOCK), -(-columns // BLOCK))}

    def numbers(parts: Parts) -> "tuple[torch.Tensor, torch.Tensor, torch.Tensor]":
        import torch

        weight, blocks = parts["weight"].view(torch.uint8), parts["weight_scale_inv"]
        scale = blocks.repeat_interleave(BLOCK, 0)[: len(weight)]
        return weight, scale, torch.zeros(scale.shape, dtype=torch.int32)

    dtypes = {"weight": ("F8_E4M3",), "weight_scale_inv": ("BF16", "F32")}
    return Quantization("fp8", Format("fp8", BLOCK), shapes, dtypes, numbers)


def _gptq(place: str, config: Mapping[str, Any]) -> Quantization:
    """Integers packed along the columns; zero points are stored less one, but in the second version."""
    bits, group = _bits(place, config, "bits"), _group(place, config.get("group_size"))
    _only(place, config, "desc_act", False, False)  # it permutes columns
    _only(
        place,
        config,
        "checkpoint_format",
        *("gptq_v2", "gptq_v2") if config.get("checkpoint_format") == "gptq_v2" else ("gptq", "gptq"),
    )
    less = 0 if config.get("checkpoint_format") == "gptq_v2" else 1
    each = 32 // bits

    def shapes(rows: int, columns: int) -> Shapes:
        groups = columns // (group or columns)
        return {
            "qweight": (columns // each, rows),
            "qzeros": (groups, rows // each),
            "scales": (groups, rows),
            "g_idx": (columns,),
        }

    def numbers(parts: Parts) -> "tuple[torch.Tensor, torch.Tensor, torch.Tensor]":
        import torch

        columns = len(parts["g_idx"])
        if not torch.equal(parts["g_idx"].long(), torch.arange(columns) // (group or columns)):
            raise LabError(f"{place}: g_idx permutes columns, as desc_act does", USE)
        weight = _unpacked(parts["qweight"].T, bits)
        zero = _unpacked(parts["qzeros"], bits).T.int() + less
        return weight, parts["scales"].T, zero

    dtypes = {"qweight": ("I32",), "qzeros": ("I32",), "scales": ("F16",), "g_idx": ("I32",)}
    return Quantization("gptq", Format(f"int{bits}", group, zeros=True, half=True), shapes, dtypes, numbers)


def _awq(place: str, config: Mapping[str, Any]) -> Quantization:
    """4-bit integers packed along the rows, eight of which are in a word in the order AWQ_ORDER."""
    group = _group(place, config.get("group_size"))
    _only(place, config, "bits", 4)
    _only(place, config, "zero_point", True)
    _only(place, config, "version", "gemm")

    def shapes(rows: int, columns: int) -> Shapes:
        groups = columns // (group or columns)
        return {"qweight": (columns, rows // 8), "qzeros": (groups, rows // 8), "scales": (groups, rows)}

    def ordered(words: "torch.Tensor") -> "torch.Tensor":
        nibbles = _unpacked(words, 4).view(len(words), -1, 8)
        return nibbles[:, :, [AWQ_ORDER.index(i) for i in range(8)]].reshape(len(words), -1).T

    def numbers(parts: Parts) -> "tuple[torch.Tensor, torch.Tensor, torch.Tensor]":
        return ordered(parts["qweight"]), parts["scales"].T, ordered(parts["qzeros"]).int()

    dtypes = {"qweight": ("I32",), "qzeros": ("I32",), "scales": ("F16",)}
    return Quantization("awq", Format("int4", group, zeros=True, half=True), shapes, dtypes, numbers)


def _compressed(place: str, config: Mapping[str, Any]) -> Quantization:
    """Integers packed along the columns with half of their range added, int8 as it is, or e4m3."""
    groups = config.get("config_groups")
    if not isinstance(groups, Mapping) or len(groups) != 1:
        raise LabError(f"{place}: config_groups is {short(groups)}, not one group for all matrices", USE)
    (only,) = groups.values()
    weights = only.get("weights") if isinstance(only, Mapping) else None
    if not isinstance(weights, Mapping):
        raise LabError(f"{place}: config_groups has no weights: {short(only)}", USE)
    _only(place, only, "targets", ["Linear"])
    layout, kind = config.get("format"), weights.get("type")
    bits, strategy = _bits(place, weights, "num_bits"), weights.get("strategy")
    known = {"pack-quantized": "int", "int-quantized": "int", "float-quantized": "float", "naive-quantized": kind}
    if layout not in known or known[layout] != kind or strategy not in ("group", "channel"):
        what = f"format {short(layout)}, type {short(kind)}, strategy {short(strategy)}"
        raise LabError(f"{place}: {what}", "give int or float weights by channel or group, or use a bf16 checkpoint")
    group = _group(place, weights.get("group_size")) if strategy == "group" else 0
    packed, zeros, each = layout == "pack-quantized", weights.get("symmetric") is False, 32 // bits
    if (zeros and not packed) or weights.get("actorder") not in (None, False, "static", "weight"):
        raise LabError(f"{place}: zero points or an order of columns that {short(layout)} has none for", USE)

    def shapes(rows: int, columns: int) -> Shapes:
        scale = {"weight_scale": (rows, columns // (group or columns))}
        if not packed:
            return {"weight": (rows, columns), **scale}
        zero = {"weight_zero_point": (rows // each, scale["weight_scale"][1])} if zeros else {}
        return {"weight_packed": (rows, columns // each), "weight_shape": (2,), **scale, **zero}

    def numbers(parts: Parts) -> "tuple[torch.Tensor, torch.Tensor, torch.Tensor]":
        import torch

        scale = parts["weight_scale"]
        zero = torch.zeros(scale.shape, dtype=torch.int32)
        if packed:
            if zeros:
                zero = _unpacked(parts["weight_zero_point"].T, bits).T.int()
            return _unpacked(parts["weight_packed"], bits), scale, zero
        weight = parts["weight"]
        return (weight.view(torch.uint8) if kind == "float" else (weight.int() + 128).byte()), scale, zero

    number = ("I32",) if packed else ("F8_E4M3",) if kind == "float" else ("I8",)
    dtypes = {
        "weight_packed" if packed else "weight": number,
        "weight_shape": ("I64", "I32"),
        "weight_scale": ("BF16", "F32"),
        "weight_zero_point": ("I32",),
    }
    form = Format("fp8" if kind == "float" else f"int{bits}", group, zeros)
    return Quantization("compressed-tensors", form, shapes, dtypes, numbers)


def _unpacked(words: "torch.Tensor", bits: int) -> "torch.Tensor":
    """uint8 numbers [rows, columns] of int32 words [rows, columns * bits / 32], the lowest bits first."""
    import torch

    content = words.contiguous().view(torch.uint8)
    return content if bits == 8 else torch.stack((content & 15, content >> 4), dim=2).view(len(words), -1)


def _bits(place: str, config: Mapping[str, Any], key: str) -> int:
    bits = config.get(key)
    if bits not in (4, 8):
        raise LabError(f"{place}: {key} is {short(bits)}", f"give a checkpoint of 4 or 8 bits; or {USE}")
    return int(bits)


def _group(place: str, group: Any) -> int:
    """Columns of a group; 0 for a whole row, which checkpoints spell -1."""
    if type(group) is not int or (group != -1 and (group < WORD or group % WORD)):
        raise LabError(
            f"{place}: group_size is {short(group)}", f"give a checkpoint with a multiple of {WORD}; or {USE}"
        )
    return max(group, 0)


def _only(place: str, config: Mapping[str, Any], key: str, wanted: Any, default: Any = None) -> None:
    found = config.get(key, default)
    if found != wanted:
        raise LabError(f"{place}: {key} is {short(found)}, and only {short(wanted)} is read", USE)
