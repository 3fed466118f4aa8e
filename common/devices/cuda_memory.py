"""Copies, fills and comparisons in a GPU's memory, without the kernels of CuPy's operators.

CuPy compiles a kernel for each operator and type, about a second each on every fresh machine. Copies and fills are the
driver's own; one small kernel compares. Arrays are contiguous, of CuPy, or of NumPy where they may be the host's. All
work is queued on `stream`; a copy from the host has been read when its call returns.
"""

from functools import cache
from typing import Any

import numpy as np

from common.compile.nvrtc import options
from common.lazy import cupy

# Row blockIdx.y of two tables, `count` packets of four bf16 from `first` on. found: the least number, row by row, of a
# packet that is wrong. It is where the tables differ, or, for `unwritten`, where a word is no NaN.
TEXT = r"""
#line 1 "common/devices/first_wrong.cu"
extern "C" __global__ void first_wrong(const unsigned long long *mine, size_t my_pitch, const unsigned long long *other,
                                       size_t other_pitch, size_t count, unsigned unwritten,
                                       unsigned long long *found) {
  constexpr unsigned long long signs = 0x8000800080008000, least_nan = 0x7f817f817f817f81;
  mine += blockIdx.y * my_pitch;
  other += blockIdx.y * other_pitch;
  for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
    const bool wrong = unwritten ? (((mine[i] & ~signs) + (signs - least_nan)) & signs) != signs : mine[i] != other[i];
    if (wrong) atomicMin(found, blockIdx.y * count + i);
  }
}
"""
PACKET, THREADS, MOST_BLOCKS = 8, 256, 64  # bytes; of a block; of a row
NONE = 2**64 - 1


def copy(stream: Any, target: Any, source: Any) -> None:
    """Copy all of `source`, an array of the same size."""
    runtime = cupy.cuda.runtime
    runtime.memcpyAsync(_address(target), _address(source), target.nbytes, runtime.memcpyDefault, stream.ptr)


def copy_positions(stream: Any, target: Any, first: int, source: Any, start: int, count: int) -> None:
    """Copy `count` positions from `start` on to `first`. target, source: [..., positions, row], else of one shape."""
    if not count:
        return
    runtime, (mine, my_pitch), (other, pitch) = cupy.cuda.runtime, _rows(target, first), _rows(source, start)
    width, heads = count * target.shape[-1] * target.dtype.itemsize, int(np.prod(target.shape[:-2]))
    runtime.memcpy2DAsync(mine, my_pitch, other, pitch, width, heads, runtime.memcpyDefault, stream.ptr)


def fill(stream: Any, target: Any, words: np.ndarray) -> None:
    """Write `words`, of the target's type, over it again and again."""
    runtime, whole, at = cupy.cuda.runtime, target.nbytes, _address(target)
    done = min(words.nbytes, whole)
    runtime.memcpyAsync(at, words.ctypes.data, done, runtime.memcpyDefault, stream.ptr)
    while done < whole:
        size = min(done, whole - done)
        runtime.memcpyAsync(at + done, at, size, runtime.memcpyDefault, stream.ptr)
        done += size


def first_wrong(stream: Any, mine: Any, other: Any, first: int, count: int) -> tuple[int, ...] | None:
    """Index of the first four elements, from position `first` on, that are not as they should be; it waits.

    mine: bf16 as int16, [..., positions, row] of whole packets. other: what they should be, likewise; None: all NaN.
    The index is in `mine`.
    """
    *heads, _, row = mine.shape
    packets, found = count * row * mine.dtype.itemsize // PACKET, cupy.empty(1, cupy.uint64)
    if not packets:
        return None
    copy(stream, found, np.array([NONE], np.uint64))
    (at, pitch), (beside, other_pitch) = _rows(mine, first), _rows(mine if other is None else other, first)
    numbers = map(cupy.uint64, (at, pitch // PACKET, beside, other_pitch // PACKET, packets))
    grid = min(MOST_BLOCKS, -(-packets // THREADS)), int(np.prod(heads))
    with stream:  # a RawKernel's own `stream=` is not documented
        _kernel(cupy.RawModule)(grid, (THREADS,), (*numbers, cupy.uint32(other is None), found))
    number = int(found.get(stream=stream)[0])
    if number == NONE:
        return None
    head, packet = divmod(number, packets)
    position, column = divmod(packet * PACKET // mine.dtype.itemsize, row)
    return (*map(int, np.unravel_index(head, heads)), first + position, column)


@cache
def _kernel(module: Any) -> Any:
    """The kernel, compiled once a process. module: CuPy's RawModule."""
    return module(code=TEXT, options=options()).get_function("first_wrong")


def _address(array: Any) -> int:
    return array.ctypes.data if isinstance(array, np.ndarray) else array.data.ptr


def _rows(array: Any, position: int) -> tuple[int, int]:
    """Address of a position in the first head, and the bytes from one head to the next."""
    row = array.shape[-1] * array.dtype.itemsize
    return _address(array) + position * row, array.shape[-2] * row
