"""Rate of reading memory by the bytes in flight on each SM, with one block on each; and the slowest SM's share.

These figures decide the window of a ring.
"""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from common.compile.nvrtc import options
from common.devices.cuda_memory import fill
from common.errors import Crashed
from common.lazy import cupy
from experiments.timing.bandwidth import affordable, seconds_of, text

KERNELS = Path(__file__).with_suffix(".cu")
PACKET, BATCH = 16, 4  # bytes of one load, loads under way of a thread
READ = 16 << 20  # bytes that each SM reads in a launch
RUNS = 5


@dataclass(frozen=True)
class Load:
    """Loads in flight on an SM: BATCH loads of each of `threads`, or `slots` bulk copies of `tile` bytes."""

    threads: int = 0
    slots: int = 0
    tile: int = PACKET

    @property
    def under_way(self) -> int:
        """Bytes of an SM."""
        return self.threads * BATCH * PACKET + self.slots * self.tile

    @property
    def name(self) -> str:
        copies = f"{self.slots} bulk copies of {self.tile:,} bytes"
        return copies if self.slots else f"{BATCH} loads of each of {self.threads} threads"


PLAIN = tuple(map(Load, (64, 128, 256, 512, 768)))
BULK = tuple(
    Load(slots=size // tile, tile=tile)
    for size, tile in (
        *((slots * 12288, 12288) for slots in (1, 2, 4, 8, 16)),
        *((49152, at) for at in (2048, 4096, 24576)),
    )
)


@dataclass(frozen=True)
class Sample:
    """One launch. rate: bytes a second; slowest: rate of the slowest SM, as a share of the median SM's."""

    rate: float
    slowest: float


class Window:
    """Data in the current GPU's memory, and kernels that read it. size: in bytes, at most half of it."""

    def __init__(self, size: int = 1 << 30) -> None:
        device = cupy.cuda.Device()
        self.blocks = int(device.attributes["MultiProcessorCount"])
        self._bulk = int(device.compute_capability) >= 90
        self._data = cupy.empty(affordable(size) // 4096 * 1024, cupy.uint32)
        fill(cupy.cuda.get_current_stream(), self._data, np.ones(1, np.uint32))

    @property
    def loads(self) -> tuple[Load, ...]:
        """Loads that this GPU can do."""
        return PLAIN + (BULK if self._bulk else ())

    def read(self, load: Load) -> Sample:
        """The sample of the median rate. Raises Crashed."""
        samples = [self._sample(load) for _ in range(RUNS + 1)][1:]
        return sorted(samples, key=lambda each: each.rate)[len(samples) // 2]

    def _sample(self, load: Load) -> Sample:
        ring = load.slots * load.tile
        loaded, clocks = (cupy.zeros(self.blocks, dtype=cupy.uint64) for _ in range(2))
        function = self._module.get_function("window_bulk" if ring else "window_plain")
        if ring:
            function.max_dynamic_shared_size_bytes = ring
        turns = READ // (load.tile if ring else load.under_way)
        shape = map(np.uint32, (turns, load.slots, load.tile) if ring else (turns, load.threads))
        arguments = (self._data, np.uint64(self._data.nbytes // load.tile), *shape, loaded, clocks)
        threads = 32 if ring else load.threads
        seconds = seconds_of(lambda: function((self.blocks,), (threads,), arguments, shared_mem=ring))
        words, expected = loaded.get().astype(float), turns * (load.tile if ring else load.under_way) / 4
        if (wrong := words[words != expected]).size:
            cause = f"{load.name}: {wrong[0]:,.0f} in place of {expected:,.0f}"
            raise Crashed(cause, "run it again; if the error repeats, test the GPU's memory")
        rates = words / clocks.get().astype(float)
        return Sample(rate=4 * float(words.sum()) / seconds, slowest=float(rates.min() / np.median(rates)))

    @cached_property
    def _module(self) -> Any:
        return cupy.RawModule(code=text(KERNELS), options=options())
