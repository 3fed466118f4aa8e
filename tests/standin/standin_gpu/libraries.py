"""The driver's shared libraries, as ctypes finds them: of libcuda the one function that the lab calls; NVML for pynvml.

pynvml is the real one: it calls the functions of this NVML as it calls NVIDIA's.
"""

import ctypes
import time
from collections.abc import Callable
from contextlib import suppress
from glob import glob
from pathlib import Path
from typing import Any

from standin_gpu import device, faults

SUCCESS, NOT_SUPPORTED, NOT_FOUND, INSUFFICIENT_SIZE, LOST = 0, 3, 6, 7, 15  # nvmlReturn_t
SM_MHZ, MEMORY_MHZ = 1755, 2619
CLOCK_MEMORY = 2  # nvmlClockType_t: of the memory
PROGRAMMATIC = 6  # CUlaunchAttributeID: programmatic stream serialization
IDLE_W, DECODING_W, LIMIT_W = 90, 420, 700
AVERAGED_S = 0.1
REAL = ctypes.CDLL


def install() -> None:
    """Let `ctypes.CDLL` find the libraries."""
    ctypes.CDLL = Libraries  # type: ignore[misc]


def remove() -> None:
    ctypes.CDLL = REAL  # type: ignore[misc]


class Libraries(REAL):
    """ctypes.CDLL, which knows two libraries more."""

    def __new__(cls, name: Any = None, *args: Any, **kwargs: Any) -> Any:
        if name == "libcuda.so.1":
            return Cuda()
        if name == "libnvidia-ml.so.1":
            return Nvml()
        return super().__new__(cls)


class Cuda:
    """The function of libcuda that the lab calls."""

    def cuLaunchKernelEx(self, config: Any, function: Any, parameters: Any, extra: Any) -> int:  # noqa: N802
        """Raises Misuse for a launch that is not programmatic; returns a CUresult."""
        from cupy.cuda import driver
        from cupy.cuda._streams import get_current_stream
        from standin_gpu.errors import CUDADriverError
        from standin_gpu.launching import from_memory, launch
        from standin_gpu.machine import misuse

        given = config._obj
        attributes = [
            (given.attributes[at].id, given.attributes[at].programmatic) for at in range(given.attribute_count)
        ]
        stream = get_current_stream()
        if attributes != [(PROGRAMMATIC, 1)] or (given.stream or 0) != stream.ptr:
            raise misuse(f"cuLaunchKernelEx on stream {given.stream} with the attributes {attributes}")
        try:
            kernel = driver._kernel(function.value)
            arguments = from_memory(kernel, parameters)
            launch(kernel, tuple(given.grid), tuple(given.block), arguments, given.shared, stream._queue)
        except CUDADriverError as error:
            return error.status
        return SUCCESS


class Nvml:
    """The functions of NVML that the lab uses, found by name. A lost GPU answers NVML_ERROR_GPU_IS_LOST."""

    def __getattr__(self, name: str) -> Callable[..., int]:
        function = FUNCTIONS.get(name)
        if function is None:
            if not name.startswith("nvml"):
                raise AttributeError(name)
            return lambda *arguments: NOT_SUPPORTED

        def call(*arguments: Any) -> int:
            return LOST if faults.lost() and name.startswith("nvmlDevice") else function(*arguments)

        return call


def _text(target: Any, value: bytes) -> int:
    target.value = value
    return SUCCESS


def _value(target: Any, value: int) -> int:
    target._obj.value = value
    return SUCCESS


def _found(bus_id: Any, target: Any) -> int:
    return SUCCESS if bus_id.value == device.BUS_ID.encode() else NOT_FOUND


def _capability(handle: Any, major: Any, minor: Any) -> int:
    return _value(major, 9) or _value(minor, 0)


def _memory(handle: Any, target: Any) -> int:
    target._obj.total, target._obj.free, target._obj.used = device.MEMORY, device.MEMORY, 0
    return SUCCESS


def _clock(handle: Any, kind: Any, target: Any) -> int:
    return _value(target, MEMORY_MHZ if getattr(kind, "value", kind) == CLOCK_MEMORY else SM_MHZ)


def _power(handle: Any, target: Any) -> int:
    """In milliwatts, of a board that has worked within the average that NVML reports."""
    from standin_gpu.machine import MACHINE

    busy = time.monotonic() - MACHINE.worked < AVERAGED_S
    return _value(target, 1000 * (DECODING_W if busy else IDLE_W))


def _processes(handle: Any, count: Any, processes: Any) -> int:
    """List the processes with a context on the GPU. A call without room for them asks for their number."""
    found = []
    for file in map(Path, glob("/proc/[0-9]*/fd/*")):  # Path.glob fails where a process ends meanwhile
        with suppress(OSError):  # it has ended, or been closed, meanwhile
            if device.context() in str(file.readlink()):
                found.append(int(file.parts[2]))
    room, count._obj.value = count._obj.value, len(found)
    if len(found) > room:
        return INSUFFICIENT_SIZE
    for at, number in enumerate(found):
        processes[at].pid = number
    return SUCCESS


FUNCTIONS: dict[str, Callable[..., int]] = {
    "nvmlInitWithFlags": lambda flags: SUCCESS,
    "nvmlShutdown": lambda: SUCCESS,
    "nvmlSystemGetDriverVersion": lambda target, size: _text(target, b"0.0 stand-in"),
    "nvmlDeviceGetHandleByIndex_v2": lambda index, target: SUCCESS,
    "nvmlDeviceGetHandleByPciBusId_v2": _found,
    "nvmlDeviceGetName": lambda handle, target, size: _text(target, device.NAME),
    "nvmlDeviceGetCudaComputeCapability": _capability,
    "nvmlDeviceGetMemoryInfo": _memory,
    "nvmlDeviceGetEnforcedPowerLimit": lambda handle, target: _value(target, 1000 * LIMIT_W),
    "nvmlDeviceGetMaxClockInfo": _clock,
    "nvmlDeviceGetClockInfo": _clock,
    "nvmlDeviceGetTemperature": lambda handle, sensor, target: _value(target, 40),
    "nvmlDeviceGetPowerUsage": _power,
    "nvmlDeviceGetCurrentClocksThrottleReasons": lambda handle, target: _value(target, 0),
    "nvmlDeviceGetComputeRunningProcesses_v3": _processes,
}
