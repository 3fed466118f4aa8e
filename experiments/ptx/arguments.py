"""Arguments of a kernel, as a yaml describes them: numbers, and arrays in memory."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from common.config.section import Section
from common.devices.ptx.text import Kernel
from common.errors import LabError, known
from experiments.ptx.elements import FILLS, Type, aligned, check_shape, filled, loaded, numbers, numbers_of
from experiments.ptx.expected import Expected, expected

KEYS = {"name", "type", "value", "shape", "fill", "address_of", "expect", "tolerance"}
ADDRESS = "u64"  # type of addresses
CONTENTS = ("value", "fill", "address_of")  # keys that exclude each other


@dataclass(frozen=True)
class Description:
    """An argument as the yaml has it; `value`, `address_of` and `tolerance` are read apart."""

    name: str | None
    type: Type
    shape: tuple[int, ...] | None
    fill: str | None
    expect: str | None


@dataclass(frozen=True)
class Argument:
    """One argument, or an array that others point to.

    bits: its elements, bf16 as 16-bit integers; an array is passed by its address. points_to: names of the arrays whose
    addresses are the elements, and numbers among them. read: the files that it was made of.
    """

    name: str
    type: str
    bits: np.ndarray
    is_array: bool
    points_to: tuple[str | int, ...] = ()
    expected: Expected | None = None
    read: tuple[Path, ...] = ()

    @property
    def numbers(self) -> np.ndarray:
        """The elements; bf16 as fp32."""
        return numbers_of(self.bits, self.type)


@dataclass(frozen=True)
class Given:
    """The kernel's arguments in order, and all arrays: those among them, then those of the key `arrays`."""

    arguments: Sequence[Argument]
    arrays: Sequence[Argument]

    def placed(self, addresses: Mapping[str, int], kernel: Kernel) -> bytes:
        """The block of the kernel's parameters, with pointers set for arrays at these addresses, by name."""
        for one in (*self.arguments, *self.arrays):
            if one.points_to:
                one.bits.reshape(-1)[:] = [addresses[each] if isinstance(each, str) else each for each in one.points_to]
        block = bytearray(kernel.parameter_bytes)
        for one, (offset, size) in zip(self.arguments, kernel.parameters.values(), strict=True):
            value = np.uint64(addresses[one.name]) if one.is_array else one.bits
            block[offset : offset + size] = value.tobytes()
        return bytes(block)

    def check(self, kernel: Kernel) -> None:
        """Raise LabError for arguments that do not fit the kernel's parameters."""
        if len(self.arguments) != len(kernel.parameters):
            wanted = ", ".join(f"{name} ({size} B)" for name, (_, size) in kernel.parameters.items()) or "none"
            cause = f"{kernel.name} has {len(kernel.parameters)} parameters, and arguments= has {len(self.arguments)}"
            raise LabError(cause, f"give one for each: {wanted}")
        for at, (one, (name, (_, size))) in enumerate(zip(self.arguments, kernel.parameters.items(), strict=True)):
            has = 8 if one.is_array else one.bits.nbytes
            if has != size:
                kind = "a pointer" if one.is_array else one.type
                raise LabError(
                    f"arguments[{at}] is {kind} of {has} B, and {name} has {size} B",
                    "give a number for a number, a shape for a pointer, and a type of that size",
                )


def given(section: Section, seed: int, folder: Path) -> Given:
    """The arguments and arrays of the keys of these names; .npy files are below `folder`. Raises LabError."""
    arguments = _listed(section.values["arguments"], "arguments", (seed,), folder)
    pointed = _listed(section.values["arrays"], "arrays", (seed, 1), folder)
    for at, one in enumerate(pointed):
        if not one.is_array:
            raise LabError(f"arrays[{at}] is no array", "give it a shape, and numbers for the kernel in arguments")
    arrays = [one for one in (*arguments, *pointed) if one.is_array]
    names = [one.name for one in arrays]
    for name in names:
        if names.count(name) > 1:
            raise LabError(f"two arrays have the name {name}", "give each another name")
    for one in (*arguments, *pointed):
        for each in one.points_to:
            if isinstance(each, str):
                known(f"array in address_of of {one.name}", each, names)
    return Given(arguments, arrays)


def _listed(given: Any, key: str, seeds: tuple[int, ...], folder: Path) -> list[Argument]:
    if not isinstance(given, list):
        raise LabError(f"{key}={given} is not a list", f"give {key}=[{{type:f32,value:1}},...]")
    return [_argument(one, f"{key}[{at}]", np.random.default_rng([*seeds, at]), folder) for at, one in enumerate(given)]


def _argument(given: Any, path: str, random: np.random.Generator, folder: Path) -> Argument:
    if not isinstance(given, dict):
        raise LabError(f"{path}={given} is not a mapping", "write {type: f32, value: 1}, or {type: f32, shape: 8}")
    section = Section({str(key): value for key, value in given.items()}, f"{path}.")
    if section.values.get("fill") is not None:
        section.values["fill"] = str(section.values["fill"])  # for a number the error names the known fills
    section.only(KEYS)
    one = Description(**section.fields(Description))
    name = one.name or path.replace("s[", " ").removesuffix("]")
    if "/" in name or name.startswith(".") or "\0" in name:
        raise LabError(f"{path}.name={name} is no name of a file, which out= makes of it", "give letters and digits")
    contents = [key for key in CONTENTS if section.given(key)]
    if len(contents) > 1 or (contents == ["value"] and one.shape):
        raise LabError(f"{path} has a {contents[0]} and a {[*contents, 'shape'][1]}", "leave one of them out")
    if one.shape:
        check_shape(one.shape, path)
    points_to = _points_to(section.values["address_of"], one, path) if "address_of" in contents else ()
    if points_to:
        values = np.zeros(one.shape or len(points_to), np.uint64)
    elif "value" in contents:
        values = numbers(section.values["value"], one.type, path)
    elif one.fill and one.fill.endswith(".npy"):
        values = loaded(folder / one.fill, one.type, one.shape, f"{path}.fill")
    elif one.shape is None:
        raise LabError(f"{path} has neither a value nor a shape", "give value: 1 for a number, shape: 8 for an array")
    else:
        values = filled(one.fill or FILLS[0], one.shape, one.type, random, path)
    is_array = bool(one.shape or one.fill or (points_to and path.startswith("arrays")))
    if one.expect is None:
        if section.given("tolerance"):
            raise LabError(f"{path} has a tolerance and nothing to expect", "give expect: FILE.npy, too")
        right = None
    elif not is_array or points_to:
        raise LabError(f"{path} has something to expect, and is no array of numbers", "leave expect out")
    else:
        right = expected(folder / one.expect, section.values.get("tolerance"), one.type, values.shape, path)
    files = [folder / one.fill] if one.fill and one.fill.endswith(".npy") else []
    return Argument(name, one.type, aligned(values), is_array, points_to, right, tuple(files))


def _points_to(given: Any, one: Description, path: str) -> tuple[str | int, ...]:
    names = given if isinstance(given, list) else [given]
    if one.type != ADDRESS:
        raise LabError(f"{path} has addresses of type {one.type}", f"give type: {ADDRESS}")
    if not names or not all(isinstance(each, str) or (type(each) is int and 0 <= each < 2**64) for each in names):
        raise LabError(
            f"{path}.address_of={given} is no name, and no list of names",
            "give names of arrays, and whole numbers for what is no pointer: 0 is a null pointer",
        )
    if one.shape and int(np.prod(one.shape)) != len(names):
        raise LabError(
            f"{path} has {len(names)} addresses, and the shape {list(one.shape)}", "give a name for each element"
        )
    return tuple(names)


def text_in(file: Path, remedy: str) -> str:
    """The text of a file. Raises LabError if it cannot be read, or is no text."""
    try:
        if not file.is_file():
            raise LabError(f"{file} is no file", remedy)
        text = file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise LabError(f"{file} cannot be read: {getattr(error, 'strerror', None) or error}", remedy) from None
    if "\0" in text:
        raise LabError(f"{file} is no text: it holds a zero byte", remedy)
    return text
