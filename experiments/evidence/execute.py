"""One step as a process: it ends at the deadline at the latest, and with the command that started it."""

import ctypes
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from threading import Thread
from typing import TextIO

from common.config import budget
from experiments.processes import Process

TAIL = 30  # lines of output that are kept
GRACE = 3.0  # seconds between SIGTERM, at which a sweep records its findings, and SIGKILL
LOOK = 1.0  # seconds after which the clock is looked at again
PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class Ended:
    """End of a process. code: its exit code, None where it was stopped at the deadline; tail: its last lines."""

    code: int | None
    tail: str


def execute(argv: Sequence[str], seconds: float) -> Ended:
    """Run `python -m argv` in the root for at most `seconds`; its output goes to stderr.

    It is killed when this process ends, however it ends: a step that went on would use the GPU beside the next call.
    """
    process = Process(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        preexec_fn=_die_with_parent,
    )
    tail: deque[str] = deque(maxlen=TAIL)
    reader = Thread(target=_relay, args=(process.popen.stdout, tail), daemon=True)
    reader.start()
    code: int | None = None
    until = budget.clock() + seconds - GRACE
    try:
        while code is None and (left := until - budget.clock()) > 0:
            code = process.wait(min(left, LOOK))
    finally:
        if process.alive:
            process.popen.terminate()
            process.wait(GRACE)
        process.kill()
        reader.join(GRACE)
    return Ended(code, "".join(tail))


def _relay(lines: TextIO, tail: "deque[str]") -> None:
    for line in lines:
        tail.append(line)
        sys.stderr.write(line)


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
