"""Errors of the CUDA runtime and driver as CuPy words them, and the stand-in's own complaint."""

CODES = {
    1: ("InvalidValue", "INVALID_VALUE", "invalid argument"),
    2: ("MemoryAllocation", "OUT_OF_MEMORY", "out of memory"),
    35: ("InsufficientDriver", "INVALID_IMAGE", "CUDA driver version is insufficient for CUDA runtime version"),
    100: ("NoDevice", "NO_DEVICE", "no CUDA-capable device is detected"),
    101: ("InvalidDevice", "INVALID_DEVICE", "invalid device ordinal"),
    400: ("InvalidResourceHandle", "INVALID_HANDLE", "invalid resource handle"),
    401: ("IllegalState", "ILLEGAL_STATE", "the operation cannot be performed in the present state"),
    500: ("SymbolNotFound", "NOT_FOUND", "named symbol not found"),
    600: ("NotReady", "NOT_READY", "device not ready"),
    700: ("IllegalAddress", "ILLEGAL_ADDRESS", "an illegal memory access was encountered"),
    701: ("LaunchOutOfResources", "LAUNCH_OUT_OF_RESOURCES", "too many resources requested for launch"),
    716: ("MisalignedAddress", "MISALIGNED_ADDRESS", "misaligned address"),
    719: ("LaunchFailure", "LAUNCH_FAILED", "unspecified launch failure"),
    999: ("Unknown", "UNKNOWN", "unknown error"),
}
INVALID_VALUE, OUT_OF_MEMORY, NO_DEVICE, INVALID_DEVICE = 1, 2, 100, 101
INVALID_HANDLE, ILLEGAL_STATE, NOT_FOUND, NOT_READY = 400, 401, 500, 600
ILLEGAL_ADDRESS, OUT_OF_RESOURCES, LAUNCH_FAILED = 700, 701, 719
UNKNOWN = 999


class CUDARuntimeError(RuntimeError):
    """Error of a call of the CUDA runtime."""

    def __init__(self, status: int) -> None:
        self.status = status
        name, _, text = CODES[status]
        super().__init__(f"cudaError{name}: {text}")


class CUDADriverError(RuntimeError):
    """Error of a call of the CUDA driver."""

    def __init__(self, status: int) -> None:
        self.status = status
        _, name, text = CODES[status]
        super().__init__(f"CUDA_ERROR_{name}: {text}")


class Misuse(AssertionError):
    """Fault that a GPU would not report, and might execute wrongly: the stand-in refuses it, with the line."""
