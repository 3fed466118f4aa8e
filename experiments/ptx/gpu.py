"""One launch of a kernel on a GPU, by CuPy, and its time."""

import ctypes
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from common.config.device_choice import find_gpu
from common.devices.hold import Hold
from common.devices.ptx.text import Kernel
from common.errors import Refused
from experiments.ptx.arguments import Given
from experiments.ptx.kernels import Text
from experiments.ptx.launch import Launch, Outcome

REPEATS = 21  # timed launches, each of arrays as they were before the first; their median is the time
STATIC_SHARED = 48 << 10  # bytes; beyond it a kernel must be allowed its dynamic shared memory
POLL_S = 0.001
GRID_BARRIER = "%envreg"  # in the PTX of a kernel that waits for its whole grid
NOT_READY = 600  # cudaErrorNotReady
UNENDED = list[Any]()  # what a kernel without an end may use: freeing it would wait for that end


class Gpu:
    """The device cuda: the first GPU. arch: its own; title: its name, for the line of a result."""

    def __init__(self) -> None:
        self.title = f", {find_gpu()}"
        import cupy

        self._cupy, self._hold = cupy, Hold(cupy)
        self.arch = f"sm_{cupy.cuda.Device(0).compute_capability}"

    def run(self, text: Text, ptx: str, parsed: Kernel, given: Given, launch: Launch) -> Outcome:
        """Run a kernel to its end, then time it. Raises CompileError, and Refused for sizes that the GPU has not."""
        cuda = self._cupy.cuda
        errors = (cuda.runtime.CUDARuntimeError, cuda.driver.CUDADriverError)
        everything = frozenset(one.name for one in given.arrays if not one.points_to)
        stream = cuda.Stream(non_blocking=True)
        try:
            module = cuda.function.Module()
            module.load(text.image())
            function = module.get_function(parsed.name)
            if launch.shared > STATIC_SHARED:
                attribute = cuda.driver.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
                cuda.driver.funcSetAttribute(function.ptr, attribute, launch.shared)
        except errors as error:
            raise Refused(f"the driver does not load {parsed.name}: {error}", "check arch, and shared") from None
        with stream:
            arrays = [self._cupy.empty(one.bits.nbytes, self._cupy.uint8) for one in given.arrays]
            first = [self._cupy.empty(one.bits.nbytes, self._cupy.uint8) for one in given.arrays]
        addresses = {one.name: array.data.ptr for one, array in zip(given.arrays, arrays, strict=True)}
        values = ctypes.create_string_buffer(given.placed(addresses, parsed), max(1, parsed.parameter_bytes))
        offsets = [offset for offset, _ in parsed.parameters.values()]
        pointers = (ctypes.c_void_p * max(1, len(offsets)))(*(ctypes.addressof(values) + each for each in offsets))
        for one, *copies in zip(given.arrays, arrays, first, strict=True):
            for array in copies:
                array.set(one.bits.reshape(-1).view("uint8"), stream=stream)
        whole = GRID_BARRIER in ptx
        start = cuda.driver.launchCooperativeKernel if whole else cuda.driver.launchKernel
        rest = (ctypes.addressof(pointers), *([] if whole else [0]))

        def queue() -> None:
            start(function.ptr, *launch.grid, *launch.block, launch.shared, cuda.get_current_stream().ptr, *rest)

        def put_back() -> None:
            for array, old in zip(arrays, first, strict=True):
                array[:] = old

        @contextmanager
        def finished() -> Iterator[None]:
            with stream:
                yield
            end = time.monotonic() + launch.timeout
            while cuda.runtime.streamQuery(stream.ptr) == NOT_READY:  # an interrupt does not wait for a kernel
                if time.monotonic() > end:
                    raise TimeoutError
                time.sleep(POLL_S)
            stream.synchronize()

        try:
            with finished():
                queue()
            for one, array in zip(given.arrays, arrays, strict=True):
                one.bits[...] = array.get(stream=stream).view(one.bits.dtype).reshape(one.bits.shape)
            times = self._hold.seconds(queue, REPEATS, 1 + len(arrays), finished, put_back)
        except (TimeoutError, KeyboardInterrupt) as error:
            UNENDED.append((module, arrays, first))
            if isinstance(error, KeyboardInterrupt):
                raise
            return Outcome(False, "not finished in time", "device=ptx names the place", everything, lost=True)
        except errors as error:
            return Outcome(False, f"fault: {error}", "device=ptx names the line", everything, lost=True)
        return Outcome(True, "finished", "", everything, seconds=statistics.median(times))
