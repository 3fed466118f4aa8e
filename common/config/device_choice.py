"""Choice of the device: cuda with a driver and a GPU, else a CPU; CuPy is imported only if there is a driver."""

import ctypes
from dataclasses import dataclass

from common.errors import LabError

DEVICES = ("auto", "cuda", "ptx")
USE_PTX = "or use device=ptx"
TOO_OLD, ABSENT = 35, 100  # cudaError_t: the driver is older than the runtime; no usable GPU


@dataclass(frozen=True)
class DeviceChoice:
    """The chosen device. name: "cuda" or "ptx"; why: the reason in a few words, such as the name of the GPU."""

    name: str
    why: str

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
    except ImportError as error:
        raise LabError(f"CuPy does not import: {error}", f"pip install -e '.[cuda13]', {USE_PTX}") from None
    try:
        if runtime.getDeviceCount():
            return runtime.getDeviceProperties(0)["name"].decode()
        why = ""
    except runtime.CUDARuntimeError as error:
        if error.status == TOO_OLD:
            remedy = "update the driver, or install for an older one with make CUDA=12,"
            raise LabError(f"the CUDA runtime does not start: {error}", f"{remedy} {USE_PTX}") from None
        if error.status != ABSENT:  # such as a trap in a kernel: no later call of this process works
            remedy = "run it again in a new process, and check nvidia-smi where that fails, too,"
            raise LabError(f"the GPU cannot be used: {error}", f"{remedy} {USE_PTX}") from None
        why = f": {error}"
    raise LabError(f"the driver reports no GPU{why}", f"check nvidia-smi and CUDA_VISIBLE_DEVICES, {USE_PTX}")
