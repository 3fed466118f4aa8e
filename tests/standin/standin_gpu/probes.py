"""Kernels of the lab that the machine would execute for too long: what they do to memory, by name, in numpy."""

from collections.abc import Callable
from typing import Any

import numpy as np
from standin_gpu import cost, device
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


def exchange_plain(mail: np.ndarray, rounds: int, data: np.ndarray, count: int, *given: Any) -> float:
    """Exchanges beside four 16-byte loads of each of `loaders` threads."""
    most, loaders, loaded, clocks = given
    return _exchanged(mail, rounds, _whole(data, 4 * count, "exchange_plain"), 64 * loaders, most, loaded, clocks)


def exchange_bulk(mail: np.ndarray, rounds: int, data: np.ndarray, count: int, *given: Any) -> float:
    """Exchanges beside bulk copies of `tile` bytes."""
    most, slots, tile, loaded, clocks = given
    if slots > 32:
        raise Misuse(f"exchange_bulk has 32 places for barriers, not {slots}")
    return _exchanged(mail, rounds, _whole(data, tile * count // 4, "exchange_bulk"), tile, most, loaded, clocks)


def counted_adds(counters: np.ndarray, rounds: int) -> float:
    """Every block adds 1 to every counter; the arguments do not say how many blocks."""
    counters += rounds * device.MULTIPROCESSORS
    return cost.LAUNCH + rounds * counters.size * cost.ATOMIC


def hold(nanoseconds: int) -> float:
    """Time passes."""
    return cost.LAUNCH + 1e-9 * nanoseconds


KERNELS = (number_all, read_all, read_bulk, exchange_plain, exchange_bulk, counted_adds, hold)
PROBES: dict[str, Callable[..., float]] = {probe.__name__: probe for probe in KERNELS}


def _exchanged(
    mail: np.ndarray, rounds: int, data: np.ndarray, turn: int, most: int, loaded: np.ndarray, clocks: np.ndarray
) -> float:
    """Turns of `turn` bytes by each block, until the rounds or `most` turns are done; the last SM is the slowest."""
    if data.size and not (data.min() == data.max() == 1):
        raise Misuse("data whose sum counts it is all ones")
    if rounds:
        seconds = cost.LAUNCH + rounds * cost.GRID_BARRIER
        most = min(most, int(seconds * cost.BANDWIDTH / loaded.size / turn)) if turn else 0
    else:
        seconds = cost.probed(most * turn * loaded.size, 0.9)
    mail[:] = rounds
    loaded += most * turn // 4
    clocks += int(1e9 * seconds)
    clocks[-1] += int(1e8 * seconds)
    return seconds


def _read(data: np.ndarray, size: int, passes: int, result: np.ndarray, name: str, share: float) -> float:
    words = _whole(data, size, name)
    if passes % 2:
        result[0] ^= np.bitwise_xor.reduce(words)
    return cost.probed(passes * words.nbytes, share)


def _whole(words: np.ndarray, size: int, name: str) -> np.ndarray:
    if words.size < size:
        raise Misuse(f"{name} leaves its buffer: {size} words of {words.size}")
    return words[:size]
