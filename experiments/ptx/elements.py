"""Elements of arrays: types of the yaml as NumPy's, and contents that a number, a word or a file gives."""

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from common.errors import LabError

Type = Literal["s8", "s16", "s32", "s64", "u8", "u16", "u32", "u64", "f16", "bf16", "f32", "f64"]
KINDS = {"s": "int", "u": "uint", "f": "float"}
FILLS = ("unwritten", "zeros", "arange", "random")
UNWRITTEN = 0xFF  # each byte: NaN in every type of floats
ALIGN = 256  # bytes, as of memory that a driver gives
MOST_DIMENSIONS = 32
WIDEST = 8  # bytes of an element while it is made
LARGEST = {"bf16": float.fromhex("0x1.fep127"), "f16": 65504.0, "f32": float(np.finfo(np.float32).max)}


def dtype(name: str) -> np.dtype:
    if name == "bf16":
        return np.dtype(np.uint16)
    return np.dtype(f"{KINDS[name[0]]}{name[1:]}")


def is_float(name: str) -> bool:
    return "f" in name


def numbers(value: Any, kind: str, path: str) -> np.ndarray:
    """The elements of a key `value`. Raises LabError for what is no number, or does not fit in the type."""
    values = value if isinstance(value, list) else [value]
    for each in values:
        if isinstance(each, bool) or not isinstance(each, int | float if is_float(kind) else int):
            whole = "" if is_float(kind) else "whole "
            raise LabError(f"{path}.value={each} is no {whole}number", "give value: 1, or a list of numbers")
        if not _fits(each, kind):
            raise LabError(f"{path}.value={each:.6g} does not fit in {kind}" if isinstance(each, float) else
                           f"{path}.value={_short(each)} does not fit in {kind}",
                           "give a smaller one, or a wider type")  # fmt: skip
    return of(np.array(values, np.float64 if is_float(kind) else dtype(kind)), kind)


def _fits(value: float, kind: str) -> bool:
    if is_float(kind):
        return not math.isfinite(value) or abs(value) <= LARGEST.get(kind, float(np.finfo(np.float64).max))
    return int(np.iinfo(dtype(kind)).min) <= value <= int(np.iinfo(dtype(kind)).max)


def _short(value: int) -> str:
    return str(value) if abs(value) < 10**30 else "a number of more than 30 digits"


def check_shape(shape: Sequence[int], path: str) -> None:
    """Raise LabError for a shape that NumPy or this machine's memory has no room for."""
    if len(shape) > MOST_DIMENSIONS:
        raise LabError(f"{path}.shape has {len(shape)} dimensions", f"give at most {MOST_DIMENSIONS}")
    if math.prod(shape) * WIDEST > half_of_memory():
        raise LabError(
            f"{path}.shape={_short(math.prod(shape))} elements need more than half of this machine's memory",
            "give a smaller shape",
        )


def half_of_memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


def filled(fill: str, shape: tuple[int, ...], kind: str, random: np.random.Generator, path: str) -> np.ndarray:
    size = math.prod(shape)
    if fill == "unwritten":
        return np.full(size * dtype(kind).itemsize, UNWRITTEN, np.uint8).view(dtype(kind)).reshape(shape)
    if fill == "zeros":
        return np.zeros(shape, dtype(kind))
    if fill == "arange":
        return of(np.arange(size).reshape(shape), kind)
    if fill == "random":
        return of(random.standard_normal(shape) if is_float(kind) else random.integers(0, 100, shape), kind)
    raise LabError(f"{path}.fill={fill} is unknown", f"known: {', '.join(FILLS)}, or a .npy file")


def read(file: Path, path: str) -> np.ndarray:
    """The array of a .npy file. path: of the key that names it. Raises LabError."""
    remedy = "give a file that numpy.save has written"
    try:
        if not file.is_file():
            raise LabError(f"{path}: {file} cannot be read: it is no file", remedy)
        values = np.load(file, allow_pickle=False)
    except (OSError, ValueError, EOFError, MemoryError, SyntaxError) as error:
        raise LabError(f"{path}: {file} cannot be read: {error}", remedy) from None
    if not isinstance(values, np.ndarray):
        raise LabError(f"{path}: {file} holds several arrays", remedy)
    return values


def loaded(file: Path, kind: str, shape: tuple[int, ...] | None, path: str) -> np.ndarray:
    """The elements of a .npy file for a key `fill`. Raises LabError."""
    values = read(file, path)
    wanted = np.dtype(np.float32) if kind == "bf16" else dtype(kind)
    if values.dtype != wanted:
        raise LabError(f"{path}: {file} holds {values.dtype}, and {kind} needs {wanted}", "save it as that type")
    if shape and shape != values.shape:
        raise LabError(f"{path}: {file} has the shape {list(values.shape)}", "leave shape out, or give this one")
    return of(values, kind)


def of(values: np.ndarray, kind: str) -> np.ndarray:
    """Numbers as elements of a type; in bf16 rounded to the nearest, ties to even."""
    if kind != "bf16":
        return values.astype(dtype(kind))
    with np.errstate(over="ignore"):
        bits = values.astype(np.float32).view(np.uint32)
    rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
    return np.where(np.isnan(values), 0x7FFF, rounded).astype(np.uint16)


def numbers_of(bits: np.ndarray, kind: str) -> np.ndarray:
    """Elements as numbers; bf16 as fp32."""
    return (bits.astype(np.uint32) << 16).view(np.float32) if kind == "bf16" else bits


def aligned(values: np.ndarray) -> np.ndarray:
    raw = np.empty(values.nbytes + ALIGN, np.uint8)
    start = -raw.ctypes.data % ALIGN
    found = raw[start : start + values.nbytes].view(values.dtype).reshape(values.shape)
    found[...] = values
    return found
