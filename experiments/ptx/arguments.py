"""Arguments of a kernel, as a yaml describes them: numbers, and arrays in memory."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from common.config.section import Section
from common.devices.ptx.text import Kernel
from common.errors import LabError, known
from experiments.ptx.elements import FILLS, Type, aligned, check_shape, filled, loaded, numbers, numbers_of
from experiments.ptx.expected import Expected, expected

ADDRESS = "u64"  # type of addresses
CONTENTS = {("value",), ("shape",), ("fill",), ("shape", "fill"), ("address_of",), ("shape", "address_of")}
CONTENT_KEYS = ("value", "shape", "fill", "address_of")


@dataclass(frozen=True)
class Description:
    """An argument as the yaml has it."""

    name: str | None
    type: Type
    value: Any
    shape: tuple[int, ...] | None
    fill: Any
    address_of: Any
    expect: str | None
    tolerance: Any


@dataclass(frozen=True)
class Argument:
    """One argument, or an array that others point to.

    bits: its elements, bf16 as 16-bit integers; an array is passed by its address. points_to: names of the arrays whose
    addresses are the elements, and numbers among them.
    """

    name: str
    type: str
    bits: np.ndarray
    is_array: bool
    points_to: Sequence[str | int] = ()
    expected: Expected | None = None

    @property
    def numbers(self) -> np.ndarray:
        """The elements; bf16 as fp32."""
        return numbers_of(self.bits, self.type)


@dataclass(frozen=True)
class Given:
    """The kernel's arguments in order, and all arrays: those among them, then those of the key `arrays`."""

    arguments: Sequence[Argument]
    arrays: Sequence[Argument]

    def placed(self, kernel: Kernel) -> bytes:
        """The block of the kernel's parameters; sets pointers. Raises LabError for arguments that do not fit."""
        wanted = [(name, size) for name, (_, size) in kernel.parameters.items()]
        passed = [(one.type, 8 if one.is_array else one.bits.nbytes) for one in self.arguments]
        if [size for _, size in wanted] != [size for _, size in passed]:
            takes, gives = (", ".join(f"{name} ({size} B)" for name, size in each) for each in (wanted, passed))
            raise LabError(
                f"{kernel.name} takes {takes or 'nothing'}, and arguments= gives {gives or 'nothing'}",
                "give a number for a number, a shape for a pointer, and a type of that size",
            )
        addresses = {one.name: one.bits.ctypes.data for one in self.arrays}
        for one in (*self.arguments, *self.arrays):
            if one.points_to:
                one.bits.reshape(-1)[:] = [addresses[each] if isinstance(each, str) else each for each in one.points_to]
        block = bytearray(kernel.parameter_bytes)
        for one, (offset, size) in zip(self.arguments, kernel.parameters.values(), strict=True):
            value = np.uint64(addresses[one.name]) if one.is_array else one.bits
            block[offset : offset + size] = value.tobytes()
        return bytes(block)


def given(arguments: Any, arrays: Any, seed: int, folder: Path) -> Given:
    """The arguments and arrays of the keys of these names; .npy files are below `folder`. Raises LabError."""
    passed = _listed(arguments, "arguments", (seed,), folder)
    pointed = _listed(arrays, "arrays", (seed, 1), folder)
    there = {one.name: one for one in (*passed, *pointed) if one.is_array}
    if len(there) < sum(one.is_array for one in (*passed, *pointed)):
        raise LabError("two arrays have one name", "give each another name")
    for one in (*passed, *pointed):
        for each in one.points_to:
            if isinstance(each, str):
                known(f"array in address_of of {one.name}", each, there)
    return Given(passed, [*there.values()])


def _listed(given: Any, key: str, seeds: tuple[int, ...], folder: Path) -> list[Argument]:
    if not isinstance(given, list) or not all(isinstance(each, dict) for each in given):
        raise LabError(f"{key}={given} is no list of mappings", f"give {key}=[{{type:f32,value:1}},...]")
    return [
        _argument(Section(one, f"{key}[{at}]."), np.random.default_rng([*seeds, at]), folder)
        for at, one in enumerate(given)
    ]


def _argument(section: Section, random: np.random.Generator, folder: Path) -> Argument:
    one, path = section.read(Description), section.path[:-1]
    name = one.name or path.replace("s[", " ").removesuffix("]")
    if {*name} & {*"/\0"}:
        raise LabError(f"{path}.name={name} is no name of a file, which out= makes of it", "give letters and digits")
    is_file = isinstance(one.fill, str) and one.fill.endswith(".npy")
    has = tuple(key for key in CONTENT_KEYS if section.given(key))
    if has not in CONTENTS or (has == ("fill",) and not is_file):
        raise LabError(
            f"{path} has {' and '.join(has) or 'no value and no shape'}",
            "give value: 1 for a number, shape: 8 for an array, and for its contents fill or address_of",
        )
    if one.shape:
        check_shape(one.shape, path)
    points_to = _points_to(one, path) if section.given("address_of") else ()
    if points_to:
        values = np.zeros(one.shape or len(points_to), np.uint64)
    elif has == ("value",):
        values = numbers(one.value, one.type, path)
    elif is_file:
        values = loaded(folder / one.fill, one.type, one.shape, f"{path}.fill")
    else:
        values = filled(FILLS[0] if one.fill is None else one.fill, one.shape or (), one.type, random, path)
    is_array = bool(one.shape or is_file or path.startswith("arrays"))
    if bool(one.expect) < section.given("tolerance") or (one.expect and (points_to or not is_array)):
        raise LabError(f"{path} has a tolerance without expect, or is no array of numbers", "leave them out")
    right = one.expect and expected(folder / one.expect, one.tolerance, one.type, values.shape, path)
    return Argument(name, one.type, aligned(values), is_array, points_to, right or None)


def _points_to(one: Description, path: str) -> Sequence[str | int]:
    names = one.address_of if isinstance(one.address_of, list) else [one.address_of]
    places = all(isinstance(each, str) or (type(each) is int and 0 <= each < 2**64) for each in names)
    if one.type != ADDRESS or not names or not places or (one.shape and math.prod(one.shape) != len(names)):
        raise LabError(
            f"{path}.address_of={one.address_of} is no list of addresses of the type {one.type} in its shape",
            f"give type: {ADDRESS}, and for each element the name of an array or a whole number: 0 is a null pointer",
        )
    return names
