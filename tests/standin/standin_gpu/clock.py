"""The virtual clock of a dry run under a budget: one for all its processes, kept in the file that STANDIN_CLOCK names.

A Python process that starts lets PROCESS seconds pass, work of the GPU its own seconds, and the lab's kernels LONGER
times as many, as a real model is larger than a test's. Nothing else takes time. The clock stops at its last second:
a process that would let it pass waits to be killed. Budgets read it in place of time.monotonic.
"""

import fcntl
import os
import struct
import time
from pathlib import Path

PROCESS = 2.0
LONGER = 4000.0
LEAST = 0.2  # seconds that a process keeps for itself before it lets them pass for all
SECONDS = struct.Struct("dd")  # now, and the last one
_reached = _kept = 0.0


def make(path: Path, last: float) -> None:
    """A clock at 0 that stops at `last`."""
    path.write_bytes(SECONDS.pack(0.0, last))


def read(path: Path) -> float:
    """The second that a clock shows."""
    return SECONDS.unpack(path.read_bytes())[0]


def install() -> None:
    """If there is a virtual clock, budgets of this process, which has just been started, go by it."""
    if "STANDIN_CLOCK" in os.environ:
        from common.config import budget

        budget.clock = now
        _let_pass(PROCESS)


def now() -> float:
    global _kept
    kept, _kept = _kept, 0.0
    return _let_pass(kept)


def gpu_reached(second: float) -> None:
    """The GPU of this process has worked until `second` of its own."""
    global _reached
    _reached, before = second, _reached
    passed(second - before)


def passed(seconds: float) -> None:
    """So many seconds more."""
    global _kept
    _kept += seconds
    if _kept >= LEAST and "STANDIN_CLOCK" in os.environ:
        now()


def _let_pass(seconds: float) -> float:
    """The time after so many seconds."""
    while True:
        with open(os.environ["STANDIN_CLOCK"], "r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            at, last = SECONDS.unpack(file.read())
            if not seconds or at + seconds <= last:
                file.seek(0)
                file.write(SECONDS.pack(at + seconds, last))
                return at + seconds
            file.seek(0)
            file.write(SECONDS.pack(last, last))
        time.sleep(1000)
