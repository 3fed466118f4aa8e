"""Buffers between inaccessible pages, for devices on a CPU: an access outside stops the kernel at its line.

A buffer rarely fills its pages, so it touches the inaccessible ones with one end only. The rest of its pages, on the
other side, holds a canary, which is NaN in bf16 and in fp32.
"""

import ctypes
import mmap
import os
from contextlib import suppress

import torch

from common.errors import LabError

GUARD_BYTES = 16 << 20  # inaccessible on each side of a buffer; they take addresses and no memory
ALIGN = 256  # bytes, as for the start of a buffer on a GPU
CANARY = 0xFFA5 - 0x10000  # as int16: 0xFFA5 is a NaN in bf16, and 0xFFA5FFA5 one in fp32
NO_ACCESS = 0  # PROT_NONE, missing in the module mmap


class GuardedBuffer:
    """A tensor of `size` elements between inaccessible pages.

    at_end: its last byte lies at the end of its pages, as far as ALIGN allows; else its first byte at their start.
    start, bytes: the tensor's place in the mapping.
    """

    def __init__(self, size: int, dtype: torch.dtype, at_end: bool = True) -> None:
        self.bytes = size * dtype.itemsize
        padded = -(-self.bytes // ALIGN) * ALIGN
        self._pages = -(-padded // mmap.PAGESIZE) * mmap.PAGESIZE
        self.start = GUARD_BYTES + (self._pages - padded if at_end else 0)
        mapping = mmap.mmap(-1, self._pages + 2 * GUARD_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        with suppress(OSError):  # a kernel without them
            mapping.madvise(mmap.MADV_HUGEPAGE)  # else the weights have a million pages
        self._raw = torch.frombuffer(mapping, dtype=torch.int16)
        first, last, end = GUARD_BYTES // 2, (GUARD_BYTES + self._pages) // 2, (self.start + self.bytes) // 2
        self._ends = self._raw[first : self.start // 2], self._raw[end:last]
        for canary in self._ends:
            canary.fill_(CANARY)
        self.tensor = self._raw[self.start // 2 : end].view(dtype)
        self._protect(0, GUARD_BYTES, NO_ACCESS)
        self._protect(GUARD_BYTES + self._pages, GUARD_BYTES, NO_ACCESS)

    def freeze(self) -> None:
        """Make the tensor read-only: any write to it is a fault, in a kernel and in Python."""
        self._protect(GUARD_BYTES, self._pages, mmap.PROT_READ)

    def intact(self) -> bool:
        return all(bool((end == CANARY).all()) for end in self._ends)

    def _protect(self, start: int, size: int, access: int) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        at = ctypes.c_void_p(self._raw.data_ptr() + start)
        if libc.mprotect(at, ctypes.c_size_t(size), access) != 0:
            raise LabError(
                f"the system refuses to protect a buffer of the kernel: {os.strerror(ctypes.get_errno())}",
                "close other sessions, or raise vm.max_map_count",
            )
