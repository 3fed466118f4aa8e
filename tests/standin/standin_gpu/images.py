"""Modules that the driver loads without their text: PTX, executed by the PTX device on the memory of the stand-in.

It finds neither races nor undefined values there: those are `device=ptx`'s. A cubin cannot be executed.
"""

import ctypes
import math

from standin_gpu import cost, errors
from standin_gpu.compiling import Needs
from standin_gpu.device import BLOCK_THREADS, STATIC_SHARED
from standin_gpu.errors import CUDADriverError
from standin_gpu.executing import machine
from standin_gpu.machine import MACHINE, misuse
from standin_gpu.streams import Queue

from common.devices.cpu import FINISHED, TIMED_OUT
from common.devices.ptx.program import Buffer, Options, PtxProgram
from common.errors import LabError

ENDLESS_S = 1.0  # a launch that still runs then never ends
GRID = 2**31 - 1


class Image:
    """A loaded PTX module."""

    def __init__(self, image: bytes) -> None:
        if not image.lstrip().startswith((b"//", b".version")):
            raise misuse("the stand-in executes PTX, and no cubin: give it a .ptx")
        try:
            self._program = PtxProgram(machine(), image.decode())
        except LabError:
            raise CUDADriverError(errors.INVALID_VALUE) from None

    def function(self, name: str) -> "PtxFunction":
        if name not in self._program.module.kernels:
            raise CUDADriverError(errors.NOT_FOUND)
        return PtxFunction(self._program, name)


class PtxFunction:
    """A kernel of an image, with what cupy.cuda.driver asks of one."""

    def __init__(self, program: PtxProgram, name: str) -> None:
        self.name, self._kernel = name, program.kernel(name)
        self._parameters = program.module.kernels[name].parameters
        self.needs, self.dynamic_shared = Needs(32, self._kernel.decoded.shared_bytes, 0, ()), STATIC_SHARED
        self.max_threads = BLOCK_THREADS

    def allow_shared(self, size: int) -> None:
        self.dynamic_shared = size

    def launch(self, grid: tuple[int, ...], block: tuple[int, ...], shared: int, pointers: int, on: Queue) -> None:
        """Queue a launch. pointers: address of the addresses of the parameters' values, which are read at once."""
        MACHINE.call(CUDADriverError, cost.LAUNCH_CALL)
        if not 0 < math.prod(block) <= BLOCK_THREADS or not 0 < math.prod(grid) <= GRID or shared > self.dynamic_shared:
            raise CUDADriverError(errors.INVALID_VALUE)
        values = (ctypes.c_void_p * len(self._parameters)).from_address(pointers)
        last = max((offset + size for offset, size in self._parameters.values()), default=0)
        given = bytearray(last)
        for value, (offset, size) in zip(values, self._parameters.values(), strict=True):
            given[offset : offset + size] = ctypes.string_at(value, size)
        living = [buffer for buffer in MACHINE._buffers if not buffer.freed and buffer.size]
        buffers = [Buffer("memory", each.bytes.ctypes.data, each.size) for each in living]

        def act() -> float:
            options = Options(MACHINE.order.clock.get(on.number, 0), strict=False, timeout=ENDLESS_S)
            status = self._kernel.launch(grid, block, bytes(given), buffers, shared, options).status
            if status == TIMED_OUT:
                on.endless = True
            elif status != FINISHED:
                MACHINE.pending = errors.ILLEGAL_ADDRESS
            return cost.probed(sum(buffer.size for buffer in living))

        MACHINE.queue(on, self.name, [], living, act, CUDADriverError)
