"""What NVML says about a GPU: facts for the record, and readings while something is measured."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

# Bits of NVML's clock event reasons. `idle` and the settings a person chose are no throttling.
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
STEADY = 0.97  # clocks whose lowest is below this share of the highest have changed


class Gpu:
    """One GPU. What a GPU or a driver does not tell is None."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle

    @classmethod
    def find(cls, bus_id: str | None = None) -> "Gpu | None":
        """The GPU at a PCI bus id, as the CUDA runtime gives it, else the first one; None without NVML or a driver."""
        try:
            import pynvml
        except ImportError:
            return None
        try:
            pynvml.nvmlInit()
            if bus_id is None:
                return cls(pynvml.nvmlDeviceGetHandleByIndex(0))
            return cls(pynvml.nvmlDeviceGetHandleByPciBusId(bus_id.encode()))
        except pynvml.NVMLError:
            return None

    @classmethod
    def current(cls) -> "Gpu | None":
        """The GPU that CuPy uses in this process: CUDA_VISIBLE_DEVICES changes CUDA's numbers and not NVML's."""
        from cupy.cuda import Device

        return cls.find(Device().pci_bus_id)

    def facts(self) -> dict[str, Any]:
        """Name, driver and limits: what does not change during a run. No serial number, and no uuid."""
        import pynvml as nvml

        capability = self._ask(nvml.nvmlDeviceGetCudaComputeCapability)
        memory = self._ask(nvml.nvmlDeviceGetMemoryInfo)
        limit = self._ask(nvml.nvmlDeviceGetEnforcedPowerLimit)
        return {
            "name": _text(self._ask(nvml.nvmlDeviceGetName)),
            "arch": capability and "sm_{}{}".format(*capability),
            "memory_bytes": memory and memory.total,
            "driver": _text(nvml.nvmlSystemGetDriverVersion()),
            "power_limit_w": limit and limit / 1000,
            "max_sm_mhz": self._ask(nvml.nvmlDeviceGetMaxClockInfo, nvml.NVML_CLOCK_SM),
            "max_memory_mhz": self._ask(nvml.nvmlDeviceGetMaxClockInfo, nvml.NVML_CLOCK_MEM),
        }

    def reading(self) -> dict[str, Any]:
        """Clocks in MHz, power in W, temperature in degrees C, what holds the clocks down, and how many others compute.

        The lab has one process on a GPU, so all but one of those that NVML lists are others; it names them by numbers
        of the machine, which a container cannot compare with its own.
        """
        import pynvml as nvml

        power = self._ask(nvml.nvmlDeviceGetPowerUsage)
        bits = self._ask(nvml.nvmlDeviceGetCurrentClocksThrottleReasons) or 0
        processes = self._ask(nvml.nvmlDeviceGetComputeRunningProcesses)
        return {
            "sm_mhz": self._ask(nvml.nvmlDeviceGetClockInfo, nvml.NVML_CLOCK_SM),
            "memory_mhz": self._ask(nvml.nvmlDeviceGetClockInfo, nvml.NVML_CLOCK_MEM),
            "power_w": power and power / 1000,
            "temperature_c": self._ask(nvml.nvmlDeviceGetTemperature, nvml.NVML_TEMPERATURE_GPU),
            "other_processes": None if processes is None else max(0, len(processes) - 1),
            "throttled": [name for bit, name in THROTTLE.items() if bits & bit],
        }

    def _ask(self, question: Callable[..., Any], *details: Any) -> Any:
        import pynvml

        try:
            return question(self._handle, *details)
        except pynvml.NVMLError:
            return None


def marks(readings: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """What disturbed a measurement, a few words each, from the readings taken during it; () for nothing seen."""
    found = []
    for reason in THROTTLE.values():
        if times := sum(reason in reading["throttled"] for reading in readings):
            found.append(f"throttled ({reason}) in {times} of {len(readings)} rounds")
    if others := max((reading.get("other_processes") or 0 for reading in readings), default=0):
        found.append(f"{others} other process(es) on the GPU")
    for name, field in (("SM", "sm_mhz"), ("memory", "memory_mhz")):
        clocks = [reading[field] for reading in readings if reading.get(field)]
        if clocks and min(clocks) < STEADY * max(clocks):
            found.append(f"{name} clock between {min(clocks)} and {max(clocks)} MHz")
    return tuple(found)


def _text(value: str | bytes | None) -> str | None:
    """Old bindings answer in bytes."""
    return value.decode() if isinstance(value, bytes) else value
