"""Devices that execute kernels on the CPU: their copies of the weights, buffers, launches, and launch errors.

Each buffer lies between inaccessible pages (guarded.py), and the weights are read-only: an access outside, or a write
into the weights, ends the launch as Crashed with file, line and stage. Unwritten memory is NaN.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from common.compile.source import Source, launches
from common.devices.barrier_report import raise_if_barrier_timed_out
from common.devices.guarded import GuardedBuffer
from common.devices.kv_cache import KvCache
from common.devices.protocol import Session
from common.devices.unwritten import NOT_WRITTEN, fill_scratch
from common.errors import Crashed, Hung, Race, Refused
from common.model.layout import MAX_BLOCKS, WAIT_WORDS

BLOCKS = 8  # default grid: enough blocks for an uneven share of heads and rows
FINISHED, DEADLOCKED, TIMED_OUT, TRAPPED, CORRUPTED, FAULTED, RACED = range(7)  # `Status` of both executors


class CpuDevice:
    """A device with `CpuSession`s.

    cache: folder of compiled files. seed: of every order in the first launch of a session; each later launch uses the
    next seed. timeout: limit of one launch in seconds; a deadlock is detected without it.
    """

    buffer = GuardedBuffer  # the class of a session's buffers

    def __init__(self, cache: Path, seed: int = 0, timeout: float = 120.0) -> None:
        self.cache, self.seed, self.timeout = Path(cache), seed, timeout
        self._weights: tuple[torch.Tensor, GuardedBuffer] | None = None

    def session(
        self, program: Any, weights: torch.Tensor, blocks: int | None = None, beside: "CpuSession | None" = None
    ) -> Any:
        """As Device.session. All sessions with these weights share one copy of them."""
        blocks = BLOCKS * program.source.blocks_per_sm if blocks is None else blocks
        if not 1 <= blocks <= MAX_BLOCKS:
            raise Refused(f"blocks={blocks} is not in 1..{MAX_BLOCKS}", f"give blocks=N with N in 1..{MAX_BLOCKS}")
        if self._weights is None or self._weights[0] is not weights:
            guarded = self.buffer(program.source.layout.weights_size, torch.bfloat16, _at_end(self.seed))
            guarded.tensor.copy_(weights)
            guarded.freeze()
            self._weights = (weights, guarded)
        return self._open(self, program, self._weights[1], blocks, beside)

    def _open(self, *arguments: Any) -> "CpuSession":
        """A session. arguments: device, program, guarded weights, number of blocks, session beside it or None."""
        raise NotImplementedError


class CpuSession(Session):
    """One kernel and its buffers in the memory of this process; see common.devices.protocol.Session."""

    _buffers: dict[str, GuardedBuffer]

    def __init__(
        self, device: Any, program: Any, weights: GuardedBuffer, blocks: int, beside: "CpuSession | None" = None
    ) -> None:
        layout = self.layout = program.source.layout
        self.blocks = blocks
        self._source: Source = program.source
        self._seed, self._timeout = device.seed, device.timeout
        buffer = partial(type(weights), at_end=_at_end(device.seed))
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

    def resume(self, state: torch.Tensor, unwritten: float = NOT_WRITTEN) -> None:
        fill_scratch(self._buffers["scratch"].tensor, self.layout, unwritten)
        self._buffers["waits"].tensor.zero_()
        self._buffers["state"].tensor.copy_(state)

    def run(self, steps: int = 1, then: "CpuSession | None" = None) -> None:
        if then is not None:
            for _ in range(steps):
                self.run()
                then._run_launches([(0, 1)])
            return
        at = self.layout.state["position"].offset
        self.layout.check_room(int(self._buffers["state"].tensor[at]), steps)
        self._run_launches(launches(self._source, steps))

    def scratch(self) -> torch.Tensor:
        return self._buffers["scratch"].tensor.clone()

    def state(self) -> torch.Tensor:
        return self._buffers["state"].tensor.clone()

    def _run_launches(self, these: Sequence[tuple[int, int]]) -> None:
        """Run `these` launches one after another, and check the canaries.

        these: from `common.compile.source.launches`. Raises Hung, and Crashed for a trap or a write outside a buffer.
        """
        self._launch_all(these)
        if self._buffers["waits"].tensor.any():
            raise Crashed(
                "the kernel wrote into the wait words, although no wait timed out",
                "look for an index far outside a buffer",
            )
        for name, buffer in self._buffers.items():
            if not buffer.intact():
                raise Crashed(f"the kernel wrote outside the {name} buffer", "look for an index outside this buffer")

    def _launch_all(self, these: Sequence[tuple[int, int]]) -> None:
        """Run the launches."""
        raise NotImplementedError

    def _raise_for_status(self, status: int, report: str) -> None:
        """Raise the error of a status; return if the launch finished. report: with source lines."""
        first = report.partition("\n")[0]
        if status == DEADLOCKED:
            raise Hung(f"deadlock, no block can continue: {first}", "make all threads reach the same barriers", report)
        if status == TIMED_OUT:
            raise Hung(
                f"still running after {self._timeout:g} s: {first}",
                "look for an endless loop there, or raise device.timeout_s",
                report,
            )
        if status == TRAPPED:
            raise_if_barrier_timed_out(self._buffers["waits"].tensor, self.blocks)
            raise Crashed(f"the kernel trapped: {report}", "correct the access or the condition at that line")
        if status == CORRUPTED:
            raise Crashed(report, "look for an index outside the struct Shared")
        if status == FAULTED:
            raise Crashed(f"the kernel faulted: {report}", "correct that line")
        if status == RACED:
            raise Race(
                f"data race: {first}", "order the two accesses, by a barrier or a release and an acquire", report
            )


def _at_end(seed: int) -> bool:
    """True (even seeds) if the last byte of a buffer touches its inaccessible pages; else the first byte does."""
    return seed % 2 == 0
