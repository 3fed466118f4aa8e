"""Operands of SASS as functions of a thread's registers.

A value is 32 or 64 bits, True or False of a predicate, or None where it is not known.
"""

import struct
from collections.abc import Callable, Mapping
from typing import Any

MASK = 0xFFFFFFFF
Value = Any
Registers = dict[str, Value]
Get = Callable[[Registers], Value]


def signed(value: int, bits: int = 32) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def as_float(bits: int) -> float:
    return struct.unpack("<f", struct.pack("<I", bits & MASK))[0]


def as_bits(value: float) -> int:
    return struct.unpack("<I", struct.pack("<f", value))[0]


def is_predicate(operand: str) -> bool:
    return operand.lstrip("!U").startswith("P")


def after(register: str, by: int = 1) -> str:
    """The register `by` places after `register`; RZ is followed by itself."""
    head = register.rstrip("0123456789")
    return f"{head}{int(register[len(head) :]) + by}" if head != register else register


def source(operand: str, constants: Mapping[tuple[int, int], int], words: int = 1) -> Get:
    """A function that reads an operand of `words` 32-bit words: a register, predicate, constant or number.

    constants: words by bank and byte. Raises TypeError, when called, for an operation on an unknown value.
    """
    sign, text = operand[0], operand.removesuffix(".reuse")
    if sign in "-~!|":
        inner = source(text[1:].rstrip("|"), constants, words)
        return {
            "-": lambda r: (1 << 32 * words) - inner(r),
            "~": lambda r: ~inner(r) & ((1 << 32 * words) - 1),
            "!": lambda r: None if (value := inner(r)) is None else not value,
            "|": lambda r: abs(signed(inner(r))),
        }[sign]
    name = text.partition(".")[0]
    if name in ("RZ", "URZ", "SRZ"):
        return lambda r: 0
    if name in ("PT", "UPT"):
        return lambda r: True
    if name.startswith("SR_"):
        return lambda r: r.get(text)
    if name.lstrip("U")[0] in "RP" and name[-1].isdigit():
        names = [after(name, word) for word in range(words)]
        return (lambda r: r.get(name, 0)) if words == 1 else lambda r: _joined([r.get(each, 0) for each in names])
    if text.startswith("c["):
        bank, where = int(text[2:].partition("]")[0], 16), address(text, constants)
        return lambda r: _joined([constants.get((bank, where(r) + 4 * word)) for word in range(words)])
    number = _number(text)
    return lambda r: number


def _joined(words: list[int | None]) -> int | None:
    return None if None in words else sum(word << 32 * place for place, word in enumerate(words) if word)


def _number(text: str) -> int | None:
    try:
        return int(text, 16) if "0x" in text else as_bits(float(text))
    except ValueError:  # a label, a constant of another bank
        return None


def address(operand: str, constants: Mapping[tuple[int, int], int]) -> Get:
    """As `source`, the address in an operand such as desc[UR4][R2.64+0x10] or [R52.X4+UR6]; None: not known."""
    terms: list[tuple[Get, int]] = []
    offset = 0
    for term in operand.rpartition("[")[2].rstrip("]").split("+"):
        name, _, width = term.partition(".")
        if "0x" in term:
            offset += int(term, 16)
        else:
            scale = int(width[1:]) if width.startswith("X") else 1
            terms.append((source(name, constants, 2 if width == "64" else 1), scale))

    def find(registers: Registers) -> int | None:
        values = [(get(registers), scale) for get, scale in terms]
        if any(value is None for value, _ in values):
            return None
        return offset + sum(value * scale for value, scale in values)

    return find
