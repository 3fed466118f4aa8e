"""Operations on whole arrays of the GPU, with a new array there as result: comparison, bits, copies, truth."""

from collections.abc import Callable
from typing import Any

import numpy as np
from cupy.cuda._streams import get_current_stream
from standin_gpu import cost
from standin_gpu.machine import MACHINE


class Elementwise:
    """Base of cupy.ndarray; `_like` allocates an array."""

    _buffer: Any
    _array: np.ndarray
    _like: Callable[[tuple[int, ...], Any], Any]

    def __ne__(self, other: Any) -> Any:
        return self._queued("not_equal", np.not_equal, other)

    def __and__(self, other: Any) -> Any:
        return self._queued("bitwise_and", np.bitwise_and, other)

    def __le__(self, other: Any) -> Any:
        return self._queued("less_equal", np.less_equal, other)

    def any(self) -> Any:
        return self._queued("any", np.any)

    def copy(self, order: str = "C") -> Any:
        return self._queued("copy", np.copy)

    def _queued(self, what: str, compute: Callable[..., Any], *others: Any) -> Any:
        MACHINE.call()
        arrays = [each for each in others if isinstance(each, Elementwise)]
        given = [each._array if isinstance(each, Elementwise) else each for each in others]
        found = np.asarray(compute(self._array, *given))
        made = self._like(found.shape, found.dtype)

        def act() -> float:
            made._array[...] = found
            return cost.copied(self._array.nbytes)

        reads = [each._buffer for each in (self, *arrays)]
        MACHINE.queue(get_current_stream()._queue, what, reads, [made._buffer], act)
        return made
