"""Arrays on the GPU: the few operations that the lab uses. Every one is queued on the current stream."""

from typing import Any

import numpy as np
from cupy.cuda._streams import get_current_stream
from cupy.cuda.memory import OutOfMemoryError
from standin_gpu import cost
from standin_gpu.cython import typed
from standin_gpu.machine import MACHINE
from standin_gpu.memory import Buffer, OutOfMemory, Owner

OPERATORS = ("fill", "assignment", "copy of a strided view")  # kernels that CuPy compiles, unlike its copies


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
        if not isinstance(arr, np.ndarray):
            raise TypeError("Only numpy.ndarray can be set to cupy.ndarray")
        if arr.dtype != self.dtype:
            raise TypeError(f"{arr.dtype} array cannot be set to {self.dtype} array")
        if arr.shape != self.shape:
            raise ValueError(f"Shape mismatch. Old shape: {self.shape}, new shape: {arr.shape}")
        if not self._array.flags.forc:
            raise RuntimeError("Cannot set to non-contiguous array")
        MACHINE.captures.refuse_transfer((stream or get_current_stream())._queue, "H2D")
        self._write("copy to the GPU", np.array(arr), stream)  # staged: the source may change after this call

    @typed
    def get(self, stream: Any = None, order: str = "C", out: Any = None, blocking: bool = True) -> np.ndarray:
        MACHINE.call()
        stream = stream or get_current_stream()
        found = np.empty_like(self._array, order="C") if out is None else out
        with stream:  # a strided view is made contiguous first, in memory of its own, by the stream that copies
            source = self if self._array.flags.c_contiguous else _copied(self)
        MACHINE.captures.refuse_transfer(stream._queue, "D2H")
        array = source._array

        def act() -> float:
            found[...] = array
            return cost.copied(array.nbytes)

        MACHINE.queue(stream._queue, "copy to the host", [source._buffer], [], act)
        if blocking:
            stream.synchronize()
        return found

    def reshape(self, *shape: int) -> "ndarray":
        """A view: of a contiguous array only, as the lab uses it."""
        array = self._array.view()
        array.shape = shape
        return _of(self._owner, array)

    @typed
    def fill(self, value: Any) -> None:
        self._write("fill", value)

    def __setitem__(self, slices: Any, value: Any) -> None:
        if isinstance(value, np.ndarray) and value.ndim:
            raise ValueError("non-scalar numpy.ndarray cannot be used for fill")
        self[slices]._write("assignment", value)

    def __getitem__(self, slices: Any) -> "ndarray":
        return _of(self._owner, self._array[(slices, ...) if not isinstance(slices, tuple) else slices])

    def __int__(self) -> int:
        return int(self.get())

    def __float__(self) -> float:
        return float(self.get())

    def __bool__(self) -> bool:
        return bool(self.get())

    def item(self) -> Any:
        return self.get().item()

    def _write(self, what: str, value: Any, stream: Any = None) -> None:
        MACHINE.call()
        MACHINE.compiled += [what] * (what in OPERATORS)
        target, reads = self._array, []
        if isinstance(value, ndarray):
            value, reads = value._array, [value._buffer]

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


def _of(owner: Owner, array: np.ndarray) -> ndarray:
    return ndarray.__new__(ndarray)._view(owner, array)


def _copied(array: ndarray) -> ndarray:
    made = ndarray(array.shape, array.dtype)
    made._write("copy of a strided view", array)
    return made


def empty(shape: Any, dtype: Any = float, order: str = "C") -> ndarray:
    return ndarray(shape, dtype)


def zeros(shape: Any, dtype: Any = float, order: str = "C") -> ndarray:
    made = ndarray(shape, dtype)
    made._write("memset", 0)
    return made


def asarray(a: Any, dtype: Any = None, order: Any = None, *, copy: Any = None, blocking: Any = False) -> ndarray:
    """A copy on the GPU; it may still be under way on the current stream unless `blocking`."""
    if isinstance(a, ndarray):
        return a
    values = np.array(a, dtype)
    made = ndarray(values.shape, values.dtype)
    if values.ndim:  # else it is filled with the value
        MACHINE.captures.refuse_transfer(get_current_stream()._queue, "H2D")
    made._write("copy to the GPU by asarray", values)
    if blocking:
        get_current_stream().synchronize()
    return made


def array_equal(a1: ndarray, a2: ndarray, equal_nan: bool = False) -> ndarray:
    MACHINE.call()
    MACHINE.compiled.append("array_equal")
    same, first, second = ndarray((), bool), a1._array, a2._array
    result = same._array

    def act() -> float:
        result[...] = np.array_equal(first, second, equal_nan)
        return cost.copied(first.nbytes)

    if equal_nan:
        get_current_stream().synchronize()
    MACHINE.queue(get_current_stream()._queue, "array_equal", [a1._buffer, a2._buffer], [same._buffer], act)
    return same
