"""Stand-in for cupy.cuda.driver."""

from standin_gpu import errors
from standin_gpu.cython import typed
from standin_gpu.errors import CUDADriverError
from standin_gpu.launching import Kernel
from standin_gpu.machine import MACHINE

CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES = 1
CU_FUNC_ATTRIBUTE_NUM_REGS = 4
CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8

_kernels: dict[int, Kernel] = {}


def _handle(kernel: Kernel) -> int:
    _kernels[id(kernel)] = kernel
    return id(kernel)


def _kernel(handle: int) -> Kernel:
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
