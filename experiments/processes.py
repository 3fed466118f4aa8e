"""Calls in processes of their own, which answer by messages and end with their parent."""

import contextlib
import faulthandler
import os
import resource
import signal
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from multiprocessing import current_process, get_context, parent_process, resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.reduction import recv_handle, send_handle
from typing import Any

from common import ROOT
from common.errors import Crashed, Hung
from common.errors.machine import of_system

SPAWN: Any = get_context("spawn")
ENDING_S = 2.0  # between the end of a child's connection and its own
STACKS_S = 0.2  # time for faulthandler to write the stacks of all threads
REPORT = 8000  # bytes of the end of stderr
# Parts of messages with which libraries report that memory is exhausted: in an exception, or on stderr.
OUT_OF_MEMORY = ("bad_alloc", "allocate memory", "out of memory", "OutOfMemory", "MemoryError")


class Child:
    """`work(connection, *arguments)` in a new process, in a session of its own; it ends with this process.

    connection: to `self.connection`; messages and arguments are pickled. What it prints goes to stderr.
    environment: beside this process's. keep: stderr is kept for the report; otherwise it is this process's.
    context: of multiprocessing. Raises MachineError where it cannot be started.
    """

    def __init__(
        self,
        work: Callable[..., Any],
        *arguments: Any,
        environment: Mapping[str, str] | None = None,
        keep: bool = False,
        context: Any = None,
    ) -> None:
        context = context or SPAWN
        self._stderr = tempfile.TemporaryFile() if keep else None  # noqa: SIM115  closed with the child
        self._killed = False
        self.connection, theirs = context.Pipe()
        begin = (theirs, keep, {**os.environ, **(environment or {})})
        self._process = context.Process(target=_begin, args=begin, daemon=True)  # it is ended at exit, at the latest
        try:
            with theirs, _interrupts_wait():
                self._process.start()
        except OSError as error:
            raise of_system(error, "a process does not start") from error
        with contextlib.suppress(OSError):
            if self._stderr:
                send_handle(self.connection, self._stderr.fileno(), self.pid)
            self.connection.send((work, arguments))

    @property
    def pid(self) -> int:
        return self._process.ident or 0

    def send(self, message: Any) -> None:
        """Send one message. The loss of a child that has ended is noticed where its messages are received."""
        with contextlib.suppress(OSError):
            self.connection.send(message)

    def stacks(self) -> None:
        """Let the child write the stack of each thread to stderr."""
        os.kill(self.pid, signal.SIGUSR1)
        time.sleep(STACKS_S)

    def kill(self) -> None:
        """SIGKILL the process and all that it has started, such as compilers; only once, since its id may be reused."""
        if not self._killed:
            self._killed = True
            self._process.kill()
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
            self._process.join()

    def code(self) -> int:
        """The exit code once the connection is closed, or after `kill`; below 0 a signal. Kills what is left of it."""
        self._process.join(ENDING_S)
        self.kill()
        return self._process.exitcode or 0

    def report(self) -> str:
        """The end of its stderr; "" where that was passed on."""
        if self._stderr is None:
            return ""
        size = self._stderr.seek(0, os.SEEK_END)
        self._stderr.seek(max(0, size - REPORT))
        return self._stderr.read().decode(errors="replace").replace(f"{ROOT}{os.sep}", "")

    def close(self) -> None:
        """End the child, and give back its files."""
        self.kill()
        self.connection.close()
        if self._stderr:
            self._stderr.close()


def apart(seconds: float, work: Callable[..., Any], *arguments: Any, context: Any = None) -> Any:
    """`work(*arguments)` in a `Child`, which ends with all that it has started.

    Raises Hung after `seconds`, Crashed where the process ends without an answer, and what `work` raises.
    """
    child = Child(_answer, work, arguments, context=context)
    try:
        if not child.connection.poll(seconds):
            raise Hung(f"not finished after {seconds:g} s", "raise timeout_s", "")
        found, error = child.connection.recv()
    except EOFError:
        raise Crashed(f"its process ended by {cause_of(child.code())}", "see what it printed") from None
    finally:
        child.close()
    if error:
        raise error
    return found


@contextlib.contextmanager
def _interrupts_wait() -> Iterator[None]:
    """Block Ctrl-C while a process starts, which inherits the mask; this process handles it afterwards."""
    in_main, came = threading.current_thread() is threading.main_thread(), list[int]()
    resource_tracker.ensure_running()  # its start would end the mask
    before = signal.signal(signal.SIGINT, lambda number, _: came.append(number)) if in_main else None
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        if in_main:
            signal.signal(signal.SIGINT, before)
        if came:
            signal.raise_signal(signal.SIGINT)


def _answer(parent: Connection, work: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    try:
        parent.send((work(*arguments), None))
    except Exception as error:
        traceback.print_exc()
        parent.send((None, error))


def _begin(parent: Connection, keep: bool, environment: Mapping[str, str]) -> None:
    """In the child: work, and end with the parent. SIGUSR1 writes the stack of each thread to stderr."""
    os.setsid()  # its children are killed with it
    current_process().daemon = False  # it may have some
    threading.Thread(target=_end_with_parent, daemon=True).start()
    os.environ.clear()
    os.environ.update(environment)
    if keep:
        os.dup2(recv_handle(parent), 2)
    os.dup2(2, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(EOFError):
        work, arguments = parent.recv()  # here, as libraries that it imports read the environment
        work(parent, *arguments)


def _end_with_parent() -> None:
    parent = parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os.killpg(0, signal.SIGKILL)


def cause_of(code: int) -> str:
    """The signal or the exit code by which a process has ended."""
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"
