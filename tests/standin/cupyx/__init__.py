"""Stand-in for cupyx."""

from typing import Any

import numpy as np
from standin_gpu.machine import MACHINE


def zeros_pinned(shape: Any, dtype: Any = float, order: str = "C") -> np.ndarray:
    """Zeros in pinned memory of the host; its address may go to a kernel."""
    made = empty_pinned(shape, dtype, order)
    made[...] = 0
    return made


def empty_pinned(shape: Any, dtype: Any = float, order: str = "C") -> np.ndarray:
    kind = np.dtype(dtype)
    owner = MACHINE.allocate_pinned(int(np.prod(shape)) * kind.itemsize)
    return np.asarray(_Held(owner)).view(kind).reshape(shape)


class _Held:
    """The buffer's bytes; an array made of them keeps the owner."""

    def __init__(self, owner: Any) -> None:
        self.owner = owner
        self.__array_interface__ = owner.buffer.bytes.__array_interface__
