"""NVML: properties of a GPU for the record, and its clocks, power and temperature during a measurement."""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from multiprocessing import parent_process
from pathlib import Path
from typing import Any

from common.lazy import cupy
from common.lazy import pynvml as nvml

# Bits of NVML's clock event reasons that are throttling; `idle` and clocks set by the user are not.
THROTTLE = {
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "software thermal",
    0x40: "hardware thermal",
    0x80: "power brake",
    0x200: "board limit",
    0x400: "reliability",
}
STEADY = 0.97  # a clock is steady if its lowest reading is at least this share of its highest


class Gpu:
    """One GPU. A value that its driver does not report is None."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle

    @classmethod
    def find(cls, bus_id: str) -> "Gpu | None":
        """The GPU at this PCI bus id, as the CUDA runtime prints it; None without NVML or a driver."""
        try:
            nvml.nvmlInit()
            return cls(nvml.nvmlDeviceGetHandleByPciBusId(bus_id.encode()))
        except ImportError:
            return None
        except nvml.NVMLError:
            return None

    @classmethod
    def current(cls) -> "Gpu | None":
        """CuPy's current GPU, found by bus id: CUDA_VISIBLE_DEVICES changes CUDA's numbering and not NVML's."""
        return cls.find(cupy.cuda.Device().pci_bus_id)

    def properties(self) -> dict[str, Any]:
        """Name, driver and limits: the properties that do not change during a run. No serial number and no UUID."""
        capability = self._query(nvml.nvmlDeviceGetCudaComputeCapability)
        memory = self._query(nvml.nvmlDeviceGetMemoryInfo)
        limit = self._query(nvml.nvmlDeviceGetEnforcedPowerLimit)
        return {
            "name": self._query(nvml.nvmlDeviceGetName),
            "arch": capability and "sm_{}{}".format(*capability),
            "memory_bytes": memory and memory.total,
            "driver": self._query(lambda _: nvml.nvmlSystemGetDriverVersion()),
            "power_limit_w": limit and limit / 1000,
            "max_sm_mhz": self._query(nvml.nvmlDeviceGetMaxClockInfo, nvml.NVML_CLOCK_SM),
            "max_memory_mhz": self._query(nvml.nvmlDeviceGetMaxClockInfo, nvml.NVML_CLOCK_MEM),
        }

    def reading(self) -> dict[str, Any]:
        """Clocks (MHz), power (W), temperature (degrees C), reasons of throttling, and number of other processes.

        Processes in NVML's list that are not of this run are foreign. They are only counted: NVML gives process ids of
        the host machine, and a process in a container knows only its id in the container. Outside of one a worker's
        parent is left out, which compiles for it in a search.
        """
        power = self._query(nvml.nvmlDeviceGetPowerUsage)
        bits = self._query(nvml.nvmlDeviceGetCurrentClocksThrottleReasons) or 0
        processes, parent = self._query(nvml.nvmlDeviceGetComputeRunningProcesses), parent_process()
        others = [each for each in processes or () if parent is None or each.pid != parent.pid]
        return {
            "sm_mhz": self._query(nvml.nvmlDeviceGetClockInfo, nvml.NVML_CLOCK_SM),
            "memory_mhz": self._query(nvml.nvmlDeviceGetClockInfo, nvml.NVML_CLOCK_MEM),
            "power_w": power and power / 1000,
            "temperature_c": self._query(nvml.nvmlDeviceGetTemperature, nvml.NVML_TEMPERATURE_GPU),
            "other_processes": None if processes is None else max(0, len(others) - of_this_run()),
            "throttled": [name for bit, name in THROTTLE.items() if bits & bit],
        }

    def _query(self, function: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return function(self._handle, *arguments)
        except nvml.NVMLError:
            return None


def disturbances(readings: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Disturbances of a measurement, a few words each; () without any. readings: taken during the measurement."""
    notes = []
    for reason in THROTTLE.values():
        if times := sum(reason in reading["throttled"] for reading in readings):
            notes.append(f"throttled ({reason}) in {times} of {len(readings)} rounds")
    if others := max((reading.get("other_processes") or 0 for reading in readings), default=0):
        notes.append(f"{others} other process(es) on the GPU")
    for name, field in (("SM", "sm_mhz"), ("memory", "memory_mhz")):
        clocks = [reading[field] for reading in readings if reading.get(field)]
        if clocks and min(clocks) < STEADY * max(clocks):
            notes.append(f"{name} clock between {min(clocks)} and {max(clocks)} MHz")
    return tuple(notes)


def of_this_run() -> int:
    """Number of processes with this one's parent and command, itself included: the workers of a run on one GPU.

    Two of them at most share a GPU in turn (experiments/run/sweep.py): one compiles while the other one measures.
    """
    parent, own, alike = os.getppid(), _command("self"), 0
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended meanwhile
            # "pid (name) state parent ...", and a name may have any character
            of = int((folder / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[1])
            alike += of == parent and _command(folder.name) == own
    return min(alike, 2)  # more are those of other GPUs


def _command(process: str) -> bytes:
    """Command of a process without its digits: a worker's names the pipe to its parent by number."""
    return re.sub(rb"\d", b"", Path(f"/proc/{process}/cmdline").read_bytes())
