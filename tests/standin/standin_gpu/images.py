"""Modules that the driver loads without their text: PTX, executed on the memory of the stand-in.

It finds no races there: those are `device=ptx`'s. A cubin cannot be executed.
"""

import ctypes
import math

from standin_gpu import cost, errors
from standin_gpu.compiling import Needs
from standin_gpu.device import BLOCK_THREADS, STATIC_SHARED
from standin_gpu.errors import CUDADriverError
from standin_gpu.executing import execute, program
from standin_gpu.machine import MACHINE, misuse
from standin_gpu.streams import Queue

from common.devices.ptx.program import Buffer
from common.errors import LabError

GRID = 2**31 - 1


class Image:
    """A loaded PTX module."""

    def __init__(self, image: bytes) -> None:
        if not image.lstrip().startswith((b"//", b".version")):
            raise misuse("the stand-in executes PTX, and no cubin: give it a .ptx")
        self._ptx = image.decode()
        try:
            program(self._ptx)
        except LabError:
            raise CUDADriverError(errors.INVALID_VALUE) from None

    def function(self, name: str) -> "PtxFunction":
        if name not in program(self._ptx).kernels:
            raise CUDADriverError(errors.NOT_FOUND)
        return PtxFunction(self._ptx, name)


class PtxFunction:
    """A kernel of an image, with what cupy.cuda.driver asks of one."""

    def __init__(self, ptx: str, name: str) -> None:
        self.name, self._ptx, self._parameters = name, ptx, program(ptx).kernels[name].parameters
        self.needs, self.dynamic_shared = Needs(32, program(ptx).shared(name), 0, ()), STATIC_SHARED

    def allow_shared(self, size: int) -> None:
        self.dynamic_shared = size

    def launch(self, grid: tuple[int, ...], block: tuple[int, ...], shared: int, pointers: int, on: Queue) -> None:
        """Queue a launch. pointers: address of the addresses of the parameters' values, which are read at once."""
        MACHINE.call(CUDADriverError, cost.LAUNCH_CALL)
        threads = math.prod(block)
        if not 0 < threads <= BLOCK_THREADS or not 0 < math.prod(grid) <= GRID or shared > self.dynamic_shared:
            raise CUDADriverError(errors.INVALID_VALUE)
        values = (ctypes.c_void_p * len(self._parameters)).from_address(pointers)
        given = bytearray(max((offset + size for offset, size in self._parameters.values()), default=0))
        for value, (offset, size) in zip(values, self._parameters.values(), strict=True):
            given[offset : offset + size] = ctypes.string_at(value, size)
        living = [buffer for buffer in MACHINE._buffers if not buffer.freed and buffer.size]
        buffers = [Buffer("memory", each.bytes.ctypes.data, each.size) for each in living]

        def act() -> float:
            return execute(self._ptx, on, self.name, grid, block, shared, bytes(given), buffers, threads)

        MACHINE.queue(on, self.name, [], living, act)
