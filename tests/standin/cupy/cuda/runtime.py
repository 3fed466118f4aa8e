"""Stand-in for cupy.cuda.runtime."""

from typing import Any

from standin_gpu import device, errors
from standin_gpu.cython import typed
from standin_gpu.errors import CUDARuntimeError
from standin_gpu.machine import MACHINE

streamCaptureModeGlobal = 0  # noqa: N816


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
def deviceSynchronize() -> None:  # noqa: N802
    MACHINE.captures.refuse_waiting_for_all()
    for queue in list(MACHINE.order.queues):
        MACHINE.wait(queue)


@typed
def streamQuery(stream: int) -> int:  # noqa: N802
    """A status in place of an exception: not ready, or the error that ends the context."""
    try:
        MACHINE.call()
        (on,) = (queue for queue in MACHINE.order.queues if 1000 + queue.number == stream)
        if on.endless or on.ready > MACHINE.order.now:
            return errors.NOT_READY
        MACHINE.wait(on)
    except CUDARuntimeError as error:
        return error.status
    return 0


@typed
def profilerStart() -> None:  # noqa: N802
    MACHINE.call()


@typed
def profilerStop() -> None:  # noqa: N802
    MACHINE.call()
