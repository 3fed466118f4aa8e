"""Choice of the device: cuda with a driver and a GPU, else a CPU; CuPy is imported only if there is a driver."""

import ctypes
from dataclasses import dataclass

from common.errors import LabError
from common.errors.machine import of_system
from common.lazy import cupy

DEVICES = ("auto", "cuda", "ptx")
USE_PTX = "or use device=ptx"


@dataclass(frozen=True)
class DeviceChoice:
    """The chosen device. name: "cuda" or "ptx"; why: the reason in a few words, such as the name of the GPU."""

    name: str
    why: str

    @property
    def bus_id(self) -> str | None:
        """PCI bus id of the GPU that this process uses; None on a CPU."""
        return cupy.cuda.Device().pci_bus_id if self.name == "cuda" else None

    def __str__(self) -> str:
        return f"device {self.name}: {self.why}"


def choose_device(name: str) -> DeviceChoice:
    """The device for `name` (one of DEVICES) on this machine. Raises LabError for cuda without a usable GPU."""
    if name == "ptx":
        return DeviceChoice(name, "requested")
    try:
        return DeviceChoice("cuda", find_gpu())
    except LabError as error:
        if name == "cuda":
            raise
        return DeviceChoice("ptx", error.cause)


def find_gpu() -> str:
    """Name of the first CUDA GPU. Raises LabError, with the reason, if there is none."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        raise LabError("no NVIDIA driver: libcuda.so.1 does not load", f"install a driver, {USE_PTX}") from None
    try:
        from cupy.cuda import runtime
    except OSError as error:  # CuPy's own cache, in the home folder
        raise of_system(error, "CuPy does not import") from error
    except ImportError as error:
        raise LabError(f"CuPy does not import: {error}", f"pip install -e '.[cuda13]', {USE_PTX}") from None
    try:
        if runtime.getDeviceCount():
            return runtime.getDeviceProperties(0)["name"].decode()
        why = "the driver reports no GPU"
    except runtime.CUDARuntimeError as error:  # such as a driver that is too old, or a trap in a kernel before
        why = f"the GPU cannot be used: {error}"
    remedy = "run again in a new process, check nvidia-smi and the driver's age (make CUDA=12 is for older ones),"
    raise LabError(why, f"{remedy} {USE_PTX}")
