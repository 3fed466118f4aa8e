"""A module of PTX, decoded for the machine (one C++ library), and the results of a launch."""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np

from common.cache.files import cached
from common.compile.target import shared_bytes
from common.devices.ptx.decode import Decoder
from common.devices.ptx.executable import Executable, file_of
from common.devices.ptx.lines import Line, Lines
from common.devices.ptx.opcodes import decode_instruction
from common.devices.ptx.places import PARAMETERS, SPECIAL
from common.devices.ptx.text import Kernel, parse
from common.devices.ptx.variables import memory_of, reached
from common.errors import LabError, Refused
from common.errors.machine import MachineError

REPORT_BYTES = 1 << 16
WORKSPACE_WORDS = 8  # zeros, of the driver for each cooperative launch: size and barrier of the grid
NO_WORD = 1 << 32
MOST_LOCAL = 512  # KB of a thread


class BufferRow(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("start", ctypes.c_uint64),
        ("bytes", ctypes.c_uint64),
        ("writable", ctypes.c_uint32),
    ]


class LaunchRow(ctypes.Structure):
    """`Launch` of machine.hpp, field by field."""

    _fields_ = [
        ("grid", ctypes.c_uint32 * 3),
        ("block", ctypes.c_uint32 * 3),
        ("parameters", ctypes.c_char_p),
        ("buffers", ctypes.POINTER(BufferRow)),
        ("buffer_count", ctypes.c_uint32),
        ("dynamic_shared", ctypes.c_uint32),
        ("seed", ctypes.c_uint64),
        ("timeout", ctypes.c_double),
        ("patience", ctypes.c_uint32),
        ("strict", ctypes.c_uint32),
        ("races", ctypes.c_uint32),
        ("empty", ctypes.c_uint64),
        ("workspace", ctypes.c_uint64),
        ("executed", ctypes.c_void_p),
        ("report", ctypes.c_char_p),
        ("report_size", ctypes.c_uint64),
    ]


@dataclass(frozen=True)
class Buffer:
    """Memory that a kernel may use."""

    name: str
    start: int
    bytes: int
    writable: bool = True


@dataclass(frozen=True)
class Options:
    """Options of a launch. seed: of every order; strict: random preemption and poisoned targets of copies; races: the
    detector; timeout: in seconds; counts: executed threads and bytes, which is slower; empty: the 32 bits by which a
    relaxed store makes a place empty before others store and poll there, which the detector wants ordered; patience:
    polls of all that wait, without a write in between, after which they are deadlocked; 0: until all registers are as
    they were, which proves it, but does not end polls that are counted."""

    seed: int = 0
    strict: bool = True
    races: bool = False
    timeout: float = 120.0
    counts: bool = False
    empty: int = NO_WORD
    patience: int = 64


@dataclass(frozen=True)
class Ended:
    """Status of a launch and its report; `{pc 12}` in it stands for the place of an instruction.

    executed: uint64, [rows of the kernel, 2 + its buffers]: threads that executed a row, without a buffer and by
    buffer; bytes for a copy, and in the last column those with an L2 policy to keep them; of a conditional branch, in
    the first two columns, threads that go on and threads that jump. None without Options.counts.
    """

    status: int
    report: str
    executed: np.ndarray | None = None


class Machine:
    """The C++ library."""

    def __init__(self, library: Path) -> None:
        self.path = library
        try:
            self._library = ctypes.CDLL(str(library))
        except OSError as error:
            raise MachineError(f"the executor cannot be loaded: {error}", "give the command again") from error
        self._library.ptx_program.restype = ctypes.c_void_p
        self._numbers: dict[str, int] = {}

    def number(self, name: str) -> int:
        """Number of an operation; -1 for an unknown name."""
        if name not in self._numbers:
            self._numbers[name] = self._library.ptx_op(name.encode())
        return self._numbers[name]

    def load(self, decoded: Executable, counts: bool = False) -> ctypes.c_void_p:
        rows, more, filled = decoded.rows, decoded.more, decoded.filled
        pointers = [each.ctypes.data_as(ctypes.c_void_p) for each in (rows, more, filled)]
        sizes = decoded.file_bytes, decoded.shared_bytes, decoded.local_bytes, counts
        return ctypes.c_void_p(
            self._library.ptx_program(pointers[0], len(rows), pointers[1], len(more), pointers[2], len(filled), *sizes)
        )

    def free(self, loaded: ctypes.c_void_p) -> None:
        self._library.ptx_free(loaded)

    def run(self, loaded: ctypes.c_void_p, launch: LaunchRow) -> int:
        return int(self._library.ptx_run(loaded, ctypes.byref(launch)))


class Told(NamedTuple):
    """An instruction as counts and reports name it. imm: for a branch, the index of its target."""

    opcode: str
    imm: int
    line: Line


class PtxKernel:
    """One kernel of a program. decoded: with the addresses of the module's variables; own: those that it uses."""

    def __init__(
        self,
        machine: Machine,
        decoded: Executable,
        lines: Lines,
        target: str,
        kernel: Kernel,
        own: Sequence[Buffer],
    ) -> None:
        self._machine, self.decoded, self._lines, self._target, self._own = machine, decoded, lines, target, own
        self._most_threads, self._block, self.file = kernel.threads or 1024, kernel.block, lines.name
        self._kinds = {*decoded.filled["kind"].tolist()}
        if decoded.local_bytes > MOST_LOCAL << 10:
            raise LabError(
                f"the kernel has {decoded.local_bytes} B of local memory", f"a thread may have {MOST_LOCAL} KB"
            )
        self._loaded: dict[bool, ctypes.c_void_p] = {}  # by Options.counts

    def __del__(self) -> None:
        for each in getattr(self, "_loaded", {}).values():
            self._machine.free(each)

    def launch(
        self,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        parameters: bytes,
        buffers: Sequence[Buffer],
        dynamic_shared: int = 0,
        options: Options = Options(),
    ) -> Ended:
        """Run a grid to its end. Raises Refused for a block that the kernel or its target does not allow."""
        threads, shared = int(np.prod(block)), self.decoded.shared_bytes + dynamic_shared
        if threads > self._most_threads:
            raise Refused(
                f"a block of {threads} threads, and the kernel allows {self._most_threads}", "launch fewer threads"
            )
        if self._block not in (None, block):
            raise Refused(f"a block of {block} threads, and the kernel requires {self._block}", "launch such blocks")
        most = shared_bytes(int("".join(filter(str.isdigit, self._target)) or 90))
        if shared > most:
            raise Refused(
                f"{shared} B of shared memory a block, and {self._target} allows {most} B",
                "lower the shared memory, or compile for a target that has more",
            )
        known, workspace = [*buffers, *self._own], np.zeros(WORKSPACE_WORDS, np.uint64)
        if SPECIAL["%envreg1"][0] in self._kinds:
            known.append(Buffer("workspace of the grid", workspace.ctypes.data, workspace.nbytes))
        if PARAMETERS in self._kinds:
            passed = np.frombuffer(parameters, np.uint8)
            known.append(Buffer("parameters", passed.ctypes.data, passed.nbytes, False))
        rows = (BufferRow * len(known))(
            *(BufferRow(each.name.encode(), each.start, each.bytes, each.writable) for each in known)
        )
        report = ctypes.create_string_buffer(REPORT_BYTES)
        executed = np.zeros((len(self.decoded.rows), 2 + len(known)), np.uint64) if options.counts else None
        launch = LaunchRow(
            grid=grid,
            block=block,
            parameters=parameters,
            buffers=rows,
            buffer_count=len(known),
            dynamic_shared=dynamic_shared,
            workspace=workspace.ctypes.data,
            executed=None if executed is None else executed.ctypes.data,
            report=ctypes.cast(report, ctypes.c_char_p),
            report_size=REPORT_BYTES,
            **{key: value for key, value in vars(options).items() if key != "counts"},
        )
        if options.counts not in self._loaded:
            self._loaded[options.counts] = self._machine.load(self.decoded, options.counts)
        status = self._machine.run(self._loaded[options.counts], launch)
        return Ended(status, report.value.decode(errors="replace"), executed)

    def line(self, pc: int) -> Line:
        """The source of an instruction."""
        return self._lines.line(int(self.decoded.lines[min(pc, len(self.decoded.lines) - 1)]))

    def opcodes(self) -> list[str]:
        """The opcodes of all instructions."""
        return [opcode.decode() for opcode in self.decoded.opcodes.tolist()]

    def rows(self) -> list[Told]:
        """All instructions, with their lines, which take long to read."""
        lines = map(self._lines.line, self.decoded.lines.tolist())
        return list(map(Told, self.opcodes(), self.decoded.rows["imm"].tolist(), lines))


class PtxProgram:
    """A module; its kernels are decoded when they are first used, and kept on disk beside the machine's library."""

    def __init__(self, machine: Machine, text: str, name: str = "PTX") -> None:
        self._machine, self._text, self.module = machine, text, parse(text, name)
        self._kernels: dict[str, PtxKernel] = {}

    @cached_property
    def _memory(self) -> dict[str, np.ndarray]:
        """Variables in global and constant memory, by name."""
        return memory_of(self.module.variables)

    def constant(self, name: str) -> int:
        """The value of a 32-bit variable in constant memory. Raises LabError without it."""
        if name not in self._memory:
            raise LabError(f"the module has no variable {name}", "compile the text that the lab composes")
        return int(self._memory[name].view(np.uint32)[0])

    def kernel(self, name: str) -> PtxKernel:
        """Raises LabError for an unknown kernel, CompileError for an instruction that is not known."""
        if name not in self._kernels:
            if name not in self.module.kernels:
                have = ", ".join(self.module.kernels) or "none"
                raise LabError(f"the PTX has no kernel {name}", f"it has: {have}")
            self._kernels[name] = self._kernel(self.module.kernels[name])
        return self._kernels[name]

    def _kernel(self, kernel: Kernel) -> PtxKernel:
        def decoded() -> bytes:
            decoder = Decoder(self.module, kernel, self._machine.number, decode_instruction)
            return Executable.of(decoder.decode()).stored()

        found = Executable.loaded(cached(file_of(self._machine.path, self._text, kernel.name), decoded))
        used = {name: self._memory[name] for name in sorted(reached(found.symbols.values(), self.module.variables))}
        own = [
            Buffer(name, words.ctypes.data, words.nbytes, self.module.variables[name].space == "global")
            for name, words in used.items()
        ]
        placed = found.at({name: words.ctypes.data for name, words in used.items()})
        return PtxKernel(self._machine, placed, self.module.lines, self.module.target, kernel, own)
