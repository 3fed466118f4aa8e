"""Stand-in for cupy.cuda.driver."""

from cupy.cuda import _streams
from standin_gpu import errors
from standin_gpu.cython import typed
from standin_gpu.errors import CUDADriverError
from standin_gpu.images import PtxFunction
from standin_gpu.launching import Kernel
from standin_gpu.machine import MACHINE, misuse

CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK = 0
CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES = 1
CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES = 3
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
        CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK: kernel.max_threads,
        CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES: kernel.needs.shared,
        CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES: kernel.needs.local,
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


@typed
def launchKernel(  # noqa: N802
    f: int,
    grid_dim_x: int,
    grid_dim_y: int,
    grid_dim_z: int,
    block_dim_x: int,
    block_dim_y: int,
    block_dim_z: int,
    shared_mem_bytes: int,
    stream: int,
    kernel_params: int,
    extra: int,
) -> None:
    if extra:
        raise misuse("launchKernel with extra options")
    grid, block = (grid_dim_x, grid_dim_y, grid_dim_z), (block_dim_x, block_dim_y, block_dim_z)
    launchCooperativeKernel(f, *grid, *block, shared_mem_bytes, stream, kernel_params)


@typed
def launchCooperativeKernel(  # noqa: N802
    f: int,
    grid_dim_x: int,
    grid_dim_y: int,
    grid_dim_z: int,
    block_dim_x: int,
    block_dim_y: int,
    block_dim_z: int,
    shared_mem_bytes: int,
    stream: int,
    kernel_params: int,
) -> None:
    grid, block = (grid_dim_x, grid_dim_y, grid_dim_z), (block_dim_x, block_dim_y, block_dim_z)
    current = _streams.get_current_stream()
    if stream != current.ptr:
        raise misuse(f"a launch on stream {stream}, which is not current")
    kernel = _kernel(f)
    if not isinstance(kernel, PtxFunction):
        raise misuse(f"{kernel.name} is launched by its C signature only")
    kernel.launch(grid, block, shared_mem_bytes, kernel_params, current._queue)
