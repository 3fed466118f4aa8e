"""Stand-in for cupy.cuda.device."""

from typing import Any

from cupy.cuda import runtime
from standin_gpu import device as gpu
from standin_gpu import errors
from standin_gpu.cython import typed
from standin_gpu.errors import CUDARuntimeError
from standin_gpu.machine import MACHINE


class Device:
    """The one GPU."""

    @typed
    def __init__(self, device: Any = None) -> None:
        self.id = 0 if device is None else int(device)

    @typed
    def use(self) -> "Device":
        MACHINE.call()
        if self.id != 0:
            raise CUDARuntimeError(errors.INVALID_DEVICE)
        return self

    def __enter__(self) -> "Device":
        return self.use()

    def __exit__(self, *error: object) -> None:
        pass

    @typed
    def synchronize(self) -> None:
        runtime.deviceSynchronize()

    @property
    def compute_capability(self) -> str:
        return gpu.ARCH.removeprefix("sm_")

    @property
    def attributes(self) -> dict[str, int]:
        return dict(gpu.ATTRIBUTES)

    @property
    def pci_bus_id(self) -> str:
        return gpu.BUS_ID

    @property
    def mem_info(self) -> tuple[int, int]:
        return runtime.memGetInfo()
