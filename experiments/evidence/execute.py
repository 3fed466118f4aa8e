"""One step as a process: it ends at the deadline at the latest, and with the command that started it."""

import ctypes
import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from threading import Thread
from typing import TextIO

from common import ROOT
from common.config import budget
from common.errors.machine import of_system

TAIL = 30  # lines of output that are kept
GRACE = 3.0  # seconds between SIGTERM, at which a sweep records its findings, and SIGKILL
LOOK = 1.0  # seconds between two looks at the clock
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
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", *argv],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
            preexec_fn=partial(ctypes.CDLL(None).prctl, PR_SET_PDEATHSIG, signal.SIGKILL),  # with this process
        )
    except OSError as error:
        raise of_system(error, f"{argv[0]} does not start") from error
    tail: deque[str] = deque(maxlen=TAIL)
    reader = Thread(target=_relay, args=(process.stdout, tail), daemon=True)
    reader.start()
    until = budget.clock() + seconds - GRACE
    try:
        while (code := process.poll()) is None and (left := until - budget.clock()) > 0:
            _wait(process, min(left, LOOK))
    finally:
        if process.poll() is None:
            process.terminate()
            _wait(process, GRACE)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # with all that it has started
        process.wait()
        reader.join(GRACE)
    return Ended(code, "".join(tail))


def _wait(process: "subprocess.Popen[str]", seconds: float) -> None:
    with suppress(subprocess.TimeoutExpired):
        process.wait(seconds)


def _relay(lines: TextIO, tail: "deque[str]") -> None:
    for line in lines:
        tail.append(line)
        sys.stderr.write(line)
