"""Stand-in for cupy.cuda.runtime."""

import ctypes
from typing import Any

import numpy as np
from cupy.cuda import _streams
from standin_gpu import cost, device, errors
from standin_gpu.cython import typed
from standin_gpu.errors import CUDARuntimeError
from standin_gpu.machine import MACHINE, misuse
from standin_gpu.memory import Buffer

memcpyDefault = 4  # noqa: N816  the addresses say which memory is the host's


@typed
def getDeviceCount() -> int:  # noqa: N802
    MACHINE.call()
    return 1


@typed
def driverGetVersion() -> int:  # noqa: N802
    MACHINE.call()
    return device.DRIVER


@typed
def getDeviceProperties(device: int) -> dict[str, Any]:  # noqa: N802
    MACHINE.call()
    if device != 0:
        raise CUDARuntimeError(errors.INVALID_DEVICE)
    return _properties()


def _properties() -> dict[str, Any]:
    return {
        "name": device.NAME,
        "totalGlobalMem": device.MEMORY,
        "major": 9,
        "minor": 0,
        "multiProcessorCount": device.MULTIPROCESSORS,
        "l2CacheSize": device.ATTRIBUTES["L2CacheSize"],
    }


@typed
def memGetInfo() -> tuple[int, int]:  # noqa: N802
    MACHINE.call()
    return MACHINE.free, device.MEMORY


@typed
def memcpyAsync(dst: int, src: int, size: int, kind: int, stream: int) -> None:  # noqa: N802
    memcpy2DAsync(dst, size, src, size, size, 1, kind, stream)


@typed
def memcpy2DAsync(  # noqa: N802
    dst: int, dpitch: int, src: int, spitch: int, width: int, height: int, kind: int, stream: int
) -> None:
    """Memory of the host is staged: it may change after this call."""
    MACHINE.call()
    current = _streams.get_current_stream()
    if stream != current.ptr or kind != memcpyDefault:
        raise misuse(f"a copy of kind {kind} on stream {stream}, which is not current")
    if width > min(dpitch, spitch):
        raise CUDARuntimeError(errors.INVALID_VALUE)
    (to, target), (of, source) = (_rows(at, pitch, width, height) for at, pitch in ((dst, dpitch), (src, spitch)))
    if not (to and of):
        MACHINE.refuse_captured(current._queue, "a copy")
    moved = source if of else source.copy()

    def act() -> float:
        target[...] = moved
        return cost.copied(target.nbytes)

    MACHINE.queue(current._queue, "memcpy", [of] if of else [], [to] if to else [], act)


def _rows(address: int, pitch: int, width: int, height: int) -> tuple[Buffer | None, np.ndarray]:
    """The buffer, None for the host's memory, and the bytes [height, width] there."""
    buffer, size = MACHINE.buffer_at(address), pitch * (height - 1) + width
    if buffer and address + size > buffer.end:
        raise misuse(f"a copy of {size} bytes leaves its buffer")
    flat = buffer.bytes if buffer else np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address))
    first = address - (buffer.bytes.ctypes.data if buffer else address)
    return buffer, np.lib.stride_tricks.as_strided(flat[first:], (height, width), (pitch, 1))


@typed
def deviceSynchronize() -> None:  # noqa: N802
    for queue in list(MACHINE.order.queues):
        MACHINE.wait(queue)


@typed
def profilerStart() -> None:  # noqa: N802
    MACHINE.call()


@typed
def profilerStop() -> None:  # noqa: N802
    MACHINE.call()
