"""Instructions of a compiled kernel: operands, control bits and stage of each, in order."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from common import ROOT
from common.compile.control import SIZE, Control, control
from common.compile.elf import section
from common.compile.sass import sass
from common.model.stages import STAGES

LABEL = re.compile(r"^([.$][\w$]+):")
CALLER = re.compile(r'^\s*//## File "(.*?)", line (\d+)')
FUNCTION = re.compile(r"^\s*(?:template <.*?> )?static DEVICE [^(]*?(\w+)\(")
ROW = re.compile(r"^\s+/\*([0-9a-f]{4,})\*/\s+(?:@(!?U?P\w+)\s+)?([A-Z][\w.]*)\s*([^;]*);")
LONG = re.compile(r"(?<!desc)\[(U?R\d+)(?=[+\]])")  # sm_75 writes [R2] where later ones write [R2.64]
GLOBAL = ("LDG.E", "STG.E", "ATOMG.E", "RED.E")
TARGET = re.compile(r"`\(([.$][\w$]+)\)")


@dataclass(frozen=True)
class Instruction:
    """An instruction with its modifiers; guard: the predicate without which it does nothing, "" for none."""

    guard: str
    name: str
    operands: tuple[str, ...]
    control: Control
    stage: str

    @cached_property
    def opcode(self) -> str:
        return self.name.partition(".")[0]

    @cached_property
    def modifiers(self) -> frozenset[str]:
        return frozenset(self.name.split(".")[1:])

    @property
    def target(self) -> str:
        """The label that it may jump to, or ""."""
        found = TARGET.search(self.operands[-1]) if self.operands else None
        return found[1] if found else ""

    @property
    def bytes(self) -> int:
        """Bytes that a lane moves by it."""
        sizes = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "128": 16}
        return next((size for word, size in sizes.items() if word in self.modifiers), 4)


@dataclass(frozen=True)
class Program:
    """Instructions of a kernel in order; labels: the index of the instruction that each stands before."""

    lines: tuple[Instruction, ...]
    labels: Mapping[str, int]

    @classmethod
    def read(cls, cubin: bytes, kernel: str, cache_dir: Path | None = None, stage: str = "") -> "Program":
        """The kernel of a cubin; stage: of all instructions, "" reads it from the functions that they are inlined into.

        Raises LabError without nvdisasm.
        """
        code = section(cubin, f".text.{kernel}")
        lines: list[Instruction] = []
        labels: dict[str, int] = {}
        callers: list[tuple[str, int]] = []
        fresh = True  # the next line of callers begins a new list of them
        for row in sass(cubin, kernel, cache_dir, callers=not stage).splitlines():
            if caller := CALLER.match(row):
                callers = [*([] if fresh else callers), (caller[1], int(caller[2]))]
                fresh = False
            elif label := LABEL.match(row):
                labels[label[1]] = len(lines)
            elif found := ROW.match(row):
                fresh = True
                at, guard, name, operands = found.groups()
                operands = operands.partition("(*")[0]  # nvdisasm remarks on spills
                operands = LONG.sub(r"[\1.64", operands) if name.startswith(GLOBAL) else operands
                bits = control(code[int(at, 16) :][:SIZE])
                of = stage or _stage_of(tuple(callers))
                lines.append(Instruction(guard or "", name, tuple(operands.strip().split(", ")), bits, of))
        return cls(tuple(lines), labels)

    def loops(self) -> list[tuple[int, int]]:
        """First and last instruction of each loop: from the target of a branch backwards to the branch."""
        branches = ((at, self.labels.get(line.target, at + 1)) for at, line in enumerate(self.lines) if line.target)
        return [(target, at) for at, target in branches if target <= at and self.lines[at].opcode == "BRA"]


@cache
def _stage_of(callers: tuple[tuple[str, int], ...]) -> str:
    """The innermost function among `callers` that is a stage; "" where none is."""
    return next((name for file, line in callers if (name := _function(file, line)) in STAGES), "")


@cache
def _function(file: str, line: int) -> str:
    """The member function around line `line` of `file`, a source of this repository."""
    parts = Path(file).parts  # NVRTC puts its working folder before the relative name of a #line
    ends = (ROOT / Path(*parts[first:]) for first in range(len(parts)))
    path = next((path for path in ends if path.is_file()), None)
    rows = path.read_text().splitlines()[:line] if path else []
    return next((found[1] for row in reversed(rows) if (found := FUNCTION.match(row))), "")
