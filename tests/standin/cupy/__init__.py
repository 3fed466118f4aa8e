"""Stand-in for CuPy: what the lab uses of it, with CuPy's names, and strict. See tests/standin/__init__.py."""

from cupy import _environment, cuda
from cupy._arrays import asarray, empty, ndarray, zeros
from cupy._raw import RawKernel, RawModule
from numpy import float32, float64, int8, int16, int32, int64, uint8, uint16, uint32, uint64

__version__ = "14.2.0"

_pool = cuda.memory.MemoryPool()


def get_default_memory_pool() -> cuda.memory.MemoryPool:
    return _pool


__all__ = ["_environment", "asarray", "cuda", "empty", "ndarray", "zeros"]
__all__ += ["RawKernel", "RawModule", "float32", "float64", "get_default_memory_pool", "int8", "int16", "int32"]
__all__ += ["int64", "uint8", "uint16", "uint32", "uint64"]
