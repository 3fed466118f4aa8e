"""Arrays on the GPU: the few operations that the lab uses. Every one is queued on the current stream.

Of those for which CuPy compiles a kernel of its own, a second each on a fresh machine, only assignments are here.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from cupy.cuda._streams import get_current_stream
from cupy.cuda.memory import OutOfMemoryError
from standin_gpu import cost
from standin_gpu.cython import typed
from standin_gpu.machine import MACHINE
from standin_gpu.memory import Buffer, OutOfMemory, Owner


class MemoryPointer:
    """Address in a buffer."""

    @classmethod
    def _at(cls, owner: Owner, ptr: int) -> "MemoryPointer":
        pointer = cls.__new__(cls)
        pointer._owner, pointer.ptr = owner, ptr
        return pointer


class ndarray:  # noqa: N801  CuPy's name
    """Array of the GPU; a view shares the buffer and its owner."""

    @typed
    def __init__(
        self, shape: Any, dtype: Any = float, memptr: Any = None, strides: Any = None, order: str = "C"
    ) -> None:
        if memptr is None:
            self._view(*_allocate(shape, dtype))
            return
        kind, memory = np.dtype(dtype), memptr._owner.buffer.bytes
        first = memptr.ptr - memory.ctypes.data
        words = memory[first : first + int(np.prod(shape)) * kind.itemsize]
        self._view(memptr._owner, words.view(kind).reshape(shape))

    def _view(self, owner: Owner, array: np.ndarray) -> "ndarray":
        self._owner, self._array = owner, array
        return self

    @property
    def _buffer(self) -> Buffer:
        return self._owner.buffer

    @property
    def dtype(self) -> np.dtype:
        return self._array.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return self._array.shape

    @property
    def size(self) -> int:
        return self._array.size

    @property
    def nbytes(self) -> int:
        return self._array.nbytes

    @property
    def data(self) -> MemoryPointer:
        return MemoryPointer._at(self._owner, self._array.ctypes.data)

    def __len__(self) -> int:
        return len(self._array)

    @typed
    def set(self, arr: Any, stream: Any = None) -> None:
        if not isinstance(arr, np.ndarray) or (arr.dtype, arr.shape) != (self.dtype, self.shape):
            raise TypeError(f"{type(arr).__name__} cannot be set to an array of {self.dtype} {self.shape}")
        MACHINE.refuse_captured((stream or get_current_stream())._queue, "a copy")
        self._write("copy to the GPU", np.array(arr), stream)  # staged: the source may change after this call

    @typed
    def get(self, stream: Any = None, order: str = "C", out: Any = None, blocking: bool = True) -> np.ndarray:
        MACHINE.call()
        stream = stream or get_current_stream()
        found = np.empty_like(self._array, order="C") if out is None else out
        MACHINE.refuse_captured(stream._queue, "a copy")
        array = self._array
        if not array.flags.c_contiguous:
            raise NotImplementedError("CuPy compiles a kernel that makes a strided view contiguous")

        def act() -> float:
            found[...] = array
            return cost.copied(array.nbytes)

        MACHINE.queue(stream._queue, "copy to the host", [self._buffer], [], act)
        if blocking:
            stream.synchronize()
        return found

    def __getitem__(self, slices: Any) -> "ndarray":
        array = self._array[(slices, ...) if not isinstance(slices, tuple) else slices]
        return ndarray.__new__(ndarray)._view(self._owner, array)

    def __setitem__(self, slices: Any, value: "ndarray") -> None:
        self[slices]._write("assignment", value._array, reads=[value._buffer])

    def __int__(self) -> int:
        return int(self.get())

    def _write(self, what: str, value: Any, stream: Any = None, reads: Sequence[Buffer] = ()) -> None:
        MACHINE.call()
        target = self._array

        def act() -> float:
            target[...] = value
            return cost.copied(target.nbytes)

        MACHINE.queue((stream or get_current_stream())._queue, what, reads, [self._buffer], act)


def _allocate(shape: Any, dtype: Any) -> tuple[Owner, np.ndarray]:
    kind = np.dtype(dtype)
    size = int(np.prod(shape)) * kind.itemsize
    try:
        owner = MACHINE.allocate(size, get_current_stream()._queue)
    except OutOfMemory as error:
        raise OutOfMemoryError(*error.args) from None
    return owner, owner.buffer.bytes.view(kind).reshape(shape)


def empty(shape: Any, dtype: Any = float, order: str = "C") -> ndarray:
    return ndarray(shape, dtype)


def zeros(shape: Any, dtype: Any = float, order: str = "C") -> ndarray:
    made = ndarray(shape, dtype)
    made._write("memset", 0)
    return made


def asarray(a: Any, dtype: Any = None, order: Any = None, *, copy: Any = None, blocking: Any = False) -> ndarray:
    """A copy on the GPU; it may still be under way on the current stream unless `blocking`."""
    values = np.array(a, dtype)
    made = ndarray(values.shape, values.dtype)
    MACHINE.refuse_captured(get_current_stream()._queue, "a copy")
    made._write("copy to the GPU by asarray", values)
    if blocking:
        get_current_stream().synchronize()
    return made
