"""Integers of one thread, executed from SASS: they decide its branches, and its loads.

Results of loads, shuffles and floating point are not known, but for the reciprocal by which integers are divided. An
instruction that is not listed here makes its results unknown.
"""

import struct
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import takewhile
from operator import eq, ge, gt, le, lt, ne

from experiments.prediction.sass.operands import (
    MASK,
    Get,
    Registers,
    Value,
    address,
    after,
    as_bits,
    as_float,
    is_predicate,
    signed,
    source,
)
from experiments.prediction.sass.program import Instruction

Modifiers = frozenset[str]
COMPARE = {"LT": lt, "EQ": eq, "LE": le, "GT": gt, "NE": ne, "GE": ge}
STRICT = {"GE": gt, "LE": lt}
PAIRS = ("DADD", "DMUL", "DFMA", "F2F.F64", "I2F.F64", "FRND.F64", "F2I.U64", "F2I.S64")  # their results are pairs
NO_RESULT = ("ST", "RED", "BAR", "BRA", "EXIT", "NOP", "MEMBAR", "CCTL", "BSSY", "BSYNC", "WARPSYNC")


class Lane:
    """Registers, shared and local memory of one thread.

    constants: words by bank and byte; special: registers such as SR_TID.X.
    """

    def __init__(self, constants: Mapping[tuple[int, int], int], special: Mapping[str, int]) -> None:
        self.registers: Registers = dict(special)
        self._constants = constants
        self._memories: dict[str, dict[int, Value]] = {"S": {}, "L": {}}  # shared, local: LDS and LDL, STS and STL
        self._sources: dict[str, Get] = {}

    def value(self, operand: str) -> Value:
        """Value of an operand; of a memory operand, such as desc[UR4][R2.64+0x10], the address."""
        if operand not in self._sources:
            self._sources[operand] = (address if operand.endswith("]") else source)(operand, self._constants)
        return self._sources[operand](self.registers)

    def compile(self, line: Instruction) -> Callable[[], None]:
        """A function that executes `line`: no jump, with a true guard."""
        opcode = line.opcode
        if opcode in ("LDS", "STS", "LDL", "STL"):
            return self._access(line)
        if opcode == "P2R":
            return self._pack(line)
        if opcode in ("VOTE", "VOTEU") and "ANY" in line.modifiers and line.operands[-1] in ("PT", "UPT"):
            return partial(self.registers.update, {line.operands[0]: MASK})  # no lane diverges
        if opcode.removeprefix("U") == "PLOP3":
            return self._combine(line)
        if opcode.removeprefix("U") in ("ISETP", "FSETP"):
            return self._compare(line)
        if operation := TABLE.get(opcode) or TABLE.get(opcode.removeprefix("U")):
            return self._compute(line, operation)
        return self.forget(line)

    def forget(self, line: Instruction) -> Callable[[], None]:
        """A function that makes the results of `line` unknown."""
        unknown, registers = dict.fromkeys(results(line)), self.registers
        return lambda: registers.update(unknown)

    def _source(self, operand: str) -> Get:
        return source(operand, self._constants)

    def _compute(self, line: Instruction, operation: Callable[..., Value]) -> Callable[[], None]:
        registers, modifiers, unknown = self.registers, line.modifiers, dict.fromkeys(results(line))
        wide, sources = _words(line)
        get = [source(text, self._constants, words) for text, words in sources]
        names = [(32 * place, name) for place, name in enumerate(name for name in unknown if not is_predicate(name))]
        # A predicate before the result is a test for 0, after it a carry.
        bits = 0 if is_predicate(line.operands[0]) else 32 * wide
        predicates = [name for name in unknown if is_predicate(name)]

        def execute() -> None:
            try:
                value = operation(modifiers, *(each(registers) for each in get))
            except TypeError:  # of an unknown operand
                value = None
            if value is None:
                registers.update(unknown)
                return
            for place, name in names:
                registers[name] = value >> place & MASK
            for name in predicates:
                registers[name] = value >> bits != 0

        return execute

    def _access(self, line: Instruction) -> Callable[[], None]:
        loads = line.opcode.startswith("LD")
        name, where = line.operands if loads else line.operands[::-1]
        registers, memory, get = self.registers, self._memories[line.opcode[-1]], address(where, self._constants)
        name = name.removesuffix(".reuse")
        names = [(4 * word, after(name, word)) for word in range(max(1, line.bytes // 4))]

        def execute() -> None:
            at = get(registers)
            for by, each in names:
                if loads:
                    registers[each] = None if at is None else memory.get(at + by)
                elif at is not None:
                    memory[at + by] = 0 if each == "RZ" else registers.get(each)

        return execute

    def _pack(self, line: Instruction) -> Callable[[], None]:
        """Predicates that a mask names, as bits of a register."""
        registers, mask = self.registers, int(line.operands[3], 16)
        base, names = self._source(line.operands[2]), [(bit, f"P{bit}") for bit in range(7) if mask >> bit & 1]

        def execute() -> None:
            values = [registers.get(name, 0) for _, name in names]
            before = base(registers)
            known = None not in values and before is not None
            bits = sum(1 << bit for (bit, _), value in zip(names, values, strict=True) if value)
            registers[line.operands[0]] = before & ~mask | bits if known else None

        return execute

    def _combine(self, line: Instruction) -> Callable[[], None]:
        """Two functions of three predicates, each as a table of eight bits."""
        registers, get = self.registers, [self._source(each) for each in line.operands[2:]]
        tables = [int(text, 16) for text in line.operands[5:]]

        def execute() -> None:
            rows = set(range(8))
            for bit, each in zip((4, 2, 1), get, strict=False):
                if (value := each(registers)) is not None:
                    rows &= {row for row in range(8) if bool(row & bit) == value}
            for name, table in zip(line.operands, tables, strict=False):
                found = {table >> row & 1 for row in rows}
                registers[name] = found.pop() == 1 if len(found) == 1 else None

        return execute

    def _compare(self, line: Instruction) -> Callable[[], None]:
        """A comparison; with EX of the upper words, after the lower ones; combined with a predicate."""
        registers, modifiers = self.registers, line.modifiers
        name = next(each for each in COMPARE if modifiers & {each, f"{each}U"})
        compare, strictly = COMPARE[name], STRICT.get(name, COMPARE[name])
        bits = 64 if "U64" in modifiers or "S64" in modifiers else 32
        number: Callable[[int], float] = as_float if line.opcode == "FSETP" else partial(_number, modifiers, bits)
        get = [source(text, self._constants, bits // 32) for text in line.operands[2:4]]
        others = [self._source(each) for each in line.operands[4:]]

        def execute() -> None:
            try:
                left, right = (each(registers) for each in get)
            except TypeError:  # a negation or absolute value of an unknown one
                left = right = None
            beside, *low = (each(registers) for each in others)
            found = None
            if left is not None and right is not None:
                left, right = (number(each) for each in (left, right))
                found = compare(left, right)
                if "EX" in modifiers:
                    found = low[0] if left == right else strictly(left, right)
            for each, value in zip(line.operands, (found, None if found is None else not found), strict=False):
                registers[each] = _together(modifiers, value, beside)

        return execute


def results(line: Instruction) -> list[str]:
    """Registers and predicates that an instruction writes."""
    first, *rest = line.operands
    if line.opcode.startswith(NO_RESULT) or not first:
        return []
    if line.opcode.endswith("SETP") or line.opcode.endswith("PLOP3"):
        return [first, rest[0]]
    if is_predicate(first):
        register = rest[0] if line.opcode in ("LOP3", "ULOP3", "SHFL", "ATOMG", "ATOMS") else ""
        return [first, *_registers(register, line)]
    return [*_registers(first, line), *takewhile(is_predicate, rest)]


def _registers(first: str, line: Instruction) -> Iterator[str]:
    if first in ("", "RZ", "URZ"):
        return
    words = 4 if line.opcode == "HMMA" else _words(line)[0]
    yield from (after(first, word) for word in range(words))


def _words(line: Instruction) -> tuple[int, list[tuple[str, int]]]:
    """Words of the result, and each source with its words."""
    name, modifiers = line.opcode.removeprefix("U"), line.modifiers
    outputs = sum(1 for _ in takewhile(is_predicate, line.operands[1:]))
    sources = line.operands[2 if is_predicate(line.operands[0]) else 1 + outputs :]
    if name == "IMAD" and modifiers & {"WIDE", "HI"}:  # their last term is a pair
        return 2 if "WIDE" in modifiers else 1, [(text, 2 if at == 2 else 1) for at, text in enumerate(sources)]
    if name == "I2F" and "U64" in modifiers:
        return 1, [(text, 2) for text in sources]
    if name.startswith("LD") and name not in ("LDC", "LDCU"):
        return max(1, line.bytes // 4), []
    wide = 1 + bool("64" in modifiers or line.name.startswith(PAIRS) or (name == "CS2R" and "32" not in modifiers))
    return wide, [(text, 1 if name in ("CS2R", "F2I") else wide) for text in sources]


def _together(modifiers: Modifiers, value: bool | None, beside: bool | None) -> bool | None:
    if "AND" in modifiers:
        return False if value is False or beside is False else None if None in (value, beside) else True
    if "OR" in modifiers:
        return True if value or beside else None if None in (value, beside) else False
    return None if None in (value, beside) else value != beside


def _number(m: Modifiers, bits: int, value: int) -> int:
    return value & (1 << bits) - 1 if m & {"U32", "U64"} else signed(value, bits)


def _multiply(m: Modifiers, a: int, b: int, c: int, carry: int = 0) -> int:
    if m & {"WIDE", "HI"}:
        a, b = (x & MASK if "U32" in m else signed(x) for x in (a, b))
    found = a * b + c + carry
    return found >> 32 if "HI" in m else found


def _lea(m: Modifiers, a: int, b: int, *rest: int) -> int:
    if "HI" not in m:
        return (a << rest[0] & MASK) + b
    if "SX32" in m:
        return (signed(a) << rest[0] >> 32) + b + sum(rest[1:]) & MASK
    high, by, *carry = rest
    return (((high & MASK) << 32 | a & MASK) << by >> 32 & MASK) + b + sum(carry)


def _shift(m: Modifiers, low: int, by: int, high: int) -> int:
    both = (signed(high) if "S32" in m else high & MASK) << 32 | low & MASK
    found = both << (by & 63) if "L" in m else both >> (by & 63)
    return (found >> 32 if "HI" in m else found) & MASK


def _logic(m: Modifiers, a: int, b: int, c: int, table: int, *_: Value) -> int:
    rows = (row for row in range(8) if table >> row & 1)
    found = ((a if row & 4 else ~a) & (b if row & 2 else ~b) & (c if row & 1 else ~c) for row in rows)
    return sum(found) & MASK  # no two rows have a bit in common


def _permute(m: Modifiers, a: int, selector: int, b: int) -> int:
    both, found = (b & MASK) << 32 | a & MASK, 0
    for to in range(4):
        which = selector >> 4 * to & 15
        byte = both >> 8 * (which & 7) & 255
        found |= (byte if which < 8 else 255 * (byte >> 7)) << 8 * to
    return found


def _to_float(m: Modifiers, value: int) -> int | None:
    if "F64" in m:
        return None
    value = value if m & {"U32", "U64", "U16"} else signed(value)
    bits = as_bits(float(value))
    return bits + 1 if "RP" in m and as_float(bits) < value else bits


def _least(m: Modifiers, a: int, b: int, least: bool) -> int:
    a, b = (x & MASK if "U32" in m else signed(x) for x in (a, b))
    return (min(a, b) if least else max(a, b)) & MASK


def _halves(m: Modifiers, a: int, b: int, upper: int, lower: int) -> int | None:
    """Two halves, added to a product with 0: a way to load a constant."""
    if a & MASK or b:
        return None
    high, low = (struct.unpack("<H", struct.pack("<e", as_float(x)))[0] for x in (upper, lower))
    return high << 16 | low


TABLE: Mapping[str, Callable[..., Value]] = {
    **dict.fromkeys(("MOV", "R2UR", "LDC", "LDCU", "S2R", "S2UR", "CS2R"), lambda m, a, *_: a),
    "IMAD": _multiply,
    **dict.fromkeys(("IADD3", "IADD", "VIADD"), lambda m, *terms: sum(terms)),
    "LEA": _lea,
    "SHF": _shift,
    "LOP3": _logic,
    **dict.fromkeys(("SEL", "FSEL"), lambda m, a, b, which: None if which is None else a if which else b),
    "PRMT": _permute,
    "IABS": lambda m, a: abs(signed(a)),
    **dict.fromkeys(("IMNMX", "VIMNMX"), _least),
    "VIADDMNMX": lambda m, a, b, c, least: _least(m, a + b, c, least),
    "I2F": _to_float,
    "F2I": lambda m, a: None if "F64" in m else int(as_float(a)),
    "MUFU": lambda m, a: as_bits(1 / as_float(a)) if "RCP" in m else None,
    "FMUL": lambda m, a, b: as_bits(as_float(a) * as_float(b)),
    "HFMA2": _halves,
}
