"""The worker process as the server sees it: lines of JSON to its stdin and from its stdout."""

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from common import ROOT
from common.errors import LabError

COMMAND = (sys.executable, "-m", "experiments.serving.worker")
LINE = 1 << 24  # bytes of the longest line of a worker
ENDING_S = 2.0  # between the end of a worker's stdout and its own
Event = Mapping[str, Any]


class Child:
    """One worker, in a process group of its own; its stderr is the server's. Make it with `Child.start`."""

    def __init__(self, process: asyncio.subprocess.Process, about: Event) -> None:
        self._process, self.about, self._killed = process, about, False

    @classmethod
    async def start(cls, first: Event, command: Sequence[str] = COMMAND) -> "Child":
        """A worker that is ready; `first` is its first request. Raises LabError if it cannot become so."""
        pipe = asyncio.subprocess.PIPE
        try:
            process = await asyncio.create_subprocess_exec(
                *command, cwd=ROOT, stdin=pipe, stdout=pipe, start_new_session=True, limit=LINE
            )
        except OSError as error:
            raise LabError(f"no worker starts: {error}", "free memory, or end other processes") from None
        child = cls(process, {})
        try:
            child.send(first)
            event = await child.read()
            if event is None:
                raise LabError(f"the worker ended before it was ready: {child.end}", "see its messages above")
            if "error" in event:
                raise LabError(*event["error"])
        except BaseException:
            await child.close()
            raise
        child.about = event["ready"]
        return child

    @property
    def alive(self) -> bool:
        return self._process.returncode is None

    @property
    def end(self) -> str:
        """End of the process."""
        code = self._process.returncode
        return "still running" if code is None else signal.Signals(-code).name if code < 0 else f"exit code {code}"

    def send(self, request: Event) -> None:
        """Write one request. The loss of a worker that has ended is noticed by `read`."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request).encode() + b"\n")

    async def read(self) -> Event | None:
        """The next event; None once the process has ended, or says what is none and is ended for that."""
        assert self._process.stdout is not None
        with contextlib.suppress(ValueError):  # of JSON, or of a line that is too long
            line = await self._process.stdout.readline()
            if line.endswith(b"\n"):
                return json.loads(line)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._process.wait(), ENDING_S)
        await self.close()  # compilers that it has started may still run
        return None

    async def wait(self) -> None:
        """Until the process has ended."""
        await self._process.wait()

    def kill(self) -> None:
        """SIGKILL the process and the compilers that it has started; once, since the number may be another's then."""
        if not self._killed:
            self._killed = True
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    async def close(self) -> None:
        """End the process and wait for that."""
        self.kill()
        await self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()
