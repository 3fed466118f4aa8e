"""Loops of a kernel and the bytes that they load, read from SASS without a GPU.

Instructions for each KB of weights, bytes that pass L1 and shared memory beside them, and loads under way at once: the
parts of a kernel's time that no count of the host device shows, because they are the compiler's work.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from common import ROOT
from common.compile.nvrtc import compile_cubin
from common.compile.sass import INSTRUCTION, sass
from common.compile.source import Source
from common.model.stages import DEFINITIONS, STAGES, WARP

BF16 = 2  # bytes
WIDE = {"64": 8, "128": 16}  # bytes a lane
LABEL = re.compile(r"^(\.L_\w+):")
CALLER = re.compile(r'^\s*//## File "(.*?)", line (\d+)')
FUNCTION = re.compile(r"^\s*(?:template <.*?> )?static DEVICE [^(]*?(\w+)\(")
OPERANDS = re.compile(r"\*/\s+(?:@!?U?P\w+\s+)?[A-Z][\w.]*\s*([^;]*);")
TARGET = re.compile(r"\.L_\w+")
REGISTER = re.compile(r"\bR(\d+)\b")
# The first register of these is written, of all others it may be read, too: stores, tests, moves to predicates.
WRITES = ("LD", "IMAD", "IADD", "FFMA", "FADD", "FMUL", "SHF", "PRMT", "LOP", "LEA", "MOV", "SEL")


@dataclass(frozen=True)
class Loop:
    """The loop of a stage that loads its weights, or its part of the cache; all numbers are of one warp.

    instructions  for each KB of weights; of a loop over the cache, for each turn
    through_l1    bytes that pass L1 or shared memory for each KB of weights: the vector, and weights that wait there
    loads         under way at once, of a lane; width: bytes of one
    phases        one after another in a turn: 2 where the second load is only sent when the first is used
    """

    instructions: float
    through_l1: float
    loads: int
    width: int
    phases: int


def stage_loops(source: Source, arch: str, cache_dir: Path) -> dict[str, Loop]:
    """Loops of the stages that multiply a matrix or read the cache, as ptxas compiles them in the whole kernel.

    Raises CompileError, and LabError where NVRTC or nvdisasm is missing.
    """
    cubin = compile_cubin(source.text, arch, source.name, cache_dir)
    if source.by_stage:
        found = {stage: list(_loops(_lines(sass(cubin, f"stage_{stage}", cache_dir), stage))) for stage in _loading()}
    else:
        loops = list(_loops(_lines(sass(cubin, "decode", cache_dir, callers=True))))
        found = {stage: [loop for loop in loops if _only(loop, stage)] for stage in _loading()}
    read = {
        stage: weights_loop(loops) if DEFINITIONS[stage].columns else cache_loop(loops)
        for stage, loops in found.items()
    }
    return {stage: loop for stage, loop in read.items() if loop}


def _loading() -> list[str]:
    return [stage for stage, of in DEFINITIONS.items() if of.columns or of.cached]


@dataclass(frozen=True)
class Line:
    """An instruction with its modifiers, its operands, and the stage that it is part of."""

    name: str
    operands: str
    stage: str

    @property
    def wide(self) -> int:
        """Bytes of a lane, of a load or copy of 64 or 128 bits; else 0."""
        return next((WIDE[part] for part in self.name.split(".") if part in WIDE), 0)

    @property
    def weights(self) -> int:
        """Bytes of weights: what no block writes is loaded as constant, or copied asynchronously."""
        constant = self.name.startswith("LDG.") and "CONSTANT" in self.name
        return self.wide if constant or self.name.startswith("LDGSTS") else 0

    @property
    def written(self) -> int:
        """Bytes that blocks write: the cache and activations."""
        return self.wide if self.name.startswith("LDG.") and "CONSTANT" not in self.name else 0

    @property
    def through_l1(self) -> int:
        return self.wide if self.name.startswith("LDS") else self.written


Loops = list[list[Line]]


def weights_loop(loops: Loops) -> Loop | None:
    """Loop of a stage that multiplies a matrix; None where no loop loads weights.

    Where some warps load and others multiply, both loops count. A weight is one FFMA.
    """
    loading = _most(loops, lambda line: line.weights)
    if loading is None:
        return None
    size = WARP * sum(line.weights for line in loading)
    parts = [(loading, size)]
    if _products(loading) * BF16 * WARP < size // 2:
        multiplying = _most(loops, lambda line: int(line.name.startswith("FFMA")))
        parts += [(multiplying, _products(multiplying) * BF16 * WARP)] if multiplying else []
    loads, phases = under_way([(line, line.weights) for line in loading])
    return Loop(
        instructions=sum(1024 / each * len(part) for part, each in parts),
        through_l1=sum(1024 / each * WARP * sum(line.through_l1 for line in part) for part, each in parts),
        loads=loads,
        width=max(line.weights for line in loading),
        phases=phases,
    )


def cache_loop(loops: Loops) -> Loop | None:
    """Loop of attention: the shortest with two wide loads and products; None where there is none."""
    found = [loop for loop in loops if sum(line.written > 0 for line in loop) > 1 and _products(loop)]
    if not found:
        return None
    turn = min(found, key=len)
    loads, phases = under_way([(line, line.written) for line in turn])
    return Loop(len(turn), 0.0, loads, max(line.written for line in turn), phases)


def _products(loop: list[Line]) -> int:
    return sum(line.name.startswith("FFMA") for line in loop)


def _most(loops: Loops, size: Callable[[Line], int]) -> list[Line] | None:
    """The loop with the largest sum of `size`, and of equal ones the shortest; None where all sums are 0."""
    best = max(loops, key=lambda loop: (sum(map(size, loop)), -len(loop)), default=None)
    return best if best and any(map(size, best)) else None


def under_way(loop: list[tuple[Line, int]]) -> tuple[int, int]:
    """(loads of a lane at once, phases of so many) of one turn; the loads are the instructions with a size.

    A load is under way until an instruction reads its register. Copies need none: those of a turn are one phase.
    """
    waiting: dict[int, int] = {}  # register: load
    most = sent = 0
    for line, size in loop:
        if size and line.name.startswith("LDGSTS"):
            sent, most = sent + 1, most + 1
            continue
        registers = [int(number) for number in REGISTER.findall(line.operands)]
        read = registers[1:] if line.name.startswith(WRITES) else registers
        used = {waiting[register] for register in read if register in waiting}
        waiting = {register: load for register, load in waiting.items() if load not in used}
        if size:
            sent += 1
            waiting |= dict.fromkeys(range(registers[0], registers[0] + size // 4), sent)
            most = max(most, len(set(waiting.values())))
    return most, -(-sent // most) if most else 0


def _only(loop: list[Line], stage: str) -> bool:
    """True if all wide loads of the loop belong to `stage`: the loop over layers has those of all."""
    return {line.stage for line in loop if line.weights or line.written} == {stage}


def _lines(listing: str, stage: str = "") -> tuple[list[Line], Mapping[str, int]]:
    """Instructions in order, and the one that each label stands before; stage: of all, "" reads it from the callers."""
    lines: list[Line] = []
    labels: dict[str, int] = {}
    callers: list[tuple[str, int]] = []
    fresh = True  # the next line of callers begins a new list of them
    for row in listing.splitlines():
        if caller := CALLER.match(row):
            callers = [*([] if fresh else callers), (caller[1], int(caller[2]))]
            fresh = False
        elif label := LABEL.match(row):
            labels[label[1]] = len(lines)
        elif (found := INSTRUCTION.match(row)) and (found[1] or "").strip() != "@!PT":
            fresh = True
            operands = OPERANDS.search(row)
            lines.append(Line(found[2] + found[3], operands[1] if operands else "", stage or _stage_of(tuple(callers))))
    return lines, labels


def _loops(program: tuple[list[Line], Mapping[str, int]]) -> Iterator[list[Line]]:
    """From the target of each branch backwards to the branch."""
    lines, labels = program
    for end, line in enumerate(lines):
        target = TARGET.search(line.operands) if line.name.startswith("BRA") else None
        if target and labels.get(target[0], end + 1) <= end:
            yield lines[labels[target[0]] : end + 1]


@cache
def _stage_of(callers: tuple[tuple[str, int], ...]) -> str:
    """The innermost function among `callers` that is a stage; "" where none is."""
    return next((name for file, line in callers if (name := _function(file, line)) in STAGES), "")


@cache
def _function(file: str, line: int) -> str:
    """The member function whose text has line `line` of `file`, a source of this repository."""
    parts = Path(file).parts  # NVRTC puts its working folder before the relative name of a #line
    ends = (ROOT / Path(*parts[first:]) for first in range(len(parts)))
    path = next((path for path in ends if path.is_file()), None)
    rows = path.read_text().splitlines()[:line] if path else []
    return next((found[1] for row in reversed(rows) if (found := FUNCTION.match(row))), "")
