"""Read bandwidth of this GPU's memory, by each way to read that it has, measured in the run that needs it.

Decoding reads almost only, so the fastest way to read is its ceiling. A copy also writes: the wrong ceiling.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from common.compile.nvrtc import options
from common.compile.source import flatten
from common.errors import Crashed
from common.lazy import cupy

KERNELS = Path(__file__).with_suffix(".cu")
TILE = 8192  # bytes of one bulk copy, as in the kernels
THREADS = 256
SAMPLE = 0.02  # seconds that one launch lasts at least
WARM_UP = 25  # launches of that length before the first sample: half a second, in which the clocks settle
RUNS = 20  # samples


@dataclass(frozen=True)
class Way:
    """One way to read. kernel: its name; unit: bytes of one load or copy; min_arch: the first arch that has it."""

    name: str
    kernel: str
    unit: int
    blocks_per_sm: int
    min_arch: int


WAYS = (Way("128-bit loads", "read_all", 16, 8, 0), Way("bulk copies", "read_bulk", TILE, 4, 90))


@dataclass(frozen=True)
class Ceiling:
    """Bandwidth of one way: `best`, bytes per second of the fastest sample.

    way               how memory was read
    size              bytes of the data, which is read several times in each sample
    last_level_cache  bytes of the GPU's L2
    """

    way: str
    best: float
    size: int
    last_level_cache: int


def text(file: Path) -> str:
    """The kernels of `file` with the headers of the decode kernels that it includes, which need a block's size."""
    return "\n".join([f"constexpr int block_threads = {THREADS}, loader_warps = 0;", *flatten(file, set()), ""])


def read_ceiling() -> Ceiling:
    """The fastest way to read on the current GPU. Raises Crashed."""
    return max(Memory().read(), key=lambda found: found.best)


class Memory:
    """Data in the current GPU's memory, and kernels that go over it. size: bytes, at most half of the free memory."""

    def __init__(self, size: int = 2 << 30) -> None:
        self._device = cupy.cuda.Device()
        cupy.get_default_memory_pool().free_all_blocks()  # memory that CuPy's pool keeps for reuse counts as free, too
        tiles = min(size, self._device.mem_info[0] // 2) // TILE
        self._data = cupy.empty(tiles * (TILE // 4), cupy.uint32)
        self._seconds("number_all", 8, (self._data, np.uint64(self._data.size)))

    def read(self) -> Iterator[Ceiling]:
        """One ceiling for each way that this GPU has. Raises Crashed."""
        for way in WAYS:
            if int(self._device.compute_capability) >= way.min_arch:
                best = self._data.nbytes / min(settled(partial(self._read, way)))
                yield Ceiling(way.name, best, self._data.nbytes, self._device.attributes["L2CacheSize"])

    def _read(self, way: Way, passes: int) -> float:
        """Seconds of one launch. The xor over all words is checked: a load that was left out is noticed."""
        data, result = self._data, cupy.zeros(1, dtype=cupy.uint32)
        arguments = data, np.uint64(data.nbytes // way.unit), np.uint32(passes), result
        seconds = self._seconds(way.kernel, way.blocks_per_sm, arguments)
        if int(result[0]) != data.size:  # 1 ^ 2 ^ ... ^ n is n where 4 divides n, and so is an odd number of them
            raise Crashed(
                f"reading by {way.name} computed the xor {int(result[0]):#x}, not {data.size:#x}",
                "run it again; if the error repeats, test the GPU's memory",
            )
        return seconds

    @cached_property
    def _module(self) -> Any:
        return cupy.RawModule(code=text(KERNELS), options=options())

    def _seconds(self, kernel: str, blocks_per_sm: int, arguments: tuple[Any, ...]) -> float:
        """Seconds of a launch on the current stream."""
        function = self._module.get_function(kernel)
        blocks = self._device.attributes["MultiProcessorCount"] * blocks_per_sm
        start, stop = cupy.cuda.Event(), cupy.cuda.Event()
        start.record()
        function((blocks,), (THREADS,), arguments)
        stop.record()
        stop.synchronize()
        return cupy.cuda.get_elapsed_time(start, stop) / 1e3


def settled(launch: Callable[[int], float]) -> list[float]:
    """Seconds of one pass in each of RUNS long launches, after a warm-up of long launches.

    launch(passes): seconds of one launch of an odd number of passes. The first launch also loads the kernel.
    """
    launch(1)
    passes = _passes(launch(1))
    for _ in range(WARM_UP):
        latest = launch(passes) / passes
    passes = _passes(latest)
    return [launch(passes) / passes for _ in range(RUNS)]


def _passes(seconds: float) -> int:
    """The odd number of passes of `seconds` each that lasts at least SAMPLE."""
    return math.ceil(SAMPLE / seconds) | 1
