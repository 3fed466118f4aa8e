"""File permissions in tests that run as root: without two capabilities root is refused like any other user."""

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
def without_root_rights() -> Iterator[None]:
    """Drop the capabilities of this thread and restore them after the block; see capset(2). Skips if not allowed."""
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
