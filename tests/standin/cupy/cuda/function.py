"""Stand-in for cupy.cuda.function."""

import warnings
from collections.abc import Mapping
from math import prod
from typing import Any

from cupy.cuda import driver
from cupy.cuda._streams import get_current_stream
from standin_gpu import errors
from standin_gpu.cython import typed
from standin_gpu.device import MULTIPROCESSORS
from standin_gpu.errors import CUDADriverError
from standin_gpu.launching import Kernel, launch
from standin_gpu.machine import MACHINE


class Function:
    """A loaded kernel; `ptr` is its handle in calls of the driver."""

    @typed
    def __init__(self, module: Mapping[str, Kernel], funcname: str) -> None:
        MACHINE.call(CUDADriverError)
        if funcname not in module:
            raise CUDADriverError(errors.NOT_FOUND)
        self._kernel = module[funcname]
        self.ptr = driver._handle(self._kernel)

    @typed
    def __call__(
        self,
        grid: tuple,
        block: tuple,
        args: Any,
        shared_mem: int = 0,
        stream: Any = None,
        enable_cooperative_groups: bool = False,
    ) -> None:
        on = (stream or get_current_stream())._queue
        grid, block = (tuple(max(1, size) for size in (*given, 1, 1)[:3]) for given in (grid, block))
        if enable_cooperative_groups:
            grid = _shrunk(grid, self._kernel.occupancy(prod(block), shared_mem) * MULTIPROCESSORS)
        launch(self._kernel, grid, block, args, shared_mem, on)


def _shrunk(grid: tuple[int, int, int], most: int) -> tuple[int, int, int]:
    """The grid that CuPy launches in place of one that cannot be resident."""
    if prod(grid) <= most:
        return grid
    if grid[1:] != (1, 1):
        raise ValueError(f"The specified grid size ({' * '.join(map(str, grid))}) exceeds the limit ({most}).")
    warnings.warn(
        f"The grid size will be reduced from {grid[0]} to {most}, as the specified grid size exceeds the limit.",
        stacklevel=5,
    )
    return most, 1, 1
