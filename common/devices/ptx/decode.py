"""Decoder: turns the statements of a kernel into rows of numbers, which the machine executes.

Copy propagation: a copy of a value filled before a warp begins, or of a register that cannot change while the copy is
used, emits no row; its name stands for the same place.
"""

import re
from collections import Counter
from collections.abc import Callable, Sequence

from common.devices.ptx.forms import form_of
from common.devices.ptx.lines import Where
from common.devices.ptx.places import CARRY, INTEGER, NUMBER, Places, constant
from common.devices.ptx.rows import ABSENT, CLUSTERS, REMEDY, Decoded, Instruction, Place, Row, unknown
from common.devices.ptx.text import WIDTHS, Kernel, Module, Statement, demangled, operands, wrong

_GUARD = re.compile(r"@\s*(!?)\s*([a-zA-Z_$%][\w$]*)\s+(.*)$")
STORES = ("st", "bra", "bar", "barrier", "red", "membar", "fence", "cp", "prefetch", "ret", "exit", "trap", "nanosleep",
          "stmatrix")  # fmt: skip
NO_RESULT = {("mbarrier", "init"), ("mbarrier", "inval"), ("mbarrier", "expect_tx"), ("wmma", "store")}


class Decoder(Places):
    """Decoder of one kernel. number: gives an operation's number in the machine by name, or -1; rule: emits the rows
    of one instruction."""

    def __init__(
        self,
        module: Module,
        kernel: Kernel,
        number: Callable[[str], int],
        rule: Callable[["Decoder", Instruction], None],
    ) -> None:
        super().__init__(module, kernel)
        self._number, self._rule = number, rule
        self._labels: list[dict[str, int]] = [{}]  # as scopes of registers: rows by label
        self._jumps: list[tuple[int, str, Where, Sequence[dict[str, int]]]] = []
        self._defined = Counter(name for one in kernel.body for name in _results(one))
        self._block, self._opcode = 0, ""
        self.inside: list[tuple[str, str]] = []  # functions called here, each with the label behind its end
        self._fixed: dict[int, int] = {}  # {place of a register with one definition: block of that definition}

    def decode(self) -> Decoded:
        if self.kernel.cluster > 1:
            raise wrong(self.kernel.name, f".reqnctapercluster of {self.kernel.cluster} blocks: {CLUSTERS}", REMEDY)
        self.lay_shared()
        self._read(self.kernel.body)
        self.emit("exit", opcode="exit")
        for at, label, line, scopes in self._jumps:
            target = next((labels[label] for labels in reversed(scopes) if label in labels), None)
            if target is None:
                raise wrong(line, f"there is no label {label}")
            self.out.rows[at].imm = target
        for row in [*self.out.rows]:
            if row.opcode.startswith("bra"):
                self.out.rows[row.imm].label = True
        self.out.file_bytes = -(-self._file // 64) * 64
        return self.out

    def call(self, function: Kernel, passed: Sequence[str]) -> None:
        """Emit the body of a function. passed: variables of its result, if it has one, and its arguments."""
        name, outer, scopes = function.name, dict(self._variables), self._scopes
        if name in (each for each, _ in self.inside):
            raise wrong(self.line, f"{demangled(name)} calls itself: recursion is not executed", "write it as a loop")
        sizes = [width for _, width in function.parameters.values()]
        if [self._sizes[each] for each in passed] != sizes or any(outer[each][2] != "param" for each in passed):
            raise ValueError
        self._variables |= dict(zip(function.parameters, map(outer.__getitem__, passed), strict=True))
        self._scopes = [{CARRY: "b32"}]
        self.inside.append((name, f"{len(self.out.rows)} returned"))
        self._read((Statement("open", "{", self.line), *function.body, Statement("close", "}", self.line)))
        self._mark(self.inside.pop()[1])
        self._variables, self._scopes = outer, scopes

    def _read(self, body: Sequence[Statement]) -> None:
        for statement in body:
            self.line = statement.line
            if statement.kind == "label":
                if statement.text in self._labels[-1]:
                    raise wrong(statement.line, f"a second label {statement.text} between the same braces")
                self._mark(statement.text)
            elif statement.kind == "open":
                self._scopes.append({})
                self._labels.append({})
            elif statement.kind == "close":
                self._scopes.pop()
                self._labels.pop()
            elif statement.kind == "directive":
                self.declare(statement)
            else:
                self._guarded(statement)

    def defined_once(self, name: str) -> bool:
        return self._defined[name] == 1 and name.startswith("%") and len(self._scopes) == 1

    def renamed(self, name: str) -> bool:
        """True if a register may stand at another place: it is defined once, and no row before has used its own."""
        return self.defined_once(name) and not isinstance(self._scopes[0].get(name), Place)

    def fixed_copy(self, to: str, source: str) -> bool:
        """True if register `to` may stand at the place of `source`, defined once in the same block."""
        return self.renamed(to) and self._fixed.get(self.place(source).at) == self._block

    def register(self, name: str, kind: str) -> int:
        """The place of a result."""
        at = self.place(name, kind, True).at
        if self.defined_once(name):
            self._fixed[at] = self._block
        return at

    def value(self, text: str, kind: str) -> int:
        """The place of a register, or of a constant of type `kind`."""
        if kind == "pred":
            return self.predicate(text)
        number = constant(text, kind)
        if number is not None:
            return self.filled(NUMBER, WIDTHS[kind], number).at
        return self.place(text, kind, True).at

    def predicate(self, text: str) -> int:
        """The place of `%p1`, `!%p1`, 0 or 1."""
        if INTEGER.match(text):
            return self.filled(NUMBER, 0, 0xFFFFFFFF if int(text, 0) else 0).at
        if text.startswith("!"):
            turned = self.new(0)
            turning = self.place(text[1:].strip(), "pred", True).at
            self.emit("not.pred", d=turned.at, a=turning, b=ABSENT, opcode="not.pred")
            return turned.at
        return self.place(text, "pred", True).at

    def known(self, name: str) -> bool:
        return self._number(name) >= 0

    def emit(
        self, name: str, d: int = 0, a: int = 0, b: int = 0, c: int = 0, *, imm: int = 0, flags: int = 0,
        more: Sequence[int] = (), opcode: str = "",
    ) -> None:  # fmt: skip
        """Append a row. opcode: for counts and reports; the instruction's as written where none is given."""
        number, opcode = self._number(name), opcode or self._opcode
        if number < 0:
            raise unknown(Instruction(self._opcode, (), (), self.line))
        start = len(self.out.more)
        self.out.more += [each & 0xFFFFFFFF for each in more]
        self.out.rows.append(Row(number, d, a, b, c, imm, flags, start, self.line, opcode))

    def jump(self, name: str, label: str, predicate: int = ABSENT) -> None:
        self._jumps.append((len(self.out.rows), label, self.line, tuple(self._labels)))
        self.emit(name, a=predicate, opcode=name)
        self._block += 1

    def _guarded(self, statement: Statement) -> None:
        """Emit a guarded instruction other than a branch: a branch jumps around it."""
        found = _GUARD.match(statement.text)
        text = found[3] if found else statement.text
        name, _, rest = text.partition(" ")
        self._opcode = name
        (opcode, *words), counts, kinds = form_of(name) or ([name], (), ())
        one = Instruction(opcode, tuple(words), tuple(operands(rest)), statement.line, counts, kinds)
        if not found:
            return self._rule(self, one)
        unless = found[1] == "!"
        predicate = self.predicate(found[2])
        if opcode == "bra" and len(one.operands) == 1:
            return self.jump("bra.unless" if unless else "bra.if", one.operands[0], predicate)
        around = f"{len(self.out.rows)} around"
        self.jump("bra.if" if unless else "bra.unless", around, predicate)
        self._rule(self, one)
        self._mark(around)
        return None

    def _mark(self, label: str) -> None:
        """Place a label here; a block begins."""
        self._labels[-1][label] = len(self.out.rows)
        self._block += 1


def _results(statement: Statement) -> list[str]:
    """Registers written by an instruction."""
    if statement.kind != "instruction":
        return []
    found = _GUARD.match(statement.text)
    name, _, rest = (found[3] if found else statement.text).partition(" ")
    words = tuple(name.split("."))
    if (words[0] in STORES and "red" not in words[1:]) or words[:2] in NO_RESULT:
        return []
    first = next(iter(operands(rest, 1)), "")
    names = re.findall(r"[\w%$]+", first)
    return names * 2 if found else names  # twice: a guarded write need not be the only value
