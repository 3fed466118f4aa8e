"""Kernels of the lab that the machine would execute for too long: what they do to memory, by name, in numpy."""

from collections.abc import Callable

import numpy as np
from standin_gpu import cost
from standin_gpu.errors import Misuse


def number_all(data: np.ndarray, count: int) -> float:
    """1, 2, 3 and so on."""
    data[:count] = np.arange(1, count + 1, dtype=data.dtype)
    return cost.probed(data.nbytes)


def read_all(data: np.ndarray, count: int, passes: int, result: np.ndarray) -> float:
    """Xor of `count` 128-bit words, as often as `passes`."""
    return _read(data, 4 * count, passes, result, "read_all", 0.9)


def read_bulk(data: np.ndarray, count: int, passes: int, result: np.ndarray) -> float:
    """Xor of `count` tiles of 8192 bytes, as often as `passes`."""
    return _read(data, 2048 * count, passes, result, "read_bulk", 0.95)


def hold(nanoseconds: int) -> float:
    """Time passes."""
    return cost.LAUNCH + 1e-9 * nanoseconds


KERNELS = (number_all, read_all, read_bulk, hold)
PROBES: dict[str, Callable[..., float]] = {probe.__name__: probe for probe in KERNELS}


def _read(data: np.ndarray, size: int, passes: int, result: np.ndarray, name: str, share: float) -> float:
    words = _whole(data, size, name)
    if passes % 2:
        result[0] ^= np.bitwise_xor.reduce(words)
    return cost.probed(passes * words.nbytes, share)


def _whole(words: np.ndarray, size: int, name: str) -> np.ndarray:
    if words.size < size:
        raise Misuse(f"{name} leaves its buffer: {size} words of {words.size}")
    return words[:size]
