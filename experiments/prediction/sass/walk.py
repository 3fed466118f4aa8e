"""Walk of one warp through a compiled kernel: when it issues each instruction, and the cause of each wait.

An instruction is issued when the stall of the one before it has passed and the scoreboards that it names are 0. The
walk follows lane 0 of warp 0 of block 0, which has part in all that a block does once. At a branch on data it takes the
shorter way to the join: polls succeed, and rare values are not corrected.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush

from common.compile.control import SCOREBOARDS, SIZE
from common.errors import LabError
from experiments.prediction.sass.buffers import Buffers
from experiments.prediction.sass.lane import Lane
from experiments.prediction.sass.operands import is_predicate
from experiments.prediction.sass.program import Instruction, Program

# What a warp waits for: the next issue, results of fixed latency, a block barrier, other blocks, registers still read.
ISSUE, FIXED, BARRIER, POLL, OPERANDS = "issue", "fixed", "barrier", "poll", "operands"
UNITS = {"LDS": "shared", "STS": "shared", "SHFL": "shuffle", "SYNCS": "phase", "MEMBAR": "l2", "FENCE": "l2"}
# Of a matrix: takes the latency of memory, beside which other loads arrive, and counts no clocks: it is simulated.
MATRIX = "matrix"
OTHERS = "special"  # square roots, reciprocals, conversions, special registers
GLOBAL = ("LDG", "LDGSTS", "ATOMG")
JUMPS = ("BRA", "BRX", "CALL", "RET", "EXIT")
# Instructions that no compiler shares among stages; others may stand in the code of one that has an equal one.
OWN = ("LD", "ST", "SYNCS", "BAR", "SHFL", "HMMA", "ATOM", "RED")
TILE, STREAM, PUBLISHED = "tile", "stream", "published"
DETOUR, CALLED = 2000, 50  # instructions searched for the join of two ways; instructions that a call counts as
SLEEP = "NANOSLEEP"
LONGEST = 10_000_000  # instructions of a walk


@dataclass
class Span:
    """Neighbouring instructions of one stage, from an event on: TILE, STREAM, PUBLISHED, or "" for none.

    clocks    by cause; issued: instructions
    l1_bytes  of a lane, through L1 or shared memory; loaded: of a matrix; flight: of a matrix, under way at most
    hidden    whether it overlaps the wait for results of other blocks
    """

    stage: str
    event: str
    clocks: dict[str, float] = field(default_factory=dict)
    issued: int = 0
    l1_bytes: int = 0
    loaded: int = 0
    flight: int = 0
    hidden: bool = False

    def wait(self, cause: str, clocks: float) -> None:
        self.clocks[cause] = self.clocks.get(cause, 0.0) + clocks


class Walk:
    """One walk; latency: clocks by cause, and of an exchange between blocks as POLL."""

    def __init__(self, program: Program, lane: Lane, buffers: Buffers, latency: Mapping[str, float]) -> None:
        self._program, self._lane, self._buffers = program, lane, buffers
        self._latency = {**latency, MATRIX: latency["memory"]}
        # Bulk copies mark their lines to be evicted first: other weights stay in L2 between tokens.
        self._weights = "l2" if any(line.opcode == "UBLKCP" for line in program.lines) else "memory"
        self._now = 0.0
        self._waiting: list[list[tuple[float, str]]] = [[] for _ in range(SCOREBOARDS)]  # until when, for what
        self._flight = [0] * SCOREBOARDS  # bytes of a matrix
        self._sent: float | None = None  # when the results were published that no poll has waited for yet
        self._spans = [Span("", "")]
        self._unpolled = 0  # the first span after these results
        self._cached: set[int] = set()  # lines of L1
        self._steps: dict[tuple[int, bool | None], Callable[[], None]] = {}
        self._ways: dict[int, tuple[bool, bool]] = {}
        self._joins: list[int] = []  # where lanes that differ meet again, the innermost last

    def spans(self) -> list[Span]:
        """The whole launch. Raises LabError for a kernel that does not end."""
        lines, at = self._program.lines, 0
        for _ in range(LONGEST):
            line = lines[at]
            self._issue(line)
            does = self._guard(line)
            if line.opcode in JUMPS:
                target = self._jump(at, line, does)
                if target is None:
                    return self._spans
                at = target
                continue
            if does is not False:
                self._count(line)
            if does is not False:
                step = self._steps.get((at, does))
                if step is None:
                    step = self._steps[at, does] = self._compile(line) if does else self._lane.forget(line)
                step()
            at += 1
        raise LabError("the walk through a kernel's instructions does not end", "it cannot be predicted; report it")

    def _issue(self, line: Instruction) -> None:
        bits, span = line.control, self._spans[-1]
        if line.stage != span.stage and line.opcode.startswith(OWN):
            span = self._begin(line.stage, "")
        if bits.waits or line.opcode == "DEPBAR":
            self._wait(line, span)
        stall = max(1, bits.stall)
        span.issued += 1
        span.wait(ISSUE, 1)
        if stall > 1:
            span.wait(FIXED, stall - 1)
        self._issued_at, self._now = self._now, self._now + stall

    def _wait(self, line: Instruction, span: Span) -> None:
        done = [(board, entry) for board in line.control.waits for entry in self._waiting[board]]
        if line.opcode == "DEPBAR" and line.operands[0].startswith("SB"):  # all but the last so many
            board, left = int(line.operands[0][2:]), int(line.operands[1], 16) if len(line.operands) > 1 else 0
            done += [(board, entry) for entry in self._waiting[board][: len(self._waiting[board]) - left]]
        span.flight = max(span.flight, sum(self._flight))
        until, cause = max((entry for _, entry in done), default=(0.0, ""))
        for board, entry in done:
            self._waiting[board].remove(entry)
            self._flight[board] = 0
        if until > self._now:
            if cause != MATRIX:
                span.wait(cause, until - self._now)
            self._now = until

    def _begin(self, stage: str, event: str) -> Span:
        self._spans.append(Span(stage, event))
        return self._spans[-1]

    def _count(self, line: Instruction) -> None:
        """Count an instruction that is executed by its scoreboards."""
        bits, opcode, span = line.control, line.opcode, self._spans[-1]
        if opcode in ("LDS", "STS"):
            span.l1_bytes += line.bytes
        if opcode == "SYNCS" and "TRYWAIT" in line.modifiers:
            self._begin(line.stage, TILE)
        if opcode == "BAR":
            span.wait(BARRIER, self._latency[BARRIER])
            self._now += self._latency[BARRIER]
        if opcode == "BSSY":
            self._joins.append(self._program.labels[line.target])
        if opcode == "BSYNC" and self._joins:
            self._joins.pop()
        if opcode == "CCTL" and "IVALL" in line.modifiers:
            self._cached.clear()
        if self._publishes(line):
            self._begin(line.stage, PUBLISHED)
            self._sent, self._unpolled = self._now, len(self._spans)
            self._begin(line.stage, "")
        cause = self._load(line) if opcode in GLOBAL else UNITS.get(opcode, OTHERS)
        if bits.written is not None:
            arrives = self._issued_at + self._latency[cause]
            if opcode == "LDG" and "STRONG" in line.modifiers and self._sent is not None:
                arrives, cause = max(arrives, self._sent + self._latency[POLL]), POLL
            self._waiting[bits.written].append((arrives, cause))
        if bits.read is not None:
            self._waiting[bits.read].append((self._issued_at + self._latency[OPERANDS], OPERANDS))

    def _publishes(self, line: Instruction) -> bool:
        """True for a store that other blocks wait for: of a value that is not known beforehand."""
        if line.opcode not in ("STG", "REDG", "ATOMG") or "STRONG" not in line.modifiers:
            return False
        return line.opcode != "STG" or self._lane.value(line.operands[-1]) is None

    def _load(self, line: Instruction) -> str:
        """Cause of the wait for a load: the memory that serves it, or MATRIX."""
        if line.opcode == "ATOMG":
            return "l2"
        at = self._lane.value(line.operands[-1])
        board = line.control.written
        if self._buffers.matrix(at, line.stage) and line.bytes >= 8:
            span = self._spans[-1]
            if not any(self._flight):
                span = self._begin(line.stage, STREAM)
            span.loaded += line.bytes
            self._flight[board or 0] += line.bytes
            span.flight = max(span.flight, sum(self._flight))
            return MATRIX
        self._spans[-1].l1_bytes += line.bytes
        region = self._buffers.region(at)
        if region == "cache":  # each entry is loaded once
            return "memory"
        if "STRONG" not in line.modifiers:
            if at is not None and at >> 7 in self._cached:
                return "l1"
            self._cached.add(at >> 7 if at is not None else 0)
        return self._weights if region == "weights" else "l2"

    def _compile(self, line: Instruction) -> Callable[[], None]:
        registers = self._lane.registers
        if line.opcode == "SYNCS" and is_predicate(line.operands[0]):
            return lambda: registers.update({line.operands[0]: True})  # the tile is there
        if line.opcode == "LDG":
            return self._read(line)
        return self._lane.compile(line)

    def _read(self, line: Instruction) -> Callable[[], None]:
        """A load finds the few words of the state that are known, and it loses its address if that is its result."""
        forget, known = self._lane.forget(line), line.bytes == 4 and "STRONG" not in line.modifiers

        def read() -> None:
            at = self._lane.value(line.operands[-1])
            forget()
            if known and at is not None:
                self._lane.registers[line.operands[0]] = self._buffers.word(at)

        return read

    def _guard(self, line: Instruction) -> bool | None:
        found: bool | None = self._lane.value(line.guard) if line.guard else True
        return found

    def _jump(self, at: int, line: Instruction, does: bool | None) -> int | None:
        """The next instruction; None: the end."""
        labels, value = self._program.labels, self._lane.value
        if line.opcode == "EXIT":
            return None if does is not False else at + 1
        if line.opcode in ("RET", "BRX"):
            first, *rest = line.operands[0].split()
            to = value(first)
            if to is None:
                raise LabError("the walk through a kernel's instructions loses its way", "it cannot be predicted")
            return to // SIZE if line.opcode == "RET" else at + 1 + (to + int(rest[0], 16)) // SIZE
        if "DIV" in line.modifiers:  # lanes do not differ
            return at + 1
        both = [does, *map(value, line.operands[:-1])]
        taken = False if False in both else None if None in both else True
        if taken is None:
            if at not in self._ways:
                self._ways[at] = self._choose(at)
            taken, polls = self._ways[at]
            if polls and self._sent is not None:  # work since the results were sent overlaps the wait
                for span in self._spans[self._unpolled :]:
                    span.hidden = True
                self._sent = None
                self._begin(line.stage or self._spans[-1].stage, "")
        return labels[line.target] if taken else at + 1

    def _choose(self, at: int) -> tuple[bool, bool]:
        """(True if the jump is the shorter way, True if the other way sleeps before it polls again)."""
        ways = at + 1, self._program.labels[self._program.lines[at].target]
        here, there = (self._ahead(to, at) for to in ways)
        both = here.keys() & there.keys() - {at}
        meet = self._joins[-1] if self._joins else min(both, key=lambda each: here[each] + there[each], default=at)
        back, jumps_back = (
            self._lands(to) <= at and at in ahead for to, ahead in zip(ways, (here, there), strict=True)
        )
        if not self._joins and back != jumps_back:  # out of a loop, also of one within another
            taken, meet = back, at
        elif meet == at or (not self._joins and (at in here) != (at in there)):
            taken, meet = there.get(at, DETOUR) > here.get(at, DETOUR), at
        else:
            taken = there.get(meet, DETOUR) < here.get(meet, DETOUR)
        longer = here if taken else there
        end = longer.get(meet, DETOUR)
        return taken, any(far < end and self._program.lines[to].opcode == SLEEP for to, far in longer.items())

    def _lands(self, at: int) -> int:
        """The instruction to which `at` leads, if it is a jump without a condition; else `at`."""
        line = self._program.lines[at]
        plain = line.opcode == "BRA" and not line.guard and len(line.operands) == 1
        return self._program.labels[line.target] if plain else at

    def _ahead(self, start: int, last: int) -> dict[int, int]:
        """Instructions that may follow, up to `last`, with how many are executed before each."""
        found: dict[int, int] = {}
        heap = [(0, start)]
        while heap:
            far, at = heappop(heap)
            if at not in found and at < len(self._program.lines):
                found[at] = far
                for to, by in self._followers(at) if far < DETOUR and at != last else ():
                    heappush(heap, (far + by, to))
        return found

    def _followers(self, at: int) -> Iterator[tuple[int, int]]:
        line = self._program.lines[at]
        if line.opcode in ("EXIT", "BPT", "RET") and not line.guard:
            return
        if line.opcode != "BRA" or line.guard or len(line.operands) > 1:
            yield at + 1, CALLED if line.opcode == "CALL" else 1
        if line.opcode == "BRA" and "DIV" not in line.modifiers:
            yield self._program.labels[line.target], 1
