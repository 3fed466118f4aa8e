"""Arguments of a kernel, as a yaml describes them: numbers, and arrays in memory."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from common.config.section import Section
from common.devices.ptx.text import Kernel
from common.errors import LabError

Type = Literal["s8", "s16", "s32", "s64", "u8", "u16", "u32", "u64", "f16", "bf16", "f32", "f64"]
KINDS = {"s": "int", "u": "uint", "f": "float"}
FILLS = ("unwritten", "zeros", "arange", "random")
UNWRITTEN = 0xFF  # of each byte: NaN in every type of floats
ALIGN = 256  # bytes, as of memory that a driver gives


@dataclass(frozen=True)
class Description:
    """An argument as the yaml has it; `value` is read apart."""

    name: str | None
    type: Type
    shape: tuple[int, ...] | None
    fill: str | None


@dataclass(frozen=True)
class Argument:
    """One argument. bits: its elements, bf16 as 16-bit integers; an array is passed by its address."""

    name: str
    type: str
    bits: np.ndarray
    is_array: bool

    @property
    def passed(self) -> bytes:
        return np.uint64(self.bits.ctypes.data).tobytes() if self.is_array else self.bits.tobytes()

    @property
    def numbers(self) -> np.ndarray:
        """The elements; bf16 as fp32."""
        return (self.bits.astype(np.uint32) << 16).view(np.float32) if self.type == "bf16" else self.bits


def arguments(given: Any, seed: int, folder: Path) -> list[Argument]:
    """The arguments of the key `arguments`; .npy files are below `folder`. Raises LabError."""
    if not isinstance(given, list):
        raise LabError(f"arguments={given} is not a list", "give arguments=[{type:f32,value:1},...]")
    return [_argument(one, at, np.random.default_rng([seed, at]), folder) for at, one in enumerate(given)]


def dtype(name: str) -> np.dtype:
    if name == "bf16":
        return np.dtype(np.uint16)
    return np.dtype(f"{KINDS[name[0]]}{name[1:]}")


def _argument(given: Any, at: int, random: np.random.Generator, folder: Path) -> Argument:
    path = f"arguments[{at}]"
    if not isinstance(given, dict):
        raise LabError(f"{path}={given} is not a mapping", "write {type: f32, value: 1}, or {type: f32, shape: 8}")
    section = Section({str(key): value for key, value in given.items()}, f"{path}.")
    if section.values.get("fill") is not None:
        section.values["fill"] = str(section.values["fill"])  # for a number the error names the known fills
    section.only({"name", "type", "value", "shape", "fill"})
    one = Description(**section.fields(Description))
    name = one.name or f"argument {at}"
    if section.given("value"):
        if one.shape or one.fill:
            raise LabError(f"{path} has a value and a {'shape' if one.shape else 'fill'}", "leave one of them out")
        return Argument(name, one.type, _numbers(section.values["value"], one.type, path), False)
    if one.fill and one.fill.endswith(".npy"):
        values = _loaded(folder / one.fill, one, path)
    elif one.shape is None:
        raise LabError(f"{path} has neither a value nor a shape", "give value: 1 for a number, shape: 8 for an array")
    else:
        values = _filled(one.fill or FILLS[0], one.shape, one.type, random, path)
    return Argument(name, one.type, _aligned(values), True)


def _numbers(value: Any, kind: str, path: str) -> np.ndarray:
    values = value if isinstance(value, list) else [value]
    whole = kind[0] in "su"
    for each in values:
        if isinstance(each, bool) or not isinstance(each, int if whole else int | float):
            raise LabError(f"{path}.value={each} is no {'whole ' * whole}number", "give value: 1, or a list of numbers")
        if whole and not np.iinfo(dtype(kind)).min <= each <= np.iinfo(dtype(kind)).max:
            raise LabError(f"{path}.value={each} does not fit in {kind}", "give a smaller one, or a wider type")
    return _of(np.array(values, np.float64 if not whole else dtype(kind)), kind)


def _filled(fill: str, shape: tuple[int, ...], kind: str, random: np.random.Generator, path: str) -> np.ndarray:
    size = int(np.prod(shape))
    if fill == "unwritten":
        return np.full(size * dtype(kind).itemsize, UNWRITTEN, np.uint8).view(dtype(kind)).reshape(shape)
    if fill == "zeros":
        return np.zeros(shape, dtype(kind))
    if fill == "arange":
        return _of(np.arange(size).reshape(shape), kind)
    if fill == "random":
        return _of(random.standard_normal(shape) if "f" in kind else random.integers(0, 100, shape), kind)
    raise LabError(f"{path}.fill={fill} is unknown", f"known: {', '.join(FILLS)}, or a .npy file")


def _loaded(file: Path, one: Description, path: str) -> np.ndarray:
    try:
        values = np.load(file, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise LabError(
            f"{path}.fill: {file} cannot be read: {error}", "give a file that numpy.save has written"
        ) from None
    wanted = np.dtype(np.float32) if one.type == "bf16" else dtype(one.type)
    if getattr(values, "dtype", None) != wanted:
        raise LabError(
            f"{path}.fill: {file} holds {values.dtype}, and {one.type} needs {wanted}", "save it as that type"
        )
    if one.shape and one.shape != values.shape:
        raise LabError(f"{path}.fill: {file} has the shape {list(values.shape)}", "leave shape out, or give this one")
    return _of(values, one.type)


def _of(values: np.ndarray, kind: str) -> np.ndarray:
    """Numbers as elements of a type; in bf16 rounded to the nearest, ties to even."""
    if kind != "bf16":
        return values.astype(dtype(kind))
    bits = values.astype(np.float32).view(np.uint32)
    rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
    return np.where(np.isnan(values), 0x7FFF, rounded).astype(np.uint16)


def _aligned(values: np.ndarray) -> np.ndarray:
    raw = np.empty(values.nbytes + ALIGN, np.uint8)
    start = -raw.ctypes.data % ALIGN
    found = raw[start : start + values.nbytes].view(values.dtype).reshape(values.shape)
    found[...] = values
    return found


def packed(given: Sequence[Argument], kernel: Kernel) -> bytes:
    """The block of a kernel's parameters. Raises LabError for arguments that do not fit them."""
    if len(given) != len(kernel.parameters):
        wanted = ", ".join(f"{name} ({size} B)" for name, (_, size) in kernel.parameters.items()) or "none"
        cause = f"{kernel.name} has {len(kernel.parameters)} parameters, and arguments= has {len(given)}"
        raise LabError(cause, f"give one for each: {wanted}")
    block = bytearray(kernel.parameter_bytes)
    for at, (one, (name, (offset, size))) in enumerate(zip(given, kernel.parameters.items(), strict=True)):
        if len(one.passed) != size:
            kind = "a pointer" if one.is_array else one.type
            raise LabError(
                f"arguments[{at}] is {kind} of {len(one.passed)} B, and {name} has {size} B",
                "give a number for a number, a shape for a pointer, and a type of that size",
            )
        block[offset : offset + size] = one.passed
    return bytes(block)


def text_in(file: Path, remedy: str) -> str:
    """The text of a file. Raises LabError if it cannot be read, or is no text."""
    try:
        if not file.is_file():
            raise LabError(f"{file} is no file", remedy)
        return file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise LabError(f"{file} cannot be read: {getattr(error, 'strerror', None) or error}", remedy) from None
