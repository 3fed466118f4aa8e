"""The GPU of this process: its memory, its streams, and the error that ends its context."""

import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from weakref import WeakSet

from standin_gpu import clock, cost, device, errors, faults
from standin_gpu.errors import CUDARuntimeError, Misuse
from standin_gpu.memory import Buffer, OutOfMemory, Owner, Pool
from standin_gpu.streams import Order, Queue, Use, Uses, Work, line

HOST = -1  # in place of the number of a stream
PINNED = 1 << 30  # bytes of pinned memory


class Machine:
    """Gate of all calls. failed: the sticky error; pending: the error that the next wait finds."""

    def __init__(self) -> None:
        self.order = Order()
        self._pool = Pool(device.MEMORY, self.order.clock)
        self._pinned = Pool(PINNED, self.order.clock)
        self._buffers: WeakSet[Buffer] = WeakSet()
        self.failed = self.pending = 0
        self.memory_gone = False
        self.worked = 0.0  # time.monotonic() of the latest work
        self._context = -1

    @property
    def free(self) -> int:
        """Bytes that cudaMemGetInfo reports: without bytes kept by CuPy's pool."""
        return device.MEMORY - self._pool.reserved

    def call(self, error: type[RuntimeError] = CUDARuntimeError, seconds: float = cost.CALL) -> None:
        """Every call of the API begins here. Raises the sticky error, as `error`."""
        clock.gpu_reached(self.order.now)
        if self._context < 0:
            self._context = os.memfd_create(device.context())  # NVML lists the processes that hold one open
        if not self.failed and not self.pending and faults.lost():
            self.failed = errors.NO_DEVICE
        if self.failed:
            raise error(self.failed)
        self.order.now += seconds

    def allocate(self, size: int, on: Queue) -> Owner:
        """Memory of CuPy's pool. on: the current stream."""
        self.call()
        if self.memory_gone:
            raise OutOfMemory(size, self._pool.reserved)
        return self._known(self._pool.allocate(size, on.number))

    def give_back(self) -> None:
        """Give the GPU the memory of CuPy's pool that is not in use."""
        self._pool.give_back()

    def load(self, size: int) -> Owner:
        """Memory of a module."""
        return self._known(Owner(Buffer(size)))

    def allocate_pinned(self, size: int) -> Owner:
        """Pinned memory of the host, which writes it at once."""
        self.call()
        owner = self._pinned.allocate(size)
        owner.buffer.use(Use(HOST, 0, "the host", line()), self.order.clock, writes=True)
        return self._known(owner)

    def _known(self, owner: Owner) -> Owner:
        self._buffers.add(owner.buffer)
        return owner

    def buffer_at(self, address: int) -> Buffer | None:
        """The living buffer, of any kind, that holds this address."""
        for buffer in self._buffers:
            if not buffer.freed and buffer.end - buffer.size <= address < buffer.end:
                return buffer
        return None

    def queue(
        self, on: Queue, what: str, reads: Sequence[Uses], writes: Sequence[Uses], act: Callable[[], float]
    ) -> None:
        """Queue one piece of work, or record it into the graph that the stream captures.

        act: may use what is in memory, but own none of it.
        """
        work = Work(what, reads, writes, act, line())
        if on.capture is not None:
            on.capture.append(work)
        else:
            self.worked = time.monotonic()
            self.order.execute(on, work)

    def refuse_captured(self, on: Queue, what: str) -> None:
        """Refuse a call that breaks a capture, or is no part of its graph: `what` is none of the lab's."""
        if on.capture is not None:
            raise misuse(f"{what} in a capture")

    def wait(self, on: Queue) -> None:
        """Wait for all work of a stream. Raises the error of work that has failed, and then sticks to it."""
        self.call()
        self.refuse_captured(on, "a wait")
        if on.endless:
            faults.block_in_c()
        self.order.finished(on)
        self.surface()

    def surface(self) -> None:
        if self.pending:
            self.failed = self.pending
            raise CUDARuntimeError(self.failed)

    def done(self, on: Queue) -> bool:
        """Answer to a query; CuPy's is no for any error. Time passes with each, as with every call."""
        self.refuse_captured(on, "a query")
        with suppress(CUDARuntimeError):
            self.call()
            if not on.endless and on.ready <= self.order.now:
                self.order.finished(on)
                self.surface()
                return True
        return False


MACHINE = Machine()


def misuse(text: str) -> Misuse:
    return Misuse(f"{line()}: {text}")
