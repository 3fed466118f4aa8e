"""A machine for PTX: executes one thread of a small kernel and lists what it does to memory and to other threads.

Registers hold numbers. Every parameter, and every word that an instruction brings from outside, is a number of its own
that stands for a name, so the list shows `st.global.b32 [out], x1` whichever registers the compiler chose. Instructions
that only compute follow the PTX ISA; every other one is an effect and is listed with its operands.
"""

import math
import operator
import re
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction

SPAN = 1 << 20  # addresses that belong to one pointer
KERNEL = re.compile(r"\.visible \.entry (\w+)\((.*?)\)\s*(.*?)\{(.*?)\n\}", re.DOTALL)
INSTRUCTION = re.compile(r"(?:@(!?)(%\w+)\s+)?([a-z][\w.:]*)\s*(.*);$")
SHARED = re.compile(r"\.shared \.align (\d+) \.b8 (\w+)\[(\d*)\];")
CHANGING = ("%globaltimer", "%clock", "%clock64")  # special registers that every read finds different
UNTYPED = ("ld", "st", "mov", "shfl")  # their type only says how many bits


@dataclass(frozen=True)
class Effect:
    """One instruction: opcode, modifiers in any order, operands with the names of what they hold."""

    opcode: str
    modifiers: frozenset[str]
    operands: tuple[str, ...]

    @classmethod
    def of(cls, text: str) -> "Effect":
        """From `ld.global.b32 x0, [from]`."""
        name, _, operands = text.strip().partition(" ")
        return cls.made(name, tuple(map(str.strip, _split(operands))))

    @classmethod
    def made(cls, name: str, operands: tuple[str, ...]) -> "Effect":
        """With the ISA's synonyms replaced: bar is barrier.aligned, membar is fence.sc, and .gl the scope .gpu."""
        opcode, *modifiers = name.split(".")
        if opcode == "bar" and "warp" not in modifiers:
            opcode, modifiers = "barrier", [*(each for each in modifiers if each != "cta"), "aligned"]
        if opcode == "membar":
            opcode, modifiers = "fence", ["sc", *(each.replace("gl", "gpu") for each in modifiers)]
        if opcode in UNTYPED or {"exch", "cas"} & set(modifiers):
            modifiers = [re.sub(r"^[usf](\d+)$", r"b\1", each) for each in modifiers]
        return cls(opcode, frozenset(modifiers), operands)

    def __str__(self) -> str:
        return ".".join((self.opcode, *sorted(self.modifiers))) + " " + ", ".join(self.operands)


@dataclass(frozen=True)
class Kernel:
    """A compiled kernel. parameters: their types; limits: launch bounds; shared: (alignment, name, bytes or "")."""

    parameters: tuple[str, ...]
    limits: frozenset[str]
    shared: tuple[tuple[str, str, str], ...]
    body: str
    name: str

    def effects(self, *parameters: str, stored: dict[str, int] | None = None) -> list[Effect]:
        """Execution of one thread. parameters: their names; stored: receives the last number stored at each address."""
        return _Thread(self, parameters, {} if stored is None else stored).run()


def kernels(ptx: str) -> dict[str, Kernel]:
    """The kernels of a module by name."""
    declared, found = SHARED.findall(ptx), {}
    for name, parameters, limits, body in KERNEL.findall(ptx):
        body = re.sub(r"//.*", "", body)
        types = tuple(re.sub(r"^[usf](\d+)$", r"b\1", each) for each in re.findall(r"\.param \.(\w+)", parameters))
        used = [each for each in declared if re.search(rf"\b{each[1]}\b", body)]
        places = tuple((align, _last(place), size) for align, place, size in used)
        rules = frozenset(
            " ".join(limit.split()).removesuffix(", 1, 1") for limit in limits.split("\n") if limit.strip()
        )
        found[name] = Kernel(types, rules, places, body, name)
    return found


class _Thread:
    def __init__(self, kernel: Kernel, parameters: tuple[str, ...], stored: dict[str, int]) -> None:
        self.names: dict[int, str] = {}  # of the numbers that stand for something
        self.bases: dict[int, str] = {}  # of addresses
        self.registers: dict[str, int] = {}
        self.effects: list[Effect] = []
        self.kernel, self.stored, self.brought = kernel, stored, 0
        self.parameters = {}
        for at, (name, kind) in enumerate(zip(parameters, kernel.parameters, strict=True)):
            number = (0x6B00 + at) << 40 if kind == "b64" else 0x5CA1AB00 + at
            self.parameters[f"{kernel.name}_param_{at}"] = number
            (self.bases if kind == "b64" else self.names)[number] = name

    def run(self) -> list[Effect]:
        lines = [line.strip() for line in self.kernel.body.splitlines()]
        labels = {line.rstrip(":"): at for at, line in enumerate(lines) if line.endswith(":")}
        at = 0
        while at < len(lines):
            line, at = lines[at], at + 1
            if not line or line[0] in ".{}" or line.endswith(":"):
                continue
            found = INSTRUCTION.match(line)
            assert found, f"{self.kernel.name}: this is no PTX instruction: {line}"
            inverted, predicate, name, operands = found.groups()
            if predicate and self._value(predicate) == bool(inverted):
                continue
            if name.startswith("bra"):
                at = labels[operands.strip()]
            elif name == "ret":
                break
            else:
                self._execute(name, list(map(str.strip, _split(operands))))
        return self.effects

    def _execute(self, name: str, operands: list[str]) -> None:
        opcode, *modifiers = name.split(".")
        if name.startswith("ld.param"):
            self.registers[operands[0]] = self.parameters[operands[1].strip("[]")]
        elif opcode == "mov" and operands[1] not in CHANGING:
            self._move(modifiers[-1], *operands)
        elif rule := _rule(opcode, modifiers):
            given = [self._value(each) for each in operands[1:]]
            self.registers[operands[0]] = rule(tuple(modifiers), *given)
        else:
            self._effect(opcode, name, modifiers[-1] if modifiers else "", operands)

    def _move(self, kind: str, to: str, source: str) -> None:
        half = int(kind.lstrip("bpred") or 1) // 2 if kind.startswith("b") else 0
        if to.startswith("{"):
            low, high = (each.strip() for each in to.strip("{}").split(","))
            value = self._value(source)
            self.registers |= {low: value & ((1 << half) - 1), high: value >> half}
        elif source.startswith("{"):
            low, high = (self._value(each.strip()) for each in source.strip("{}").split(","))
            self.registers[to] = high << half | low
        else:
            self.registers[to] = self._value(source)

    def _effect(self, opcode: str, name: str, kind: str, operands: list[str]) -> None:
        returning = ("ld", "atom", "shfl", "mov", "createpolicy", "mma", "add", "rsqrt", "div")
        if opcode in returning or "try_wait" in name or "test_wait" in name:
            given = [self._shown(each) for each in operands[1:]]
            results = [each.split("|")[0].strip() for each in operands[0].strip("{}").split(",")]
            fresh = ", ".join(self._bring(each, int(kind[1:])) for each in results)
            shown = [f"{{{fresh}}}" if operands[0].startswith("{") else fresh, *given]
        else:
            shown = [self._shown(each) for each in operands]
        if opcode == "st" and not operands[1].startswith("{"):
            self.stored[shown[0].strip("[]")] = self._value(operands[1])
        self.effects.append(Effect.made(name, tuple(shown)))

    def _bring(self, register: str, bits: int) -> str:
        """A new number of so many bits from outside, and its name."""
        number, name = 0xC3A5F00DBEEF0F1E ^ self.brought * 0x0101010101010101, f"x{self.brought}"
        self.brought += 1
        self.registers[register] = number & ((1 << bits) - 1)
        self.names[self.registers[register]] = name
        return name

    def _value(self, operand: str) -> int:
        if operand in self.registers:
            return self.registers[operand]
        if operand[:2] in ("0d", "0f"):
            return int(operand[2:], 16)
        if re.fullmatch(r"-?\d+|0x[0-9A-Fa-f]+", operand):
            return int(operand, 0)
        if operand.startswith("%"):  # a special register
            number = 0x3D000000 + sum(operand.encode()) * 0x101
            self.names[number] = operand
            return number
        number = 0x70000000 + SPAN * (sum(operand.encode()) % 256)  # shared memory: addresses of 32 bits
        self.bases[number] = _last(operand)
        return number

    def _shown(self, operand: str) -> str:
        if operand[0] == "{":
            return f"{{{', '.join(self._named(self._value(each.strip())) for each in operand[1:-1].split(','))}}}"
        if operand[0] == "[":
            base, _, offset = operand[1:-1].partition("+")
            return f"[{self._named(self._value(base.strip()) + int(offset or 0))}]"
        return self._named(self._value(operand))

    def _named(self, number: int) -> str:
        if number in self.names:
            return self.names[number]
        for base, name in self.bases.items():
            if base <= number < base + SPAN:
                return name if number == base else f"{name}+{number - base}"
        number = -1 if number == 0xFFFFFFFF else number
        return str(number) if -1 <= number < 1 << 16 else hex(number)


def _last(name: str) -> str:
    """The variable's own name out of a mangled one."""
    found = re.search(r"E\d+([a-z_]+)$", name) if name.startswith("_Z") else None
    return found[1] if found else name


def _split(operands: str) -> Iterator[str]:
    """The operands, split at commas outside brackets."""
    return (each for each in re.findall(r"(?:\{[^}]*\}|\[[^\]]*\]|[^,{\[])+", operands) if each.strip())


def _rule(opcode: str, modifiers: list[str]) -> Callable[..., int] | None:
    """Computation of it; None for an effect, and for what no sound kernel of the table computes."""
    known = modifiers and not {"f32", "f16"} & set(modifiers)
    return RULES.get(f"{opcode}.{modifiers[-1]}", RULES.get(opcode)) if known else None


def _bits(kind: str) -> int:
    return (1 << int(kind[1:])) - 1


def _signed(number: int, kind: str) -> int:
    number &= _bits(kind)
    return number - (number >> (int(kind[1:]) - 1) << int(kind[1:])) if kind[0] == "s" else number


def _double(number: int) -> float:
    return struct.unpack("<d", struct.pack("<Q", number))[0]


def _pattern(number: float) -> int:
    return struct.unpack("<Q", struct.pack("<d", number))[0]


def _whole(kinds: Callable[[int, int], int]) -> Callable[..., int]:
    return lambda modifiers, a, b: kinds(a, b) & (1 if modifiers[-1] == "pred" else _bits(modifiers[-1]))


def _convert(modifiers: tuple[str, ...], a: int) -> int:
    *rounding, to, source = modifiers
    if source == "f64":  # only to whole numbers: rni to the nearest, ties to even, and rzi towards zero
        whole = {"rni": round, "rzi": math.trunc}[rounding[0]](_double(a))
        return _pattern(float(whole)) if to == "f64" else whole & _bits(to)
    return _signed(a, source) & _bits(to)


def _compare(modifiers: tuple[str, ...], a: int, b: int) -> int:
    how, kind = modifiers
    how = {"neu": "ne", "equ": "eq"}.get(how, how)
    first, second = (_double(each) if kind == "f64" else _signed(each, kind) for each in (a, b))
    return int(getattr(operator, how)(first, second))


RULES: dict[str, Callable[..., int]] = {
    "cvta": lambda modifiers, a: a,
    "cvt": _convert,
    "setp": _compare,
    "add": _whole(operator.add),
    "and": _whole(operator.and_),
    "or": _whole(operator.or_),
    "xor": _whole(operator.xor),
    "shl": _whole(operator.lshift),
    "not": lambda modifiers, a: ~a & (1 if modifiers[-1] == "pred" else _bits(modifiers[-1])),
    "selp": lambda modifiers, a, b, chosen: a if chosen else b,
    "neg.f64": lambda modifiers, a: a ^ 1 << 63,
    "add.f64": lambda modifiers, a, b: _pattern(_double(a) + _double(b)),
    "mul.f64": lambda modifiers, a, b: _pattern(_double(a) * _double(b)),
    "fma.f64": lambda modifiers, a, b, c: _pattern(
        float(Fraction(_double(a)) * Fraction(_double(b)) + Fraction(_double(c)))
    ),
}
