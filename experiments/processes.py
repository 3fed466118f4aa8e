"""Processes that the lab starts: modules that answer in lines of JSON, steps, and calls; each ends with its parent."""

import asyncio
import contextlib
import faulthandler
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from common import ROOT
from common.errors import Crashed, Hung
from common.errors.machine import of_system

SPAWN = get_context("spawn")
ENDING_S = 2.0  # between the end of a child's stdout and its own
STACKS_S = 0.2  # in which faulthandler writes the stacks of all threads
LONGEST_LINE = 1 << 26  # bytes
REPORT = 8000  # bytes of the end of stderr
EXTERNAL = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)  # signals that another process sends
# Parts of messages with which libraries report that memory is exhausted: in an exception, or on stderr.
OUT_OF_MEMORY = ("bad_alloc", "allocate memory", "out of memory", "OutOfMemory", "MemoryError")
Message = Mapping[str, Any]


class Process:
    """`python -m argv` in the lab's root, without a shell, in a session of its own. streams: of `subprocess.Popen`.

    Raises MachineError where it cannot be started.
    """

    def __init__(self, argv: Sequence[str], **streams: Any) -> None:
        try:
            self.popen = subprocess.Popen([sys.executable, "-m", *argv], cwd=ROOT, start_new_session=True, **streams)
        except OSError as error:
            raise of_system(error, f"{argv[0]} does not start") from error
        self._killed = False

    @property
    def alive(self) -> bool:
        return self.popen.poll() is None

    def wait(self, seconds: float) -> int | None:
        """The exit code; None for a process that is still running after `seconds`."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self.popen.wait(seconds)
        return None

    def kill(self) -> None:
        """SIGKILL the process and all that it has started; once, as its number may be another's later."""
        if not self._killed:
            self._killed = True
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.popen.pid, signal.SIGKILL)
            self.popen.wait()


@dataclass(frozen=True)
class Death:
    """End of a child. cause: its signal or exit code; report: the end of its stderr, "" where that was passed on.

    memory: there was too little. external: another process has sent the signal.
    """

    cause: str
    report: str
    memory: bool
    external: bool


class Child(Process):
    """A module that serves this process by `experiments.processes`: lines of JSON on its stdin and stdout.

    environment: added to this process's. keep: stderr is kept for the report; otherwise it is this process's.
    """

    def __init__(self, argv: Sequence[str], environment: Message | None = None, keep: bool = False) -> None:
        self._stderr = tempfile.TemporaryFile() if keep else None  # noqa: SIM115  closed with the child
        pipe, env = subprocess.PIPE, {**os.environ, **(environment or {})}
        super().__init__(argv, env=env, stdin=pipe, stdout=pipe, stderr=self._stderr)
        assert self.popen.stdin is not None
        assert self.popen.stdout is not None
        self._stdin, self._stdout = self.popen.stdin, self.popen.stdout
        os.set_blocking(self.fileno(), False)
        self._partial_line, self._unread = b"", deque[Message]()
        self._fault = ""
        self._oom_kills = _oom_kills()

    def fileno(self) -> int:
        """File to wait on for events."""
        return self._stdout.fileno()

    def send(self, message: Message) -> None:
        """Write one message. The loss of a child that has ended is noticed by `events`."""
        with contextlib.suppress(BrokenPipeError):
            self._stdin.write(json.dumps(message).encode() + b"\n")
            self._stdin.flush()

    def events(self) -> list[Message] | None:
        """Events since the last call, without waiting; None at end of file. Anything but JSON ends the child."""
        try:
            received = os.read(self.fileno(), 1 << 20)
        except BlockingIOError:
            return []
        if not received:
            return None
        *lines, self._partial_line = (self._partial_line + received).split(b"\n")
        try:
            if len(self._partial_line) <= LONGEST_LINE:
                return [json.loads(line) for line in lines]
            self._fault = f"a line of more than {LONGEST_LINE} bytes"
        except ValueError:
            self._fault = "a line that is no JSON"
        self.kill()
        return None

    async def read(self) -> Message | None:
        """The next event, for asyncio; None at end of file."""
        while not self._unread:
            events = self.events()
            if events is None:
                return None
            self._unread.extend(events)
            if not events:
                await self._readable()
        return self._unread.popleft()

    def stacks(self) -> None:
        """Let the child write the stack of each thread to stderr."""
        self.popen.send_signal(signal.SIGUSR1)
        time.sleep(STACKS_S)

    def death(self) -> Death:
        """The cause of the end, after `events` or `read` returned None or after `kill`; ends the rest of it."""
        code = self.wait(ENDING_S)
        self.kill()  # compilers that it has started may still run
        report = self._report()
        killed_for_memory = code == -signal.SIGKILL and _oom_kills() > self._oom_kills
        memory = killed_for_memory or any(text in report for text in OUT_OF_MEMORY)
        cause = self._fault or cause_of(self.popen.returncode)
        return Death(cause, report, memory, external=not self._fault and -(code or 0) in EXTERNAL)

    def close(self) -> None:
        """End the child, and give back its files."""
        self.kill()
        for stream in (self._stdin, self._stdout, self._stderr):
            with contextlib.suppress(BrokenPipeError):
                if stream:
                    stream.close()

    async def _readable(self) -> None:
        loop, ready, file = asyncio.get_running_loop(), asyncio.Event(), self.fileno()
        loop.add_reader(file, ready.set)
        try:
            await ready.wait()
        finally:
            loop.remove_reader(file)

    def _report(self) -> str:
        if self._stderr is None:
            return ""
        size = self._stderr.seek(0, os.SEEK_END)
        self._stderr.seek(max(0, size - REPORT))
        return self._stderr.read().decode(errors="replace").replace(f"{ROOT}{os.sep}", "")


class Parent:
    """The parent of this process, for a module started by `Child`.

    Messages come on stdin, events go to stdout: lines of JSON. Other output goes to stderr.
    receive: called by a thread with each message. SIGUSR1 writes the stack of each thread to stderr. When the parent
    ends, so does this process, with its compilers.
    """

    def __init__(self, receive: Callable[[Any], None]) -> None:
        self._stdout = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)  # output of a library or a kernel is not parsed as an event
        faulthandler.enable()
        faulthandler.register(signal.SIGUSR1)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        threading.Thread(target=self._listen, args=(receive,), daemon=True).start()

    def send(self, event: Mapping[str, Any]) -> None:
        """Write one event. Raises ValueError for a NaN, which JSON does not have."""
        print(json.dumps(event, allow_nan=False), file=self._stdout, flush=True)

    def _listen(self, receive: Callable[[Any], None]) -> None:
        for line in sys.stdin:
            receive(json.loads(line))
        os.killpg(os.getpid(), signal.SIGKILL)


def apart(seconds: float, work: Callable[..., Any], *arguments: Any, context: Any = SPAWN) -> Any:
    """`work(*arguments)` in a new process, which ends with all that it has started; arguments and answer are pickled.

    context: of multiprocessing. Raises Hung after `seconds`, Crashed where the process ends without an answer, and what
    `work` raises.
    """
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_answer, args=(theirs, work, arguments))
    process.start()
    theirs.close()
    try:
        if not ours.poll(seconds):
            raise Hung(f"not finished after {seconds:g} s", "raise timeout_s", "")
        found, error = ours.recv()
    except EOFError:
        process.join()
        raise Crashed(f"its process ended by {cause_of(process.exitcode or 0)}", "see what it printed") from None
    finally:
        process.kill()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.ident or -1, signal.SIGKILL)
        process.join()
        ours.close()
    if error:
        raise error
    return found


def _answer(to: Connection, work: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    os.setsid()  # its children are killed with it
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        to.send((work(*arguments), None))
    except Exception as error:
        traceback.print_exc()
        to.send((None, error))


def _end_with_parent() -> None:
    parent = parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os.killpg(0, signal.SIGKILL)


def cause_of(code: int) -> str:
    """The signal or the exit code by which a process has ended."""
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"


def _oom_kills() -> int:
    """Processes that the Linux OOM killer has ended since this machine started."""
    try:
        lines = Path("/proc/vmstat").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)
