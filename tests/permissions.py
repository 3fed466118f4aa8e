"""Root may read and write everything. Without two capabilities it is like anybody, and permissions can be tested."""

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

VERSION = 0x20080522  # _LINUX_CAPABILITY_VERSION_3: two words of 32 capabilities each
DAC_OVERRIDE, DAC_READ_SEARCH = 1 << 1, 1 << 2


class _Header(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint32), ("pid", ctypes.c_int)]


class _Data(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint32) for name in ("effective", "permitted", "inheritable")]


@contextmanager
def as_anybody() -> Iterator[None]:
    """Take the capabilities off this thread and give them back; see capset(2). Skips where that is not allowed."""
    if os.geteuid() != 0:
        yield
        return
    libc = ctypes.CDLL(None, use_errno=True)
    header, data = _Header(VERSION, 0), (_Data * 2)()
    if libc.capget(ctypes.byref(header), data):
        pytest.skip(f"root, and capget fails: {os.strerror(ctypes.get_errno())}")
    before = data[0].effective
    data[0].effective = before & ~(DAC_OVERRIDE | DAC_READ_SEARCH)
    if libc.capset(ctypes.byref(header), data):
        pytest.skip(f"root, and capset fails: {os.strerror(ctypes.get_errno())}")
    try:
        yield
    finally:
        data[0].effective = before
        assert libc.capset(ctypes.byref(header), data) == 0
