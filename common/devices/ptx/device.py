"""PTX device: NVRTC compiles the text for a GPU that need not be there, and a CPU executes the PTX.

See README.md; for the methods, common.devices.protocol.
"""

import os
import platform
import re
import struct
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from common.compile.nvrtc import compile_ptx, version
from common.compile.source import Source
from common.compile.target import shared_bytes
from common.devices.counters import FIELDS, Counts
from common.devices.cpu import FINISHED, RACED, CpuDevice, CpuSession
from common.devices.guarded import GuardedBuffer
from common.devices.ptx.counted import counted
from common.devices.ptx.dependent import check_waits
from common.devices.ptx.library import library
from common.devices.ptx.program import Buffer, Machine, Options, PtxKernel, PtxProgram
from common.model.layout import NOT_SENT
from common.model.stages import STAGES

MOST_RACES = 8  # pairs of lines in a report
STATIC_SHARED = 48 << 10  # bytes; a text that needs more has only dynamic shared memory


@dataclass(frozen=True)
class CompiledPtx:
    """A decoded module and its source."""

    source: Source
    program: PtxProgram


class PtxDevice(CpuDevice):
    """A CPU that executes PTX.

    cache: folder of PTX and of the executor itself. arch: the target, 90 for sm_90. races: report unordered conflicting
    accesses. note: called when the executor is compiled. Raises LabError if NVRTC cannot be loaded.
    """

    name = "ptx"

    def __init__(
        self,
        cache: Path,
        arch: int = 90,
        seed: int = 0,
        races: bool = False,
        timeout: float = 120.0,
        note: Callable[[str], None] = lambda text: None,
    ) -> None:
        super().__init__(cache, seed, timeout)
        self.arch, self.races, self._note = arch, races, note
        version()
        self._machine: Machine | None = None

    def describe(self) -> dict[str, Any]:
        return {
            "device": self.name,
            "arch": platform.machine(),
            "cores": os.cpu_count(),
            "target": f"sm_{self.arch}",
            "races": self.races,
            "compiler": f"NVRTC {version()} sm_{self.arch}",
        }

    def compile(self, source: Source) -> CompiledPtx:
        """Raises Refused for a target older than source.min_arch, and CompileError."""
        source.refuse_target(self.arch, "the target", f"give device.arch=sm_{source.min_arch}")
        text = compile_ptx(source.text, f"sm_{self.arch}", cache_dir=self.cache)
        self._machine = self._machine or Machine(library(self.cache, self._note))
        program = PtxProgram(self._machine, text, "decode.cu")
        for stage in STAGES if source.launch == "pdl" else ():
            check_waits(program.kernel(f"stage_{stage}").rows(), f"stage_{stage}")
        return CompiledPtx(source, program)

    def _open(self, *arguments: Any) -> "PtxSession":
        return PtxSession(*arguments)


class PtxSession(CpuSession):
    """One kernel and its buffers on the PTX device."""

    def __init__(
        self,
        device: PtxDevice,
        program: CompiledPtx,
        weights: GuardedBuffer,
        blocks: int,
        beside: "PtxSession | None" = None,
    ) -> None:
        super().__init__(device, program, weights, blocks, beside)
        self._program, self._races, self._counting = program.program, device.races, False
        self.executed: dict[str, Counter[str]] = {}  # what `count` counted last, by `counted`
        self._rows = [
            Buffer(name, one.tensor.data_ptr(), one.bytes, name != "weights") for name, one in self._buffers.items()
        ]
        shared = self._program.constant("shared_bytes")
        self._source.refuse_shared(shared, shared_bytes(device.arch), f"sm_{device.arch}")
        self._dynamic = shared if shared > STATIC_SHARED else 0

    def close(self) -> None:
        """Nothing: the buffers go with the session."""

    def count(self, steps: int = 1) -> Counts:
        self._counting = True
        try:
            self.run(steps)
        finally:
            self._counting = False
        by_stage = [self.executed.get(stage, Counter()) for stage in STAGES]
        by_stage[0] = by_stage[0] + self.executed.get("", Counter())  # what a kernel does before its first stage
        table = [[counts[field] for field in FIELDS] for counts in by_stage]
        return Counts(np.array(table, np.uint64))

    def _launch_all(self, these: Sequence[tuple[int, int]]) -> None:
        pointers = [one.tensor.data_ptr() for one in self._buffers.values()]
        grid, block = (self.blocks, 1, 1), (self._source.launched_threads, 1, 1)
        self.executed = {}
        for number, last in these:
            kernel = self._program.kernel(f"stage_{STAGES[number]}" if self._source.by_stage else "decode")
            parameters = struct.pack("<5Qi", *pointers, last)
            strict = not self._source.model.large
            options = Options(self._seed, strict, self._races, self._timeout, self._counting, NOT_SENT & 0xFFFFFFFF)
            self._seed += 1
            ended = kernel.launch(grid, block, parameters, self._rows, self._dynamic, options)
            status = ended.status or (RACED if ended.report else FINISHED)  # a kernel here keeps to the letter, too
            self._raise_for_status(status, with_lines(ended.report, kernel))
            if ended.executed is not None:
                self._add(kernel, ended.executed)

    def _add(self, kernel: PtxKernel, executed: np.ndarray) -> None:
        """Add a launch's counts. executed: as in Ended."""
        sizes = self.blocks, self._source.threads
        for stage, counts in counted(kernel.rows(), executed, list(self._buffers), *sizes).items():
            self.executed.setdefault(stage, Counter()).update(counts)


def with_lines(report: str, kernel: PtxKernel) -> str:
    """The report with a source line for each `{pc 12}`, and the line of the stage's code it was inlined into.

    Of races between the same lines the first is kept, and of others the first MOST_RACES.
    """
    places: list[str] = []

    def place(found: re.Match[str]) -> str:
        here = kernel.line(int(found[1]))
        names = [str(one) for one in here.chain()]
        callers = [name for name in dict.fromkeys(names[1:]) if name.partition(":")[0] != names[0].partition(":")[0]]
        places.append(names[0] + (f" (from {callers[0]})" if callers else ""))
        return places[-1]

    lines: dict[object, str] = {}
    for number, text in enumerate(report.splitlines()):
        places.clear()
        line = re.sub(r"\{pc (\d+)\}", place, text)
        lines.setdefault(frozenset(places) if len(places) > 1 else number, line)
    for one in [key for key in lines if isinstance(key, frozenset)][MOST_RACES:]:
        lines[one] = "more"
    shown = [line for line in lines.values() if line != "more"]
    more = len(lines) - len(shown)
    return "\n".join([*shown, *([f"and races between {more} more pairs of lines"] if more else [])])
