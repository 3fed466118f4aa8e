"""Decoder: the statements of a kernel become rows of numbers, which the machine executes.

A register is a place in a warp's file: 32 lanes side by side, of a predicate one word. Constants, parameters and
special registers are places that are filled before a warp begins. A copy of one of these, and of a register that cannot
change while the copy is used, is no instruction: the copy's name stands for the same place.
"""

import re
import struct
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from common.devices.ptx.text import WIDTHS, Kernel, Line, Module, Statement, Variable, operands, variable_of, wrong

ABSENT = 0  # place of an operand that is not there
FIRST_PLACE = 512
SHARED_START, LOCAL_START = 1024, 4096  # of machine.hpp
SHARED_WINDOW, LOCAL_WINDOW = 0x00A10000D5030000, 0x00A20000E1050000
NUMBER, PARAMETER = 0, 1  # kinds of what is filled, in the order of Fill
SPECIAL = {name: 2 + at for at, name in enumerate((
    "%tid.x", "%tid.y", "%tid.z", "%ctaid.x", "%ctaid.y", "%ctaid.z", "%ntid.x", "%ntid.y", "%ntid.z", "%nctaid.x",
    "%nctaid.y", "%nctaid.z", "%laneid", "%warpid", "%lanemask_eq", "%lanemask_lt", "%lanemask_le", "%lanemask_gt",
    "%lanemask_ge", "%dynamic_smem_size"))}  # fmt: skip
CLOCKS = {"%clock": 4, "%clock_hi": 4, "%clock64": 8, "%globaltimer": 8, "%globaltimer_lo": 4}
_DECLARED = re.compile(r"\.reg\s+\.(\w+)\s+(.*)$")
_GUARD = re.compile(r"@(!?)([\w%$]+)\s+(.*)$")
_ADDRESS = re.compile(r"\[\s*([\w%$.]+)\s*(?:\+\s*(-?\w+))?\s*\]$")
_INTEGER = re.compile(r"-?(0[xX][0-9a-fA-F]+|0[bB][01]+|\d+)U?$")
STORES = ("st", "bra", "bar", "barrier", "red", "membar", "fence", "cp", "prefetch", "ret", "exit", "trap", "nanosleep")
NO_RESULT = {("mbarrier", "init"), ("mbarrier", "inval"), ("mbarrier", "expect_tx")}


@dataclass
class Row:
    """One instruction of the machine; machine.hpp explains the fields. opcode: the PTX's, for counts and reports."""

    op: int
    d: int
    a: int
    b: int
    c: int
    imm: int
    flags: int
    more: int
    line: Line
    opcode: str
    label: bool = False


@dataclass(frozen=True)
class Place:
    at: int
    bytes: int  # of a lane; 0 for a predicate


@dataclass(frozen=True)
class Instruction:
    opcode: str
    words: tuple[str, ...]  # the modifiers
    operands: tuple[str, ...]
    line: Line

    @property
    def name(self) -> str:
        return ".".join((self.opcode, *self.words))

    @property
    def type(self) -> str:
        return self.words[-1] if self.words else ""


@dataclass
class Decoded:
    """A kernel for the machine. filled: (place, kind, bytes of a lane, value)."""

    rows: list[Row]
    more: list[int] = field(default_factory=list)
    filled: list[tuple[int, int, int, int]] = field(default_factory=list)
    file_bytes: int = 0
    shared_bytes: int = 0
    local_bytes: int = 0


class Decoder:
    """Decoder of one kernel. number: of an operation of the machine by its name, or -1; addresses: of module variables
    in global and constant memory."""

    def __init__(
        self, module: Module, kernel: Kernel, number: Callable[[str], int], addresses: Mapping[str, int]
    ) -> None:
        self.module, self.kernel, self._number, self._addresses = module, kernel, number, addresses
        self.out = Decoded([])
        self._scopes: list[dict[str, Place | str]] = [{}]
        self._ranges: list[tuple[str, int, str]] = []
        self._constants: dict[tuple[int, int, int], Place] = {}
        self._labels: dict[str, int] = {}
        self._jumps: list[tuple[int, str, Line]] = []
        self._file, self._predicates = FIRST_PLACE, 0
        self._variables: dict[str, int] = {}
        self._defined = Counter(name for one in kernel.body for name in _results(one))
        self._block = 0
        self._fixed: dict[int, int] = {}  # places of registers with one definition: the block of that definition
        self.line = Line(kernel.name, 0)

    def decode(self) -> Decoded:
        from common.devices.ptx.opcodes import decode_instruction

        self._lay_shared()
        for statement in self.kernel.body:
            self.line = statement.line
            if statement.kind == "label":
                self._labels[statement.text] = len(self.out.rows)
                self._block += 1
            elif statement.kind == "open":
                self._scopes.append({})
            elif statement.kind == "close":
                self._scopes.pop()
            elif statement.kind == "directive":
                self._declare(statement)
            else:
                self._guarded(statement, decode_instruction)
        self.emit("exit")
        for at, label, line in self._jumps:
            if label not in self._labels:
                raise wrong(line, f"there is no label {label}")
            self.out.rows[at].imm = self._labels[label]
        for row in [*self.out.rows]:
            if row.opcode.startswith("bra"):
                self.out.rows[row.imm].label = True
        self.out.file_bytes = -(-self._file // 64) * 64
        return self.out

    # Names

    def _declare(self, statement: Statement) -> None:
        found = _DECLARED.match(statement.text)
        if found:
            for name in found[2].split(","):
                counted = re.match(r"\s*([\w%$]+)<(\d+)>$", name)
                if counted:
                    self._ranges.append((counted[1], int(counted[2]), found[1]))
                else:
                    self._scopes[-1][name.strip()] = found[1]
        elif statement.text.startswith(".local"):
            self._lay(variable_of(statement.text, statement.line))
        elif not statement.text.startswith((".pragma", ".shared", ".extern .shared")):
            raise wrong(statement.line, f"not known: {statement.text[:60]}")

    def _lay_shared(self) -> None:
        """Places of the shared variables that the kernel names; dynamic memory comes last."""
        named = {name for one in self.kernel.body for name in re.findall(r"[\w$%]+", one.text)}
        found = [one for name, one in self.module.variables.items() if one.space == "shared" and name in named]
        for one in self.kernel.body:
            if one.kind == "directive" and re.match(r"(\.extern )?\.shared", one.text):
                found.append(variable_of(one.text, one.line))
        for variable in sorted(found, key=lambda each: each.bytes == 0):
            self._lay(variable)

    def _lay(self, variable: Variable) -> int:
        """The address of a variable of shared or local memory, within its window."""
        start = SHARED_START if variable.space == "shared" else LOCAL_START
        size = self.out.shared_bytes if variable.space == "shared" else self.out.local_bytes
        at = -(-(start + size) // variable.align) * variable.align
        if variable.space == "shared":
            self.out.shared_bytes = at - start + variable.bytes
        else:
            self.out.local_bytes = -(-(at - start + variable.bytes) // 16) * 16
        self._variables[variable.name] = at
        return at

    def variable(self, name: str) -> int | None:
        """The address of a variable in its own window, or None."""
        if name in self._variables:
            return self._variables[name]
        return self._addresses.get(name)

    def place(self, name: str) -> Place:
        """The place of a register. Raises CompileError for what is none."""
        for scope in reversed(self._scopes):
            if name in scope:
                found = scope[name]
                if isinstance(found, str):
                    found = scope[name] = self.new(self._width(found))
                return found
        for prefix, count, kind in self._ranges:
            if name.startswith(prefix) and name[len(prefix) :].isdigit() and int(name[len(prefix) :]) < count:
                found = self._scopes[0][name] = self.new(self._width(kind))
                return found
        if name in SPECIAL:
            return self._filled(SPECIAL[name], 4, 0)
        raise wrong(self.line, f"{name} is no register")

    def _width(self, kind: str) -> int:
        if kind not in WIDTHS or kind == "b128":
            raise wrong(self.line, f"registers of type .{kind} are not known")
        return WIDTHS[kind]

    def new(self, width: int) -> Place:
        """A place in the file: 16 predicates share a line."""
        if width == 0:
            if self._predicates % 64 == 0:
                self._predicates = self._file
                self._file += 64
            self._predicates += 4
            return Place(self._predicates - 4, 0)
        self._file += 32 * width if width > 1 else 64
        return Place(self._file - (32 * width if width > 1 else 64), width)

    def name(self, register: str, place: Place) -> None:
        """From here on the register is at that place."""
        self._scopes[0][register] = place

    def defined_once(self, name: str) -> bool:
        return self._defined[name] == 1 and name.startswith("%") and len(self._scopes) == 1

    def fixed_copy(self, to: str, source: str) -> bool:
        """True if register `to` may stand at the place of `source`: both are defined once, in the same block."""
        return self.defined_once(to) and self._fixed.get(self.place(source).at) == self._block

    # Operands

    def register(self, name: str, width: int) -> int:
        place = self.place(name)
        if place.bytes != width or name in SPECIAL:
            raise wrong(self.line, f"{name} has {8 * place.bytes} bits, and {8 * width} are needed")
        if self.defined_once(name):
            self._fixed[place.at] = self._block
        return place.at

    def value(self, text: str, kind: str) -> int:
        """The place of a register or of a constant of a type."""
        width = WIDTHS[kind]
        if kind == "pred":
            return self.predicate(text)
        number = self.constant(text, kind)
        if number is not None:
            return self._filled(NUMBER, width, number).at
        address = self.variable(text)
        if address is not None:
            return self._filled(NUMBER, width, address).at
        place = self.place(text)
        if place.bytes != width:
            raise wrong(self.line, f"{text} has {8 * place.bytes} bits, and .{kind} has {8 * width}")
        return place.at

    def constant(self, text: str, kind: str) -> int | None:
        """The bits of a number in the text, or None if it is none."""
        width = WIDTHS[kind] or 1
        if text[:2] in ("0f", "0F") and len(text) == 10:
            bits = int(text[2:], 16)
            return bits if kind != "f64" else _bits("<d", struct.unpack("<f", struct.pack("<I", bits))[0])
        if text[:2] in ("0d", "0D") and len(text) == 18:
            bits = int(text[2:], 16)
            return bits if kind != "f32" else _bits("<f", struct.unpack("<d", struct.pack("<Q", bits))[0])
        if _INTEGER.match(text):
            number = int(text.rstrip("U"), 0) if not re.match(r"-?0\d", text) else int(text.rstrip("U"), 8)
            return number & ((1 << 8 * width) - 1)
        if text == "WARP_SZ":
            return 32
        return None

    def number(self, value: int, width: int = 4) -> int:
        return self._filled(NUMBER, width, value & ((1 << 8 * width) - 1)).at

    def parameter(self, text: str, width: int) -> Place:
        """The place of `[name+4]` of the kernel's parameters."""
        found = _ADDRESS.match(text)
        if not found or found[1] not in self.kernel.parameters:
            raise wrong(self.line, f"{text} is no parameter of the kernel")
        offset, size = self.kernel.parameters[found[1]]
        at = int(found[2] or "0", 0)
        if not 0 <= at <= size - width:
            raise wrong(self.line, f"{text}: the parameter has {size} bytes")
        return self._filled(PARAMETER, width, offset + at)

    def predicate(self, text: str) -> int:
        """The place of `%p1`, `!%p1`, 0 or 1."""
        if _INTEGER.match(text):
            return self._filled(NUMBER, 0, 0xFFFFFFFF if int(text, 0) else 0).at
        if text.startswith("!"):
            turned = self.new(0)
            self.emit("not.pred", d=turned.at, a=self.predicate(text[1:].strip()), b=ABSENT)
            return turned.at
        place = self.place(text)
        if place.bytes:
            raise wrong(self.line, f"{text} is no predicate")
        return place.at

    def address(self, text: str) -> tuple[int, bool, int]:
        """The place of an address, whether it has 64 bits, and what is added to it."""
        found = _ADDRESS.match(text)
        if not found:
            raise wrong(self.line, f"{text} is no address")
        offset = int((found[2] or "0").rstrip("U"), 0)
        number = self.constant(found[1], "u64")
        at = number if number is not None else self.variable(found[1])
        if at is not None:
            return self._filled(NUMBER, 8, at + offset).at, True, 0
        place = self.place(found[1])
        if place.bytes not in (4, 8):
            raise wrong(self.line, f"{found[1]} is no address")
        return place.at, place.bytes == 8, offset

    def _filled(self, kind: int, width: int, value: int) -> Place:
        key = (kind, width, value)
        if key not in self._constants:
            place = self._constants[key] = self.new(width)
            if width == 0:  # a predicate is one word, and what is filled has 32 lanes
                place = self._constants[key] = Place(self.new(4).at, 0)
            self.out.filled.append((place.at, kind, width or 4, value))
        return self._constants[key]

    # Rows

    def known(self, name: str) -> bool:
        return self._number(name) >= 0

    def emit(
        self, name: str, d: int = 0, a: int = 0, b: int = 0, c: int = 0, *, imm: int = 0, flags: int = 0,
        more: Sequence[int] = (), opcode: str = "",
    ) -> None:  # fmt: skip
        number = self._number(name)
        if number < 0:
            raise wrong(self.line, f"the executor does not know {opcode or name}")
        start = len(self.out.more)
        self.out.more += [each & 0xFFFFFFFF for each in more]
        self.out.rows.append(Row(number, d, a, b, c, imm, flags, start, self.line, opcode or name))

    def jump(self, name: str, label: str, predicate: int = ABSENT) -> None:
        self._jumps.append((len(self.out.rows), label, self.line))
        self.emit(name, a=predicate)
        self._block += 1

    def _guarded(self, statement: Statement, decode_instruction: Callable[["Decoder", Instruction], None]) -> None:
        """An instruction with a guard other than a branch is one that a branch goes around."""
        found = _GUARD.match(statement.text)
        text = found[3] if found else statement.text
        name, _, rest = text.partition(" ")
        opcode, *words = name.split(".")
        one = Instruction(opcode, tuple(words), tuple(operands(rest)), statement.line)
        if not found:
            return decode_instruction(self, one)
        unless = found[1] == "!"
        predicate = self.predicate(found[2])
        if opcode == "bra":
            return self.jump("bra.unless" if unless else "bra.if", one.operands[0], predicate)
        around = f"{len(self.out.rows)} around"
        self.jump("bra.if" if unless else "bra.unless", around, predicate)
        decode_instruction(self, one)
        self._labels[around] = len(self.out.rows)
        self._block += 1
        return None


def _bits(form: str, number: float) -> int:
    return int.from_bytes(struct.pack(form, number), "little")


def _results(statement: Statement) -> list[str]:
    """The registers that an instruction writes."""
    if statement.kind != "instruction":
        return []
    found = _GUARD.match(statement.text)
    name, _, rest = (found[3] if found else statement.text).partition(" ")
    words = tuple(name.split("."))
    if words[0] in STORES or words[:2] in NO_RESULT:
        return []
    first = next(iter(operands(rest)), "")
    names = re.findall(r"[\w%$]+", first)
    return names * 2 if found else names  # a guarded one need not be its only value
