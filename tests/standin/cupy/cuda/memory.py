"""Stand-in for cupy.cuda.memory."""

from typing import Any

from standin_gpu.machine import MACHINE
from standin_gpu.memory import OutOfMemory


class MemoryPool:
    """The one pool, of all streams."""

    def __init__(self, allocator: Any = None) -> None:
        if allocator is not None:
            raise NotImplementedError("the stand-in has one pool, of cudaMalloc")

    def free_all_blocks(self, stream: Any = None) -> None:
        MACHINE.call()
        MACHINE.give_back()


class OutOfMemoryError(OutOfMemory):
    """Allocation that the GPU's memory cannot hold."""

    def __init__(self, size: int, total: int, limit: int = 0) -> None:
        super().__init__(f"Out of memory allocating {size:,} bytes (allocated so far: {total:,} bytes).")
