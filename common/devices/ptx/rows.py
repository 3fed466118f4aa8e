"""Decoded (`Row`) and parsed (`Instruction`) instructions of PTX."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from common.devices.ptx.lines import Where
from common.devices.ptx.text import wrong

ABSENT = 0  # place of an absent operand
CLUSTERS = "clusters of several blocks are not executed"
REMEDY = "write the kernel without it, or compile for a target that needs none"
INDIRECT = "calls through pointers are not executed"
DIRECTLY = "call the function by its name, or pass it as an argument of a template"
BEYOND = {  # what is not executed, and beginnings of its instructions
    "matrices of a group of warps are not executed": ("wgmma",),
    "tensor memory is not executed": ("tcgen05",),
    "tensor maps are not executed": ("tensormap", "cp.async.bulk.tensor", "cp.async.bulk.prefetch.tensor",
                                     "fence.proxy.tensormap"),
    "asynchronous reductions are not executed": ("cp.reduce.async.bulk",),
    CLUSTERS: ("mapa", "getctarank", "barrier.cluster"),
    "branches by a table are not executed": ("brx",),
    "textures and surfaces are not executed": ("tex", "suld", "sust"),
}  # fmt: skip


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
    line: Where
    opcode: str
    label: bool = False


@dataclass(frozen=True)
class Place:
    at: int
    bytes: int  # per lane; 0 for a predicate
    kind: str = "b"  # its register's declared type


@dataclass(frozen=True)
class Instruction:
    opcode: str
    words: tuple[str, ...]  # the modifiers
    operands: tuple[str, ...]
    line: Where
    counts: Sequence[int] = ()  # how many operands are allowed; none for an unknown name
    kinds: Sequence[str] = ()  # what each operand may be

    @property
    def name(self) -> str:
        return ".".join((self.opcode, *self.words))

    @property
    def type(self) -> str:
        return self.words[-1] if self.words else ""


@dataclass
class Decoded:
    """A kernel for the machine. filled: (place, kind, bytes of a lane, value). symbols: {index in filled: variable of
    the module, whose address is added to the value}."""

    rows: list[Row]
    more: list[int] = field(default_factory=list)
    filled: list[tuple[int, int, int, int]] = field(default_factory=list)
    symbols: dict[int, str] = field(default_factory=dict)
    file_bytes: int = 0
    shared_bytes: int = 0
    local_bytes: int = 0


def unknown(one: Instruction, of: str = "") -> Exception:
    """The error for an unknown instruction, or for its part `of`."""
    for reason, beginnings in BEYOND.items():
        if one.name.startswith(beginnings):
            return wrong(one.line, f"{one.name}: {reason}", REMEDY)
    remedy = "write it with instructions that it knows, or add it to common/devices/ptx"
    return wrong(one.line, f"the executor does not know {one.name}{of}", remedy)


def listed(text: str) -> list[str]:
    """The names of `{%r1, %r2}`."""
    return [each.strip() for each in text.strip("{} ").split(",")]
