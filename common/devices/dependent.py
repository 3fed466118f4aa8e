"""Launch of a kernel before the one in front of it in its stream has ended: programmatic dependent launch, sm_90.

CuPy does not have this call, so it is libcuda's own, `cuLaunchKernelEx`, with the structs of CUDA's cuda.h.
"""

import ctypes
from collections.abc import Sequence
from functools import cache
from typing import Any

SERIALIZATION = 6  # CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION


class Attribute(ctypes.Structure):
    """CUlaunchAttribute with the one value that is used, of a union of 64 bytes."""

    _fields_ = [
        ("id", ctypes.c_uint),
        ("pad", ctypes.c_byte * 4),
        ("programmatic", ctypes.c_int),
        ("rest", ctypes.c_byte * 60),
    ]


class Config(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = [
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(Attribute)),
        ("attribute_count", ctypes.c_uint),
    ]


def launch_dependent(cupy: Any, kernel: Any, blocks: int, threads: int, arguments: Sequence[Any], shared: int) -> None:
    """Queue `kernel` on CuPy's current stream, also while a graph is captured.

    arguments: arrays of the GPU, and NumPy's scalars. shared: bytes of dynamic shared memory. Raises CUDADriverError.
    """
    values = [_value(one) for one in arguments]
    parameters = (ctypes.c_void_p * len(values))(*map(ctypes.addressof, values))
    attribute = Attribute(SERIALIZATION, programmatic=1)
    stream, size = cupy.cuda.get_current_stream().ptr, (ctypes.c_uint * 3)
    config = Config(size(blocks, 1, 1), size(threads, 1, 1), shared, stream, ctypes.pointer(attribute), 1)
    function = ctypes.c_void_p(kernel.kernel.ptr)
    if status := _libcuda().cuLaunchKernelEx(ctypes.byref(config), function, parameters, None):
        raise cupy.cuda.driver.CUDADriverError(status)


def _value(argument: Any) -> Any:
    """The argument as C passes it."""
    if hasattr(argument, "data") and hasattr(argument.data, "ptr"):
        return ctypes.c_uint64(argument.data.ptr)
    return {4: ctypes.c_int32, 8: ctypes.c_uint64}[argument.itemsize](int(argument))


@cache
def _libcuda() -> Any:
    return ctypes.CDLL("libcuda.so.1")
