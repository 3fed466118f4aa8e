"""Exchanges between all SMs while memory is read, with a given number of bytes under way on each SM.

What a design of exchanges by value rests on: the latency of an exchange alone and under load, the rate of reading by
what is under way, and the slowest SM beside the median one. All kernels have one block on each SM.
"""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from common.compile.nvrtc import options
from common.devices.cuda_memory import fill
from common.errors import Crashed
from experiments.timing.bandwidth import affordable, seconds_of

KERNELS = Path(__file__).with_suffix(".cu")
PAUSE = 32  # nanoseconds between two polls of the kernels, by barrier.cuh
WORDS, READERS = 1024, 256  # words that are exchanged, threads that exchange
PACKET, BATCH = 16, 4  # bytes of one load, loads under way of a thread
ROUNDS = 1000  # exchanges in a launch
READ = 16 << 20  # bytes that each SM reads in a launch without exchanges
FOR_EVER = 2**32 - 1  # turns of the loaders: they end with the exchanges
RUNS = 5


def text(pause: int = PAUSE) -> str:
    """The kernels with `pause` nanoseconds between two polls of an exchange."""
    return f'#define PAUSE {pause}\n#line 1 "experiments/timing/{KERNELS.name}"\n{KERNELS.read_text()}'


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
        loads = [f"{BATCH} loads of each of {self.threads} threads"] if self.threads else []
        copies = [f"{self.slots} bulk copies of {self.tile:,} bytes"] if self.slots else []
        return (loads + copies + ["nothing"])[0]


NOTHING = Load()
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
    """One launch. round_s: of an exchange; rate: bytes a second; slowest: rate of the slowest SM, of the median's."""

    round_s: float
    rate: float
    slowest: float


class Exchange:
    """Data in the current GPU's memory, and kernels that read it and exchange.

    size: in bytes, at most half of it. pause: as of `text`.
    """

    def __init__(self, size: int = 1 << 30, pause: int = PAUSE) -> None:
        import cupy

        self.pause, self._cupy, device = pause, cupy, cupy.cuda.Device()
        self.blocks = int(device.attributes["MultiProcessorCount"])
        self._bulk = int(device.compute_capability) >= 90
        self._data = cupy.empty(affordable(size) // 4096 * 1024, cupy.uint32)
        fill(cupy.cuda.get_current_stream(), self._data, np.ones(1, np.uint32))

    @property
    def loads(self) -> tuple[Load, ...]:
        """The exchanges that this GPU can do."""
        return PLAIN + (BULK if self._bulk else ())

    def under(self, load: Load) -> Sample:
        """Exchanges beside `load`. Raises Crashed."""
        return _median([self._sample(load, ROUNDS, FOR_EVER) for _ in range(RUNS + 1)][1:])

    def read(self, load: Load) -> Sample:
        """`load` without exchanges. Raises Crashed."""
        turns = READ // (load.tile if load.slots else load.under_way)
        return _median([self._sample(load, 0, turns) for _ in range(RUNS + 1)][1:])

    def adds(self) -> float:
        """Seconds in which every block adds to each of WORDS counters once. Raises Crashed."""
        counters = self._cupy.zeros(WORDS, dtype=self._cupy.uint64)
        function = self._module.get_function("counted_adds")
        found = []
        for run in range(1, RUNS + 2):
            found.append(seconds_of(lambda: function((self.blocks,), (READERS,), (counters, np.uint32(ROUNDS)))))
            self._check("counted adds", counters.get(), run * ROUNDS * self.blocks)
        return float(np.median(found[1:])) / ROUNDS

    def _sample(self, load: Load, rounds: int, most: int) -> Sample:
        zeros, cupy = self._cupy.zeros, self._cupy
        mail, loaded = zeros(WORDS, dtype=cupy.uint32), zeros(self.blocks, dtype=cupy.uint64)
        clocks = zeros(self.blocks, dtype=cupy.uint64)
        function = self._module.get_function("exchange_bulk" if load.slots else "exchange_plain")
        ring = load.slots * load.tile
        if ring:
            function.max_dynamic_shared_size_bytes = ring
        count = self._data.nbytes // load.tile
        shape = map(np.uint32, (load.slots, load.tile) if ring else (load.threads,))
        threads = READERS + (32 if ring else load.threads)
        arguments = (mail, np.uint32(rounds), self._data, np.uint64(count), np.uint32(most), *shape, loaded, clocks)
        seconds = seconds_of(lambda: function((self.blocks,), (threads,), arguments, shared_mem=ring))
        self._check(f"exchange beside {load.name}", mail.get(), rounds)
        words, cycles = loaded.get().astype(float), clocks.get().astype(float)
        if not rounds:
            self._check(load.name, words, most * (load.tile if ring else load.under_way) / 4)
        rates = words / cycles if load.under_way else np.ones(self.blocks)
        return Sample(
            round_s=seconds / rounds if rounds else 0.0,
            rate=4 * float(words.sum()) / seconds,
            slowest=float(rates.min() / np.median(rates)),
        )

    def _check(self, what: str, found: np.ndarray, expected: float) -> None:
        if not (found == expected).all():
            cause = f"{what}: {found[found != expected][0]:,.0f} in place of {expected:,.0f}"
            raise Crashed(cause, "run it again; if the error repeats, test the GPU's memory")

    @cached_property
    def _module(self) -> Any:
        return self._cupy.RawModule(code=text(self.pause), options=options(), enable_cooperative_groups=True)


def _median(samples: list[Sample]) -> Sample:
    """The sample of the median duration: of an exchange, or of the reading."""
    return sorted(samples, key=lambda each: (each.round_s, -each.rate))[len(samples) // 2]
