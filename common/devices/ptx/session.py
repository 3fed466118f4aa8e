"""One kernel and its buffers on the PTX device: its launches, their counts, and their errors.

Each buffer lies between inaccessible pages (guarded.py), and the weights are read-only: an access outside, or a write
into the weights, ends the launch as Crashed with file, line and stage. Unwritten memory is NaN.
"""

import struct
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch

from common.compile.source import Source, launches
from common.compile.target import STATIC_SHARED, shared_bytes
from common.devices.barrier_report import raise_if_barrier_timed_out
from common.devices.counters import FIELDS, Counts
from common.devices.guarded import GuardedBuffer
from common.devices.kv_cache import KvCache
from common.devices.protocol import Session
from common.devices.ptx.counted import counted, exchanges
from common.devices.ptx.program import Buffer, Options, PtxKernel, PtxProgram
from common.devices.ptx.report import DEADLOCKED, FAULTED, FINISHED, RACED, TIMED_OUT, TRAPPED, with_lines
from common.devices.unwritten import NOT_WRITTEN, fill_scratch
from common.errors import Crashed, Hung, LabError, Race
from common.model.layout import MAX_BLOCKS, NOT_SENT, WAIT_WORDS
from common.model.stages import LAYER, STAGES

if TYPE_CHECKING:
    from common.devices.ptx.device import PtxDevice

ERRORS: dict[int, tuple[type[LabError], str, str]] = {  # by status: error, cause and remedy
    DEADLOCKED: (Hung, "deadlock, no block can continue: {first}", "make all threads reach the same barriers"),
    TIMED_OUT: (
        Hung,
        "still running after {timeout:g} s: {first}",
        "look for an endless loop there, or raise device.timeout_s",
    ),
    TRAPPED: (Crashed, "the kernel trapped: {report}", "correct the access or the condition at that line"),
    FAULTED: (Crashed, "the kernel faulted: {report}", "correct that line"),
    RACED: (Race, "data race: {first}", "order the two accesses, by a barrier or a release and an acquire"),
}


@dataclass(frozen=True)
class CompiledPtx:
    """A decoded module and its source."""

    source: Source
    program: PtxProgram


class PtxSession(Session):
    """One kernel and its buffers in the memory of this process; see common.devices.protocol.Session."""

    _buffers: dict[str, GuardedBuffer]

    def __init__(
        self,
        device: "PtxDevice",
        program: CompiledPtx,
        weights: GuardedBuffer,
        blocks: int,
        beside: "PtxSession | None" = None,
    ) -> None:
        layout = self.layout = program.source.layout
        self.blocks = blocks
        self._source, self._program = program.source, program.program
        self._seed, self._timeout, self._races, self._counting = device.seed, device.timeout, device.races, False
        self.executed: dict[str, Counter[str]] = {}  # what `count` counted last, by `counted`
        buffer = partial(type(weights), at_end=at_end(device.seed))
        if beside:
            self._buffers = dict(beside._buffers)
            if beside.layout.scratch_size < layout.scratch_size:
                self._buffers["scratch"] = buffer(layout.scratch_size, torch.float32)
        else:
            self._buffers = {
                "weights": weights,
                "cache": buffer(layout.cache.size, torch.bfloat16),
                "scratch": buffer(layout.scratch_size, torch.float32),
                "state": buffer(layout.state_size, torch.int32),
                "waits": buffer(WAIT_WORDS * MAX_BLOCKS, torch.int32),
            }
        words = self._buffers["cache"].tensor.view(layout.cache.stored).view(torch.int16)
        self.cache = KvCache(words.numpy())
        self._rows = [
            Buffer(name, one.tensor.data_ptr(), one.bytes, name != "weights") for name, one in self._buffers.items()
        ]
        shared = self._program.constant("shared_bytes")
        self._source.refuse_shared(shared, shared_bytes(device.arch), f"sm_{device.arch}")
        self._dynamic = shared if shared > STATIC_SHARED else 0

    def resume(self, state: torch.Tensor, unwritten: float = NOT_WRITTEN) -> None:
        fill_scratch(self._buffers["scratch"].tensor, self.layout, unwritten)
        self._buffers["waits"].tensor.zero_()
        self._buffers["state"].tensor.copy_(state)

    def run(self, steps: int = 1, then: "PtxSession | None" = None) -> None:
        if then is not None:
            for _ in range(steps):
                self.run()
                then._run_launches([(0, 1)])
            return
        at = self.layout.state["position"].offset
        self.layout.check_room(int(self._buffers["state"].tensor[at]), steps)
        self._run_launches(launches(self._source, steps))

    def count(self, steps: int = 1) -> Counts:
        self._counting = True
        try:
            self.run(steps)
        finally:
            self._counting = False
        by_stage = [self.executed.get(stage, Counter()) for stage in STAGES]
        by_stage[0] = by_stage[0] + self.executed.get("", Counter())  # what a kernel does before its first stage
        for stage, counts in zip(STAGES, by_stage, strict=True):
            counts.update(exchanges(counts, steps * (self.layout.model.layers if stage in LAYER else 1)))
        found = ({field: counts[field] for field in FIELDS if counts[field]} for counts in by_stage)
        return Counts({stage: counts for stage, counts in zip(STAGES, found, strict=True) if counts})

    def scratch(self) -> torch.Tensor:
        return self._buffers["scratch"].tensor.clone()

    def state(self) -> torch.Tensor:
        return self._buffers["state"].tensor.clone()

    def _run_launches(self, these: Sequence[tuple[int, int]]) -> None:
        """Run `these` launches, from `common.compile.source.launches`, one after another, and check the canaries.

        Raises Hung, and Crashed for a trap or a write outside a buffer.
        """
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
            status = ended.status or (FAULTED if ended.report else FINISHED)  # a kernel here has no notes
            if status != FINISHED:
                self._raise(status, with_lines(ended.report, kernel))
            if ended.executed is not None:
                self._add(kernel, ended.executed)
        if self._buffers["waits"].tensor.any():
            raise Crashed(
                "the kernel wrote into the wait words, although no wait timed out",
                "look for an index far outside a buffer",
            )
        for name, buffer in self._buffers.items():
            if not buffer.intact():
                raise Crashed(f"the kernel wrote outside the {name} buffer", "look for an index outside this buffer")

    def _add(self, kernel: PtxKernel, executed: np.ndarray) -> None:
        """Add a launch's counts. executed: as in Ended."""
        sizes = self.blocks, self._source.threads
        for stage, counts in counted(kernel.rows(), executed, list(self._buffers), *sizes).items():
            self.executed.setdefault(stage, Counter()).update(counts)

    def _raise(self, status: int, report: str) -> None:
        """Raise the error of a status. report: with source lines."""
        if status == TRAPPED:
            raise_if_barrier_timed_out(self._buffers["waits"].tensor, self.blocks)
        kind, cause, remedy = ERRORS[status]
        first = report.partition("\n")[0]
        raise kind(cause.format(first=first, report=report, timeout=self._timeout), remedy, report)


def at_end(seed: int) -> bool:
    """True (even seeds) if the last byte of a buffer touches its inaccessible pages; else the first byte does."""
    return seed % 2 == 0
