"""Memory of a module's variables in global and constant memory, which may hold each other's addresses."""

import re
from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from common.devices.ptx.places import constant
from common.devices.ptx.rows import DIRECTLY, INDIRECT
from common.devices.ptx.text import MODULE_SPACES, WIDTHS, Variable, wrong

_ADDRESS = re.compile(r"(?:generic\(\s*([\w$]+)\s*\)|([A-Za-z_$][\w$]*))(?:\s*\+\s*(\d+))?$")


def memory_of(variables: Mapping[str, Variable]) -> dict[str, np.ndarray]:
    """The initial bytes of each, by name; other addresses than theirs are 0: `reached` refuses them."""
    memory = {name: _initialized(one) for name, one in variables.items() if one.space in MODULE_SPACES}
    for name, words in memory.items():
        for at, other, offset in _pointers(variables[name]):
            if other in memory:
                words.view(np.uint64)[at] = memory[other].ctypes.data + offset
    return memory


def reached(names: Iterable[str], variables: Mapping[str, Variable]) -> set[str]:
    """These variables and all that they point to. Raises CompileError for what is no variable."""
    found: set[str] = set()
    left = [*names]
    while left:
        name = left.pop()
        if name not in variables or variables[name].space not in MODULE_SPACES:
            raise wrong(name, f"an initial value is the address of this, no global variable: {INDIRECT}", DIRECTLY)
        if name not in found:
            found.add(name)
            left += [other for _, other, _ in _pointers(variables[name])]
    return found


def _pointers(variable: Variable) -> Iterator[tuple[int, str, int]]:
    """(number of the word, name, offset) of each address in the initializer."""
    for at, text in enumerate(variable.value):
        address = _ADDRESS.match(text)
        if address and WIDTHS[variable.type] == 8:
            yield at, address[1] or address[2], int(address[3] or 0)


def _initialized(variable: Variable) -> np.ndarray:
    """The bytes of a variable, with zeros for addresses."""
    align = max(variable.align, 64)
    raw = np.zeros(variable.bytes + 2 * align, np.uint8)
    start = -raw.ctypes.data % align
    words = raw[start : start + max(variable.bytes, 4)]
    pointers = {at for at, _, _ in _pointers(variable)}
    for at, text in enumerate(variable.value):
        if at in pointers:
            continue
        size, number = WIDTHS[variable.type], constant(text, variable.type)
        if number is None:
            raise wrong(variable.name, f"the initial value {text} is no number and no variable")
        words[at * size : (at + 1) * size] = list(number.to_bytes(size, "little"))
    return words
