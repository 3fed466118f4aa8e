"""Elements of arrays: types of the yaml as NumPy's, and contents that a number, a word or a file gives."""

import math
import os
from pathlib import Path
from typing import Any, Literal

import numpy as np

from common.errors import LabError

Type = Literal["s8", "s16", "s32", "s64", "u8", "u16", "u32", "u64", "f16", "bf16", "f32", "f64"]
KINDS = {"s": "int", "u": "uint", "f": "float"}
FILLS = ("unwritten", "zeros", "arange", "random")
ALIGN = 256  # bytes, as of memory that a driver gives
MOST_DIMENSIONS = 32
WIDEST = 8  # bytes of an element while it is made


def dtype(name: str) -> np.dtype:
    if name == "bf16":
        return np.dtype(np.uint16)
    return np.dtype(f"{KINDS[name[0]]}{name[1:]}")


def is_float(name: str) -> bool:
    return "f" in name


def numbers(value: Any, kind: str, path: str) -> np.ndarray:
    """The elements of a key `value`. Raises LabError for what is no number, or does not fit in the type."""
    values = value if isinstance(value, list) else [value]
    try:
        if not all(type(each) is int or (type(each) is float and is_float(kind)) for each in values):
            raise TypeError
        wide = np.array(values, np.float64 if is_float(kind) else dtype(kind))
        found = of(wide, kind)
        if is_float(kind) and (np.isinf(numbers_of(found, kind)) & ~np.isinf(wide)).any():
            raise OverflowError
    except (TypeError, OverflowError):
        raise LabError(f"{path}.value={value} does not fit in {kind}", "give value: 1, or a list of numbers") from None
    return found


def check_shape(shape: tuple[int, ...], path: str) -> None:
    """Raise LabError for a shape that NumPy or this machine's memory has no room for."""
    if len(shape) > MOST_DIMENSIONS or math.prod(shape) * WIDEST > half_of_memory():
        raise LabError(
            f"{path}.shape={list(shape)} has more than {MOST_DIMENSIONS} dimensions, or needs more than half of this "
            "machine's memory",
            "give a smaller shape",
        )


def half_of_memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


def filled(fill: Any, shape: tuple[int, ...], kind: str, random: np.random.Generator, path: str) -> np.ndarray:
    """Elements by one of FILLS. Raises LabError for any other."""
    if fill not in FILLS:
        raise LabError(f"{path}.fill={fill} is unknown", f"known: {', '.join(FILLS)}, or a .npy file")
    if fill == "unwritten":  # all bits set: NaN in every type of floats
        return np.full(shape, -1, f"i{dtype(kind).itemsize}").view(dtype(kind))
    if fill == "random":
        return of(random.standard_normal(shape) if is_float(kind) else random.integers(0, 100, shape), kind)
    return of(np.arange(math.prod(shape)).reshape(shape) if fill == "arange" else np.zeros(shape), kind)


def read(file: Path, path: str) -> np.ndarray:
    """The array of a .npy file. path: of the key that names it. Raises LabError."""
    try:
        with file.open("rb") as opened:
            values = np.lib.format.read_array(opened, allow_pickle=False)
        if not values.size:
            raise ValueError("it holds no number")
    except (OSError, ValueError, EOFError, MemoryError, SyntaxError) as error:
        raise LabError(f"{path}: {file} cannot be read: {error}", "give a file that numpy.save has written") from None
    return values


def loaded(file: Path, kind: str, shape: tuple[int, ...] | None, path: str) -> np.ndarray:
    """The elements of a .npy file for a key `fill`. Raises LabError."""
    values, wanted = read(file, path), np.dtype(np.float32) if kind == "bf16" else dtype(kind)
    if values.dtype != wanted or shape not in (None, values.shape):
        raise LabError(
            f"{path}: {file} holds {values.dtype} {list(values.shape)}, and {kind} needs {wanted}"
            + (f" {list(shape)}" if shape else ""),
            "save it as that type; the shape may be left out",
        )
    return of(values, kind)


def of(values: np.ndarray, kind: str) -> np.ndarray:
    """Numbers as elements of a type; in bf16 rounded to the nearest, ties to even."""
    with np.errstate(over="ignore"):
        if kind != "bf16":
            return values.astype(dtype(kind))
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
