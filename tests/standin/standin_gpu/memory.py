"""Memory: buffers, and CuPy's pool of them, which gives freed memory away at once."""

import sys
from collections import Counter, defaultdict
from collections.abc import Callable
from functools import partial

import numpy as np
from standin_gpu.streams import Clock, Past, Uses, line

FRESH = 0xFF  # memory that has not been written
ALIGNED = 256  # addresses of buffers
UNIT = 512  # bytes to which the pool rounds up


class OutOfMemory(MemoryError):
    """Allocation that the GPU's memory cannot hold; cupy.cuda.memory has CuPy's class, which derives from this."""


class Buffer(Uses):
    """Memory of the GPU, or pinned memory of the host. end: the address behind it."""

    def __init__(self, size: int, past: tuple[Past, ...] = ()) -> None:
        super().__init__(past)
        self.size = size
        whole = np.full(size + ALIGNED, FRESH, np.uint8)
        start = -whole.ctypes.data % ALIGNED
        self.bytes = whole[start : start + size]
        self.end = self.bytes.ctypes.data + size


class Owner:
    """The arrays' share of a buffer, which is freed with its owner. Queued work and graphs have none, as in CUDA."""

    def __init__(self, buffer: Buffer, free: Callable[[Buffer], None] = lambda buffer: None) -> None:
        self.buffer, self._free = buffer, free

    def __del__(self, ending: Callable[[], bool] = sys.is_finalizing) -> None:
        if not ending():
            self.buffer.freed = line()
            self._free(self.buffer)


class Pool:
    """Memory of the GPU by the stream that was current at its allocation, its arena; or pinned memory, which has one.

    Freed memory goes back to its arena, which may give it to its next allocations at once, whatever other streams still
    do with it. Which of them are depends on sizes in CuPy; here each inherits all uses that may not be finished.
    """

    def __init__(self, size: int, host: Clock) -> None:
        self._size, self._host = size, host
        self._reserved: Counter[int] = Counter()
        self._used: Counter[int] = Counter()
        self._past: dict[int, list[Past]] = defaultdict(list)

    @property
    def reserved(self) -> int:
        """Bytes that the pool has of the GPU, in use or not."""
        return self._reserved.total()

    def allocate(self, size: int, arena: int = 0) -> Owner:
        """Raises OutOfMemory. arena: number of the current stream."""
        rounded = -(-size // UNIT) * UNIT
        if self._reserved[arena] - self._used[arena] < rounded:
            self._malloc(rounded, arena)
        self._used[arena] += rounded
        self._past[arena] = [past for past in self._past[arena] if not past.use.before(self._host)]
        return Owner(Buffer(size, tuple(self._past[arena])), partial(self._freed, rounded, arena))

    def give_back(self) -> None:
        """Keep only what is in use."""
        self._reserved = self._used.copy()

    def _malloc(self, size: int, arena: int) -> None:
        if self.reserved + size > self._size:
            self.give_back()  # as CuPy does, before it tries again
        if self.reserved + size > self._size:
            raise OutOfMemory(size, self.reserved)
        self._reserved[arena] += size

    def _freed(self, size: int, arena: int, buffer: Buffer) -> None:
        self._used[arena] -= size
        self._past[arena] += [Past(use, buffer.freed) for use in buffer.uses if not use.before(self._host)]
