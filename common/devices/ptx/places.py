"""Places in a warp's file, for the registers, constants and parameters of a kernel; addresses for its variables.

A register is 32 lanes side by side, a predicate one word. Places of constants, parameters and special registers are
filled before a warp begins.
"""

import re
import struct
from dataclasses import replace

from common.devices.ptx.rows import CLUSTERS, DIRECTLY, INDIRECT, REMEDY, Decoded, Place
from common.devices.ptx.text import MODULE_SPACES, WIDTHS, Kernel, Module, Statement, Variable, variable_of, wrong

FIRST_PLACE = 512
# A register may be of any type of the instruction's class; "" is in all of its width.
CLASSES = {kind: re.sub(r"^b\d+$", "", re.sub(r"^[us]\d+$", "int", kind)) for kind in WIDTHS}
FORMATS = {"f32": "f", "f64": "d"}
CARRY = "carry flag"  # a register
SHARED_START, LOCAL_START = 1024, 4096  # as in machine.hpp
SHARED_WINDOW, LOCAL_WINDOW, WINDOW_BYTES = 0x00A10000D5030000, 0x00A20000E1050000, 1 << 24
NUMBER, PARAMETER, PARAMETERS = 0, 1, 11  # kinds of filled places, in the order of Fill
SPECIAL = {  # kinds and values
    **{
        f"%{name}.{axis}": (2 + at, k)
        for at, name in enumerate(("tid", "ctaid", "ntid", "nctaid"))
        for k, axis in enumerate("xyz")
    },
    "%laneid": (6, 0),
    "%warpid": (7, 0),
    "%dynamic_smem_size": (9, 0),
    "%smid": (12, 0),  # each block has a multiprocessor of its own
    "%nsmid": (12, 1),
    "%envreg1": (10, 32),
    "%envreg2": (10, 0),
    **{f"%lanemask_{name}": (8, at) for at, name in enumerate(("eq", "lt", "le", "gt", "ge"))},
}
CLOCKS = {"%clock": 4, "%clock_hi": 4, "%clock64": 8, "%globaltimer": 8, "%globaltimer_lo": 4}
OF_CLUSTERS = ("%cluster", "%nclusterid", "%is_explicit_cluster")
UNKNOWN_SPECIAL = ("%reserved_smem", "%total_smem", "%aggr_smem", "%nwarpid", "%gridid", "%globaltimer_hi", "%envreg",
                   "%pm", "%current_graph")  # fmt: skip
_DECLARED = re.compile(r"\.reg\s*\.(\w+)\s+([\w%$<>, ]+)$")
ADDRESS = re.compile(r"\[\s*([\w%$.]+)\s*(?:\+\s*(-?\w+))?\s*\]$")
DECIMAL = re.compile(r"-?\d+\.\d*([eE][+-]?\d+)?$")
INTEGER = re.compile(r"-?(0[xX][0-9a-fA-F]+|0[bB][01]+|0[0-7]*|[1-9]\d*)U?$")


class Places:
    """Names of one kernel. line: of the current statement, for errors."""

    def __init__(self, module: Module, kernel: Kernel) -> None:
        self.module, self.kernel = module, kernel
        self.out = Decoded([])
        self.line = module.lines.number(0)
        self._scopes: list[dict[str, Place | str]] = [{CARRY: "b32"}]
        self._constants: dict[tuple[int, int, int, str], Place] = {}
        self._file, self._predicates = FIRST_PLACE, 0
        self._variables: dict[str, tuple[int, str, str]] = {}
        self._sizes: dict[str, int] = {}  # bytes of each variable

    def declare(self, statement: Statement) -> None:
        found = _DECLARED.match(statement.text)
        if found:
            for name in found[2].split(","):
                one = re.fullmatch(r"\s*([a-zA-Z_$%][\w$]*)(?:<(\d{1,6})>)?\s*", name)
                each = [f"{one[1]}{at}" for at in range(int(one[2]))] if one and one[2] else [name.strip()]
                if not one or found[1] not in WIDTHS or self._scopes[-1].keys() & each:
                    raise wrong(statement.line, f"not understood, or a second register: {statement.text[:60]}")
                self._scopes[-1].update(dict.fromkeys(each, found[1]))
        elif statement.text.startswith((".local", ".param")):  # the latter for a call
            self._lay(variable_of(statement.text, statement.line))
        elif not statement.text.startswith((".pragma", ".call", ".branch", ".shared", ".extern .shared")):
            raise wrong(statement.line, f"not known: {statement.text[:60]}")

    def lay_shared(self) -> None:
        """Lay out the kernel's shared variables; dynamic memory comes last."""
        bodies, named, found = [self.kernel.body], set[str](), list[Variable]()
        for body in bodies:  # and those of the functions that they name
            names = {name for one in body for name in re.findall(r"[\w$%]+", one.text)} - named
            named |= names
            bodies += [made().body for name in sorted(names) if (made := self.module.functions.get(name))]
            shared = (one for one in body if one.kind == "directive" and re.match(r"(\.extern )?\.shared", one.text))
            found += [variable_of(one.text, one.line) for one in shared]
        found += [one for name, one in self.module.variables.items() if one.space == "shared" and name in named]
        align = max((one.align for one in found if not one.bytes), default=1)  # all of these begin at one address
        for variable in sorted(found, key=lambda each: each.bytes == 0):
            self._lay(variable if variable.bytes else replace(variable, align=align))

    def _lay(self, variable: Variable) -> None:
        """Give a variable of shared or local memory an address in its window; .param is in local memory."""
        if variable.name in self._variables and variable.space != "param":
            raise wrong(self.kernel.name, f"a second variable {variable.name}", "give it a name of its own")
        start = SHARED_START if variable.space == "shared" else LOCAL_START
        size = self.out.shared_bytes if variable.space == "shared" else self.out.local_bytes
        at = -(-(start + size) // variable.align) * variable.align
        if variable.space == "shared":
            self.out.shared_bytes = at - start + variable.bytes
        else:
            self.out.local_bytes = -(-(at - start + variable.bytes) // 16) * 16
        self._variables[variable.name], self._sizes[variable.name] = (at, "", variable.space), variable.bytes

    def variable(self, name: str) -> tuple[int, str, str] | None:
        """A variable's address in its window, "" and space; or 0, its name and space if the module lays it out."""
        if name in self._variables:
            return self._variables[name]
        if any(name in scope for scope in self._scopes):
            return None  # hidden by a register
        found = self.module.variables.get(name)
        return (0, name, found.space) if found and found.space in MODULE_SPACES else None

    def symbol(self, name: str, kind: str) -> Place | None:
        """The place of a special register, or of the address of a variable or parameter; None for other names."""
        if CLASSES[kind] not in ("", "int"):
            return None
        if WIDTHS[kind] == 4 and name in SPECIAL:
            special, value = SPECIAL[name]
            return self.filled(special, 4, value)
        if WIDTHS[kind] == 8 and name in self.kernel.parameters:
            return self.filled(PARAMETERS, 8, self.kernel.parameters[name][0])
        address = self.variable(name)
        fits = address and WIDTHS[kind] >= (8 if address[1] else 4)
        return self.filled(NUMBER, WIDTHS[kind], *address[:2]) if address and fits else None

    def place(self, name: str, kind: str = "b32", exact: bool = False) -> Place:
        """The place of a register of the class of `kind`, and `exact` of its width. Raises CompileError for others."""
        for scope in reversed(self._scopes):
            if name in scope:
                found = scope[name]
                if isinstance(found, str):
                    found = scope[name] = self.new(self._width(found), found)
                self._fits(name, found.kind, kind, exact)
                return found
        if name in SPECIAL or name in self.kernel.parameters or self.variable(name):
            raise wrong(self.line, f"{name} is no operand here", "move it to a register first")
        if name.startswith(OF_CLUSTERS):
            raise wrong(self.line, f"{name}: {CLUSTERS}", REMEDY)
        if name.startswith(UNKNOWN_SPECIAL):
            raise wrong(self.line, f"the executor does not know the special register {name}", REMEDY)
        if name in self.module.functions:
            raise wrong(self.line, f"the address of the function {name} is taken: {INDIRECT}", DIRECTLY)
        raise wrong(self.line, f"{name or 'nothing'} is no register")

    def _width(self, kind: str) -> int:
        if kind not in WIDTHS or kind == "b128":
            raise wrong(self.line, f"registers of type .{kind} are not known")
        return WIDTHS[kind]

    def new(self, width: int, kind: str = "b") -> Place:
        """Allocate `width` bytes per lane; width 0 is a predicate, of which 16 share a line of 64 bytes."""
        if width == 0:
            if self._predicates % 64 == 0:
                self._predicates = self._file
                self._file += 64
            self._predicates += 4
            return Place(self._predicates - 4, 0, kind)
        self._file += 32 * width if width > 1 else 64
        return Place(self._file - (32 * width if width > 1 else 64), width, kind)

    def name(self, register: str, at: int, kind: str) -> None:
        """Bind the register's name to a place with a value of `kind`, from here on."""
        declared = self._scopes[0].get(register)
        if not isinstance(declared, str):
            declared = self.place(register).kind
        self._fits(register, declared, kind, True)
        self._scopes[0][register] = Place(at, WIDTHS[kind], declared)

    def _fits(self, name: str, declared: str, kind: str, exact: bool) -> None:
        """Raise CompileError if a register declared as one type may not hold the other."""
        one, other = CLASSES[declared], CLASSES[kind]
        if (exact and WIDTHS[declared] != WIDTHS[kind]) or (one and other and one != other):
            raise wrong(self.line, f"{name} is .{declared}, and .{kind} is needed")

    def number(self, value: int, width: int = 4) -> int:
        return self.filled(NUMBER, width, value & ((1 << 8 * width) - 1)).at

    def parameter(self, text: str, width: int, more: int) -> Place:
        """The place of a kernel parameter, such as `[name+4]`; more: offset added to it."""
        found = ADDRESS.match(text)
        if not found or found[1] not in self.kernel.parameters:
            raise wrong(self.line, f"{text} is no parameter of the kernel")
        offset, size = self.kernel.parameters[found[1]]
        at = int(found[2] or "0", 0) + more
        if not 0 <= at <= size - width:
            raise wrong(self.line, f"{text}: the parameter has {size} bytes")
        return self.filled(PARAMETER, width, offset + at)

    def address(self, text: str, space: str) -> tuple[int, bool, int]:
        """(place of an address, True if it has 64 bits, offset added to it). space: "" for a generic address."""
        found = ADDRESS.match(text)
        if not found:
            raise wrong(self.line, f"{text} is no address")
        offset = int((found[2] or "0").rstrip("U"), 0)
        if at := self.variable(found[1]):
            if at[2] != (space.partition("::")[0] or "global"):
                raise wrong(self.line, f"{text} lies in {at[2]} memory")
            return self.filled(NUMBER, 8, at[0] + offset, at[1]).at, True, 0
        place = self.place(found[1], "u64")
        if place.bytes != 8 and (place.bytes != 4 or space in ("", "global")):
            raise wrong(self.line, f"{found[1]} is no address of {space or 'generic'} memory")
        return place.at, place.bytes == 8, offset

    def filled(self, kind: int, width: int, value: int, symbol: str = "") -> Place:
        """A place with a value; with `symbol`, the address of that variable of the module is added to it."""
        key = (kind, width, value, symbol)
        if key not in self._constants:
            # Width 0 is a predicate's, whose place is one word; a filled place has a word for each of 32 lanes.
            place = self._constants[key] = replace(self.new(width or 4), bytes=width)
            if symbol:
                self.out.symbols[len(self.out.filled)] = symbol
            self.out.filled.append((place.at, kind, width or 4, value & ((1 << 64) - 1)))
        return self._constants[key]


def constant(text: str, kind: str) -> int | None:
    """The bits of a numeric constant that may stand for `kind`, or None for other texts."""
    if CLASSES[kind] in ("", "int"):
        if INTEGER.match(text):
            number = int(text.rstrip("U"), 0) if not re.match(r"-?0\d", text) else int(text.rstrip("U"), 8)
            return number & ((1 << 8 * WIDTHS[kind]) - 1)
        if text == "WARP_SZ":
            return 32
    elif kind in FORMATS and DECIMAL.match(text):
        return _bits(f"<{FORMATS[kind]}", float(text))
    if len(text) == {"0f": 10, "0F": 10, "0d": 18, "0D": 18}.get(text[:2], 0):
        if kind in (f"f{4 * len(text) - 8}", f"b{4 * len(text) - 8}"):
            return int(text[2:], 16)
        if kind in FORMATS:
            return _bits(f"<{FORMATS[kind]}", struct.unpack(f">{text[1].lower()}", bytes.fromhex(text[2:]))[0])
    return None


def _bits(form: str, number: float) -> int:
    return int.from_bytes(struct.pack(form, number), "little")
