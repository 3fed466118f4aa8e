"""One launch on the host device as its runtime takes it."""

import ctypes
from pathlib import Path

from common.errors.machine import Vanished


class Launch(ctypes.Structure):
    """`host::Launch` of runtime/machine.hpp, field by field."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("weights", "cache", "scratch", "state", "waits")),
        ("bytes", ctypes.c_size_t * 5),  # of these buffers
        *((name, ctypes.c_int) for name in ("steps", "stage", "layer", "blocks")),
        ("workers", ctypes.c_int),
        ("seed", ctypes.c_uint64),
        ("timeout", ctypes.c_double),
        ("counts", ctypes.c_void_p),
        ("report", ctypes.c_char_p),
        ("report_size", ctypes.c_size_t),
    ]


def loaded(binary: Path) -> ctypes.CDLL:
    """The library of a kernel. Raises Vanished where it has gone since it was compiled."""
    try:
        return ctypes.CDLL(str(binary))
    except OSError as error:
        if not binary.exists():
            raise Vanished(f"the kernel {binary} is gone: {error}", "give the command again") from error
        raise
