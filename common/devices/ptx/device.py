"""PTX device: NVRTC compiles the text for a GPU that need not be there, and a CPU executes the PTX.

See README.md. The verbs are those of every device (common.devices.protocol).
"""

import os
import platform
import re
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from common.compile.nvrtc import compile_ptx, version
from common.compile.source import Source, launches
from common.devices.barrier_report import raise_if_barrier_timed_out
from common.devices.counters import Counts
from common.devices.host.memory import GuardedBuffer
from common.devices.kv_cache import KvCache
from common.devices.protocol import Session
from common.devices.ptx import program as machine
from common.devices.ptx.library import library
from common.devices.ptx.program import Buffer, Ended, Machine, Options, PtxKernel, PtxProgram
from common.devices.unwritten import NOT_WRITTEN, fill_scratch
from common.errors import Crashed, Hung, Refused
from common.model.layout import MAX_BLOCKS, WAIT_WORDS
from common.model.stages import STAGES

BLOCKS = 8  # default grid: enough blocks for an uneven share of heads and rows
STATIC_SHARED = 48 << 10  # bytes; where a block needs more, the text takes dynamic shared memory for all of it
MOST_SHARED = {80: 163, 86: 99, 87: 163, 89: 99, 90: 227, 100: 227, 103: 227, 110: 227, 120: 99, 121: 99}  # KB


@dataclass(frozen=True)
class CompiledPtx:
    """A decoded module and the source that it was made of."""

    source: Source
    program: PtxProgram


class PtxDevice:
    """A CPU that executes PTX.

    cache: folder of PTX and of the executor itself. arch: the target, 90 for sm_90. seed: determines every order in the
    first launch of a session; each later launch uses the next seed. races: report conflicting accesses that nothing
    orders. timeout: limit of one launch in seconds; a deadlock is detected without it.
    """

    name = "ptx"

    def __init__(self, cache: Path, arch: int = 90, seed: int = 0, races: bool = False, timeout: float = 120.0) -> None:
        self.cache, self.arch, self.seed, self.races, self.timeout = Path(cache), arch, seed, races, timeout
        self._machine: Machine | None = None
        self._weights: tuple[torch.Tensor, GuardedBuffer] | None = None

    def describe(self) -> dict[str, Any]:
        return {
            "device": self.name,
            "arch": platform.machine(),
            "cores": os.cpu_count(),
            "target": f"sm_{self.arch}",
            "compiler": f"NVRTC {version()}",
        }

    def compile(self, source: Source) -> CompiledPtx:
        """Raises Refused for a target older than source.min_arch, and CompileError."""
        if source.min_arch > self.arch:
            raise Refused(
                f"{source.name} needs sm_{source.min_arch} and arch is sm_{self.arch}",
                f"give device.arch=sm_{source.min_arch}, or remove the variant from the stack",
            )
        text = compile_ptx(source.text, f"sm_{self.arch}", cache_dir=self.cache)
        self._machine = self._machine or Machine(library(self.cache))
        return CompiledPtx(source, PtxProgram(self._machine, text, "decode.cu"))

    def session(
        self,
        program: CompiledPtx,
        weights: torch.Tensor,
        blocks: int | None = None,
        beside: "PtxSession | None" = None,
    ) -> "PtxSession":
        """See common.devices.protocol.Device. The copy of the weights is shared by all sessions with these weights."""
        blocks = BLOCKS * program.source.blocks_per_sm if blocks is None else blocks
        if not 1 <= blocks <= MAX_BLOCKS:
            raise Refused(f"blocks={blocks} is not in 1..{MAX_BLOCKS}", f"give blocks=N with N in 1..{MAX_BLOCKS}")
        if self._weights is None or self._weights[0] is not weights:
            held = GuardedBuffer(program.source.layout.weights_size, torch.bfloat16)
            held.tensor.copy_(weights)
            held.freeze()
            self._weights = (weights, held)
        options = Options(self.seed, not program.source.model.large, self.races, self.timeout)
        return PtxSession(program, self._weights[1], blocks, self.arch, options, beside)


class PtxSession(Session):
    """One kernel and its buffers; see common.devices.protocol.Session for the methods."""

    _buffers: dict[str, GuardedBuffer]

    def __init__(
        self,
        program: CompiledPtx,
        weights: GuardedBuffer,
        blocks: int,
        arch: int,
        options: Options,
        beside: "PtxSession | None" = None,
    ) -> None:
        layout = self.layout = program.source.layout
        self.blocks = blocks
        self._source, self._program, self._options, self._seed = program.source, program.program, options, options.seed
        self._position = 0
        if beside:
            self._buffers = dict(beside._buffers)
            if beside.layout.scratch_size < layout.scratch_size:
                self._buffers["scratch"] = GuardedBuffer(layout.scratch_size, torch.float32)
        else:
            self._buffers = {
                "weights": weights,
                "cache": GuardedBuffer(layout.cache.size, torch.bfloat16),
                "scratch": GuardedBuffer(layout.scratch_size, torch.float32),
                "state": GuardedBuffer(layout.state_size, torch.int32),
                "waits": GuardedBuffer(WAIT_WORDS * MAX_BLOCKS, torch.int32),
            }
        words = self._buffers["cache"].tensor.view(layout.cache.shape).view(torch.int16)
        self.cache = KvCache(words.numpy())
        self._rows = [
            Buffer(name, one.tensor.data_ptr(), one.bytes, name != "weights", one.tensor.dtype.itemsize)
            for name, one in self._buffers.items()
        ]
        shared = self._program.constant("shared_bytes")
        most = MOST_SHARED.get(arch, 227) << 10
        if shared > most:
            raise Refused(
                f"{self._source.name} needs {shared} B of shared memory a block, and sm_{arch} allows {most} B",
                "lower stages, tile or threads, or leave a variant out",
            )
        self._dynamic = shared if shared > STATIC_SHARED else 0

    def resume(self, state: torch.Tensor, unwritten: float = NOT_WRITTEN) -> None:
        fill_scratch(self._buffers["scratch"].tensor, self.layout, unwritten)
        self._buffers["waits"].tensor.zero_()
        self._buffers["state"].tensor.copy_(state)
        self._position = int(state[self.layout.state["position"].offset])

    def run(self, steps: int = 1, then: "PtxSession | None" = None) -> None:
        if then is not None:
            for _ in range(steps):
                self.run()
                then._launch("decode", 1)
            return
        self.layout.check_room(self._position, steps)
        self._position += steps
        if self._source.by_stage:
            for stage, layer in launches(self._source) * steps:
                self._launch(f"stage_{STAGES[stage]}", layer)
        else:
            most = self._source.tokens_per_launch
            for done in range(0, steps, most):
                self._launch("decode", min(steps - done, most))
        if self._buffers["waits"].tensor.any():
            raise Crashed(
                "the kernel wrote into the words of blocks that wait, and none gave up",
                "look for an index far outside a buffer",
            )

    def scratch(self) -> torch.Tensor:
        return self._buffers["scratch"].tensor.clone()

    def state(self) -> torch.Tensor:
        return self._buffers["state"].tensor.clone()

    def counts(self) -> Counts | None:
        return None

    def close(self) -> None:
        """Nothing: the buffers go with the session."""

    def _launch(self, name: str, last: int) -> None:
        """Run one kernel. last: its last argument, the tokens to decode or the layer of a stage."""
        kernel = self._program.kernel(name)
        pointers = [one.tensor.data_ptr() for one in self._buffers.values()]
        parameters = struct.pack("<5Qi", *pointers, last)
        options = Options(self._seed, self._options.strict, self._options.races, self._options.timeout)
        self._seed += 1
        threads = self._source.launched_threads
        ended = kernel.launch((self.blocks, 1, 1), (threads, 1, 1), parameters, self._rows, self._dynamic, options)
        self._raise_for(ended, kernel)

    def _raise_for(self, ended: Ended, kernel: PtxKernel) -> None:
        """Raise the error for what ended a launch; return if it finished."""
        if ended.status == machine.FINISHED:
            return
        report = with_lines(ended.report, kernel)
        first = report.partition("\n")[0]
        if ended.status == machine.DEADLOCKED:
            raise Hung(f"deadlock, no block can continue: {first}", "make all threads reach the same barriers", report)
        if ended.status == machine.TIMED_OUT:
            raise Hung(
                f"still running after {self._options.timeout:g} s: {first}",
                "look for an endless loop there, or raise device.timeout_s",
                report,
            )
        if ended.status == machine.TRAPPED:
            raise_if_barrier_timed_out(self._buffers["waits"].tensor, self.blocks)
            raise Crashed(f"the kernel trapped: {report}", "correct the access or the condition at that line")
        if ended.status == machine.RACED:
            raise Crashed(f"a data race: {report}", "order the two accesses, or make both strong")
        raise Crashed(f"the kernel faulted: {report}", "correct that line")


def with_lines(report: str, kernel: PtxKernel) -> str:
    """The report with a source line for each `{pc 12}`, and that of the stage's code that it was inlined into."""

    def place(found: re.Match[str]) -> str:
        here = kernel.line(int(found[1]))
        names = [_short(one.file) + f":{one.line}" for one in here.chain()]
        callers = [name for name in dict.fromkeys(names[1:]) if name.partition(":")[0] != names[0].partition(":")[0]]
        return names[0] + (f" (from {callers[0]})" if callers else "")

    return re.sub(r"\{pc (\d+)\}", place, report)


def _short(path: str) -> str:
    """`common/kernel/port.cuh` of an absolute path: NVRTC puts the folder where it runs before relative names."""
    from common import ROOT

    return path.removeprefix(f"{Path.cwd()}/").removeprefix(f"{ROOT}/")
