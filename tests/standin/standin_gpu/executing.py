"""Kernels, executed by the machine of the PTX device on the memory of the stand-in."""

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from standin_gpu import clock, cost, errors
from standin_gpu.compiling import cache_folder
from standin_gpu.machine import MACHINE
from standin_gpu.streams import Queue

from common.devices.ptx.library import library
from common.devices.ptx.program import Buffer, Machine, Options, PtxProgram
from common.devices.ptx.report import FAULTED, FINISHED, TRAPPED

ENDLESS_S = 30.0  # a launch that still runs after so many seconds never ends
PATIENCE = 1 << 18  # polls after which a wait never ends, unless the kernel itself has given up before
FAILURES = {TRAPPED: errors.LAUNCH_FAILED, FAULTED: errors.ILLEGAL_ADDRESS}
Size = tuple[int, int, int]


class Program:
    """The kernels of one module. Every launch has another order of warps and lanes."""

    def __init__(self, ptx: str) -> None:
        self._ptx, self._seed = PtxProgram(Machine(library(cache_folder())), ptx), 0
        self._prices: dict[tuple[str, int], np.ndarray] = {}

    def shared(self, kernel: str) -> int:
        """Bytes of static shared memory of a kernel, which is decoded, ahead of its first launch, and kept on disk."""
        return self._ptx.kernel(kernel).decoded.shared_bytes

    def launch(
        self,
        name: str,
        grid: Size,
        block: Size,
        shared: int,
        parameters: bytes,
        buffers: Sequence[Buffer],
        computing: int,
    ) -> tuple[int, float]:
        """Execute one launch: its `Status`, and its seconds. computing: threads of a block that meet at its barrier."""
        self._seed += 1
        kernel, blocks = self._ptx.kernel(name), int(np.prod(grid))
        options = Options(self._seed, timeout=ENDLESS_S, counts=True, patience=PATIENCE)
        ended = kernel.launch(grid, block, parameters, buffers, shared, options)
        names, executed = [buffer.name for buffer in buffers], ended.executed
        prices = self._prices.setdefault((name, blocks), np.full(executed.shape, np.nan))
        cost.find_prices(prices, executed, kernel, names, blocks, computing)
        return ended.status, cost.LAUNCH + float(np.nansum(prices * executed))


@cache
def program(ptx: str) -> Program:
    """Raises LabError for a text that is no PTX."""
    return Program(ptx)


def execute(ptx: str, on: Queue, *launch: Any) -> float:
    """Seconds of a launch, as `Program.launch` takes it; the next wait on its queue finds how it failed."""
    status, seconds = program(ptx).launch(*launch)
    if status in FAILURES:
        MACHINE.pending = FAILURES[status]
    elif status != FINISHED:
        on.endless = True
    clock.passed((clock.LONGER - 1) * seconds)
    return seconds
