"""One step as a process: it ends at the deadline at the latest, and with the command that started it."""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from threading import Thread

from common import ROOT
from common.config import budget

TAIL = 30  # lines of output that are kept
GRACE = 3.0  # seconds between SIGTERM, at which a sweep records what it has, and SIGKILL
LOOK = 1.0  # seconds after which the clock is looked at again
PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class Ended:
    """End of a process. code: its exit code, None where it was stopped at the deadline; tail: its last lines."""

    code: int | None
    tail: str


def execute(argv: Sequence[str], seconds: float) -> Ended:
    """Run `python -m argv` in the root for at most `seconds`; what it prints goes to stderr.

    It is in its own process group, and is killed when this process ends, however it ends: a step that went on would
    use the GPU beside the next call.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", *argv],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
        preexec_fn=_die_with_parent,
    )
    tail: deque[str] = deque(maxlen=TAIL)
    reader = Thread(target=_relay, args=(process, tail), daemon=True)
    reader.start()
    code: int | None = None
    until = budget.clock() + seconds - GRACE
    try:
        while code is None and (left := until - budget.clock()) > 0:
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = process.wait(min(left, LOOK))
    finally:
        _stop(process)
        reader.join(GRACE)
    return Ended(code, "".join(tail))


def _relay(process: "subprocess.Popen[str]", tail: "deque[str]") -> None:
    assert process.stdout is not None
    for line in process.stdout:
        tail.append(line)
        sys.stderr.write(line)


def _stop(process: "subprocess.Popen[str]") -> None:
    """End the process and what it has started; a sweep's workers end with it."""
    if process.poll() is None:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(GRACE)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
