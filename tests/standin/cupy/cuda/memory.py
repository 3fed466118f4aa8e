"""Stand-in for cupy.cuda.memory."""

from standin_gpu.machine import OutOfMemory


class OutOfMemoryError(OutOfMemory):
    """Allocation that the GPU's memory cannot hold."""

    def __init__(self, size: int, total: int, limit: int = 0) -> None:
        super().__init__(f"Out of memory allocating {size:,} bytes (allocated so far: {total:,} bytes).")
