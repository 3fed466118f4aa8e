"""Faults of the hardware on request: the environment variable STANDIN_FAULT, read in every process.

STANDIN_FAULT="KIND TEXT; KIND@COUNT TEXT" applies KIND to kernels with TEXT in their source, such as
variants/vec128.cu; with a COUNT, from that launch of theirs on, 1 being the first:
  trap      the launch fails: an error at the next wait, and at every call after it
  oom       no memory can be allocated once such a kernel is loaded
  wrong     the launch leaves one wrong bit in its result
  lost      the launch loses the GPU: every call fails, also in later processes while STANDIN_LOST names a file
  hang      the launch returns and never finishes: a thread that waits for it blocks in C
  blocked   the launch call itself blocks in C
"""

import ctypes
import os
from dataclasses import dataclass
from pathlib import Path

KINDS = ("trap", "oom", "wrong", "lost", "hang", "blocked")


@dataclass(frozen=True)
class Fault:
    """Fault of a kernel, from its launch number `first` on."""

    kind: str
    first: int


def fault_of(text: str) -> Fault | None:
    """The fault of the kernels of this source."""
    for given in filter(None, os.environ.get("STANDIN_FAULT", "").split(";")):
        what, _, part = given.strip().partition(" ")
        kind, _, count = what.partition("@")
        if kind not in KINDS or not part:
            raise ValueError(f"STANDIN_FAULT={given}: give one of {', '.join(KINDS)}, and a part of a kernel's text")
        if part in text:
            return Fault(kind, int(count or 1))
    return None


def lost() -> bool:
    """True if an earlier process has lost the GPU."""
    marker = os.environ.get("STANDIN_LOST")
    return bool(marker) and Path(marker).exists()


def lose() -> None:
    if marker := os.environ.get("STANDIN_LOST"):
        Path(marker).touch()


def block_in_c() -> None:
    """Never return, and let no Python code of this thread run: a signal's handler must wait, as in a CUDA call."""
    mutex, c = ctypes.create_string_buffer(64), ctypes.CDLL(None)
    c.pthread_mutex_lock(mutex)
    c.pthread_mutex_lock(mutex)
