"""The GPU of this process: its memory, its streams, and the error that ends its context."""

import time
from collections.abc import Callable, Sequence
from weakref import WeakSet

import numpy as np
from standin_gpu import clock, cost, device, errors, faults
from standin_gpu.errors import CUDARuntimeError, Misuse
from standin_gpu.streams import Order, Queue, Uses, Work, line

GUARD = 4096  # bytes on each side of a buffer
CANARY, FRESH = 0xA5, 0xFF  # of the guards; of memory that has not been written


class OutOfMemory(MemoryError):
    """Allocation that the GPU's memory cannot hold; cupy.cuda.memory has CuPy's class, which derives from this."""


class Buffer(Uses):
    """Memory of the GPU, or pinned memory of the host, between two guards."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size
        self._raw = np.full(GUARD + size + 16 + GUARD, CANARY, np.uint8)
        start = GUARD + -(self._raw.ctypes.data + GUARD) % 16
        self.bytes = self._raw[start : start + size]
        self.bytes[:] = FRESH
        self._ends = self._raw[:start], self._raw[start + size :]

    def intact(self) -> bool:
        return all(bool((end == CANARY).all()) for end in self._ends)


class Machine:
    """What all calls go through. failed: the sticky error; pending: the error that the next wait finds."""

    def __init__(self) -> None:
        self.order = Order()
        self.buffers: WeakSet[Buffer] = WeakSet()
        self.pinned: WeakSet[Buffer] = WeakSet()
        self.failed = self.pending = 0
        self.memory_gone = False
        self.worked = 0.0  # time.monotonic() of the latest work

    @property
    def free(self) -> int:
        return device.MEMORY - sum(buffer.size for buffer in self.buffers)

    def call(self, error: type[RuntimeError] = CUDARuntimeError, seconds: float = cost.CALL) -> None:
        """Every call of the API begins here. Raises the sticky error, as `error`."""
        clock.gpu_reached(self.order.now)
        if not self.failed and not self.pending and faults.lost():
            self.failed = errors.NO_DEVICE
        if self.failed:
            raise error(self.failed)
        self.order.now += seconds

    def allocate(self, size: int) -> Buffer:
        self.call()
        if self.memory_gone or size > self.free:
            raise OutOfMemory(size, device.MEMORY - self.free)
        buffer = Buffer(size)
        self.buffers.add(buffer)
        return buffer

    def allocate_pinned(self, size: int) -> Buffer:
        self.call()
        buffer = Buffer(size)
        self.pinned.add(buffer)
        return buffer

    def buffer_at(self, address: int) -> Buffer | None:
        """The living buffer, of either kind, that holds this address."""
        for buffer in (*self.pinned, *self.buffers):
            if buffer.bytes.ctypes.data <= address < buffer.bytes.ctypes.data + buffer.size:
                return buffer
        return None

    def queue(
        self, on: Queue, what: str, reads: Sequence[Uses], writes: Sequence[Uses], act: Callable[[], float]
    ) -> None:
        """Queue one piece of work, or record it into the graph that the stream captures."""
        work = Work(what, reads, writes, act, line())
        if on.captured is not None:
            on.captured.append(work)
        else:
            self.worked = time.monotonic()
            self.order.execute(on, work)

    def wait(self, on: Queue, error: type[RuntimeError] = CUDARuntimeError) -> None:
        """Wait for all work of a stream. Raises the error of work that has failed, and then sticks to it."""
        self.call(error)
        if on.captured is not None:
            raise error(errors.CAPTURE_UNSUPPORTED)
        if on.endless:
            faults.block_in_c()
        self.order.finished(on)
        self.surface(error)

    def surface(self, error: type[RuntimeError] = CUDARuntimeError) -> None:
        if self.pending:
            self.failed = self.pending
            raise error(self.failed)

    def done(self, on: Queue) -> bool:
        """Answer to a query; time passes with each, as with every call."""
        self.call()
        if on.endless or on.ready > self.order.now:
            return False
        self.order.finished(on)
        self.surface()
        return True


MACHINE = Machine()


def misuse(text: str) -> Misuse:
    return Misuse(f"{line()}: {text}")
