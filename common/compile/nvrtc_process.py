"""Processes that run NVRTC, started when they are needed and kept: one for each thread that compiles at a time."""

import os
import signal
import subprocess
import sys
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

from common.compile import nvrtc_worker
from common.compile.nvrtc_worker import Reply, Request
from common.errors import CompileError
from common.errors.machine import MEMORY, MachineError, of_system

OWN_FAULTS = (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL)  # by the text


class _Worker:
    """A process that ends when this one closes the connection, or ends."""

    def __init__(self) -> None:
        self._connection, theirs = Pipe()
        # Not by multiprocessing, which would import this program's main module there.
        command = [sys.executable, "-I", "-S", nvrtc_worker.__file__, str(theirs.fileno()), *libraries()]
        null: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
        with theirs:
            self.process = subprocess.Popen(command, pass_fds=[theirs.fileno()], **null)

    def ask(self, request: Request) -> Reply:
        """Raises CompileError if the text ends the process, MachineError if the machine has ended it."""
        try:
            self._connection.send(tuple(request))
            return Reply(*self._connection.recv())
        except (EOFError, OSError):
            code = self.process.wait()
        if -code in OWN_FAULTS:
            remedy = "correct the PTX in its asm statements: an mbarrier.init with 0 arrivals is known to do this"
            raise CompileError(f"NVRTC ends by {signal.Signals(-code).name}", remedy)
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        raise MachineError(f"the process of NVRTC was ended by {how}", MEMORY)

    def end(self) -> None:
        self._connection.close()
        self.process.kill()
        self.process.wait()


_IDLE: list[_Worker] = []
os.register_at_fork(after_in_child=_IDLE.clear)  # they are its parent's


def compiled(request: Request) -> Reply:
    """The reply of a worker; any number of threads may ask at once. Raises as _Worker.ask, or if none starts."""
    try:
        while (worker := _IDLE.pop()).process.poll() is not None:
            worker.end()
    except IndexError:
        try:
            worker = _Worker()
        except OSError as error:
            raise of_system(error, "the process of NVRTC does not start") from error
    try:
        reply = worker.ask(request)
    except BaseException:  # an interrupt as well: its reply would be taken for the next one's
        worker.end()
        raise
    _IDLE.append(worker)
    return reply


def libraries() -> list[str]:
    """Paths of NVRTC's libraries as this process has loaded them, that of NVRTC last."""
    lines = os.fsdecode(Path("/proc/self/maps").read_bytes()).splitlines()
    found = {line.split(maxsplit=5)[5] for line in lines if "/libnvrtc" in line}
    return sorted(found, key=lambda path: "builtins" not in path)
