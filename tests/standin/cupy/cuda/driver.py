"""Stand-in for cupy.cuda.driver."""

import inspect
from collections.abc import Callable

from cupy.cuda import _streams
from standin_gpu import errors
from standin_gpu.cython import typed
from standin_gpu.errors import CUDADriverError
from standin_gpu.images import PtxFunction
from standin_gpu.launching import Kernel
from standin_gpu.machine import MACHINE, misuse

CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES = 1
CU_FUNC_ATTRIBUTE_NUM_REGS = 4
CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8

_kernels: dict[int, Kernel | PtxFunction] = {}


def _handle(kernel: Kernel | PtxFunction) -> int:
    _kernels[id(kernel)] = kernel
    return id(kernel)


def _kernel(handle: int) -> Kernel | PtxFunction:
    MACHINE.call(CUDADriverError)
    if handle not in _kernels:
        raise CUDADriverError(errors.INVALID_HANDLE)
    return _kernels[handle]


@typed
def occupancyMaxActiveBlocksPerMultiprocessor(func: int, blockSize: int, dynamicSMemSize: int) -> int:  # noqa: N802, N803
    return _kernel(func).occupancy(blockSize, dynamicSMemSize)


@typed
def funcGetAttribute(attribute: int, f: int) -> int:  # noqa: N802
    kernel = _kernel(f)
    known = {
        CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES: kernel.needs.shared,
        CU_FUNC_ATTRIBUTE_NUM_REGS: kernel.needs.registers,
        CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES: kernel.dynamic_shared,
    }
    return known[attribute]


@typed
def funcSetAttribute(f: int, attribute: int, value: int) -> None:  # noqa: N802
    kernel = _kernel(f)
    if attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
        raise CUDADriverError(errors.INVALID_VALUE)
    kernel.allow_shared(value)


def _launching(*more: str) -> Callable[..., None]:
    """A launch with CuPy's names for its integers; `more` follow those of every launch, and must be 0."""
    sizes = [f"{kind}_dim_{axis}" for kind in ("grid", "block") for axis in "xyz"]
    names = ["f", *sizes, "shared_mem_bytes", "stream", "kernel_params", *more]

    def launch(f: int, *given: int) -> None:
        grid, block, (shared, stream, parameters, *extra) = given[:3], given[3:6], given[6:]
        current, kernel = _streams.get_current_stream(), _kernel(f)
        if any(extra):
            raise misuse("a launch with extra options")
        if stream != current.ptr:
            raise misuse(f"a launch on stream {stream}, which is not current")
        if not isinstance(kernel, PtxFunction):
            raise misuse(f"{kernel.name} is launched by its C signature only")
        kernel.launch(grid, block, shared, parameters, current._queue)

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    launch.__signature__ = inspect.Signature([inspect.Parameter(name, kind, annotation=int) for name in names])
    return typed(launch)


launchKernel, launchCooperativeKernel = _launching("extra"), _launching()  # noqa: N816
