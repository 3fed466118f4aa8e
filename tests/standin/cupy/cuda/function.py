"""Stand-in for cupy.cuda.function."""

from collections.abc import Mapping
from typing import Any

from cupy.cuda import driver
from cupy.cuda._streams import get_current_stream
from standin_gpu import errors
from standin_gpu.cython import typed
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
        launch(self._kernel, grid, block, args, shared_mem, on, enable_cooperative_groups)
