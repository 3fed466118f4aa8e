"""Loaded kernels of one text on a GPU."""

from collections.abc import Sequence
from typing import Any

from common.compile.source import Source
from common.errors import Refused
from common.model.layout import MAX_BLOCKS


class CudaProgram:
    """The loaded kernels, `decode` or one per stage, and their source. dynamic_shared: bytes for each launch."""

    def __init__(self, source: Source, kernels: Sequence[Any], dynamic_shared: int) -> None:
        self.source, self.kernels, self.dynamic_shared = source, kernels, dynamic_shared

    def blocks_per_sm(self, driver: Any) -> int:
        """Blocks that one SM can hold. driver: CuPy's."""
        pointer, threads = self.kernels[0].kernel.ptr, self.source.launched_threads
        return driver.occupancyMaxActiveBlocksPerMultiprocessor(pointer, threads, self.dynamic_shared)

    def refuse_oversize(self, blocks: int, per_sm: int, multiprocessors: int) -> None:
        """Raise Refused for a grid that cannot be co-resident: a block that waits for an absent one never ends."""
        threads, kernel = self.source.launched_threads, self.kernels[0]
        largest = MAX_BLOCKS if self.source.by_stage else min(per_sm * multiprocessors, MAX_BLOCKS)
        if not 1 <= blocks <= largest:
            raise Refused(
                f"a grid of {blocks} blocks of {threads} threads cannot be co-resident: {kernel.num_regs} registers a "
                f"thread and {kernel.shared_size_bytes + self.dynamic_shared} B of shared memory allow {per_sm} blocks "
                f"on each of {multiprocessors} SMs",
                f"use blocks={largest} or fewer" if largest else "use fewer threads",
            )
