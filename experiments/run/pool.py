"""Pool of worker processes: a worker that crashes, hangs or runs out of memory loses only its own job."""

import contextlib
import json
import os
import re
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from common import ROOT
from common.errors import LabError
from common.errors.machine import MachineError
from experiments.run.worker import OUT_OF_MEMORY

COMMAND = (sys.executable, "-m", "experiments.run.worker")
GRACE = 2.0  # seconds after its deadline in which a worker may still report by itself
FAILED_STARTS = 3  # consecutive workers that end before they are ready; then the run stops
STDERR_TAIL = 8000  # characters of stderr that go into a record's report
EXTERNAL = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)  # signals that another process sends
SHOW = "see the report in its record"

Event = Mapping[str, Any]
Notify = Callable[[int | None, str, str], None]


class WorkerProcess:
    """One child process in its own process group, started without a shell. `job`: index of its current job."""

    def __init__(self, setup: Event, environment: Mapping[str, str]) -> None:
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115  closed with the worker
        self._process = subprocess.Popen(
            COMMAND,
            cwd=ROOT,
            env=os.environ | environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            start_new_session=True,
        )
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        self._stdin, self._stdout = stdin, stdout
        os.set_blocking(self.stdout, False)
        self._partial_line = b""
        self._oom_kills = _oom_kills()
        self.job: int | None = None
        self.device: Event = {}  # content of its `ready` event
        self.step, self.deadline = "start", float("inf")  # deadline: in seconds of time.monotonic()
        self.send(setup)

    @property
    def stdout(self) -> int:
        return self._stdout.fileno()

    def send(self, request: Event) -> None:
        """Write one request. The loss of a worker that has ended is handled when its events are read."""
        try:
            self._stdin.write(json.dumps(request).encode() + b"\n")
            self._stdin.flush()
        except BrokenPipeError:
            pass

    def events(self) -> list[Event] | None:
        """Events since the last call; None when the worker has ended and every event was returned."""
        try:
            received = os.read(self.stdout, 1 << 20)
        except BlockingIOError:
            return []
        if not received:
            return None
        *lines, self._partial_line = (self._partial_line + received).split(b"\n")
        return [json.loads(line) for line in lines]

    def kill(self) -> None:
        """SIGKILL the process and the compilers it has started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def close(self) -> None:
        self.kill()
        for stream in (self._stdin, self._stdout, self._stderr):
            with contextlib.suppress(BrokenPipeError):
                stream.close()

    def stop_hung(self, seconds: float) -> dict[str, str]:
        """Kill a worker that is past its deadline; returns the findings, with the stack of every thread as report."""
        try:
            os.kill(self._process.pid, signal.SIGUSR1)
            time.sleep(0.2)  # faulthandler writes the stacks to stderr
        except ProcessLookupError:
            pass
        self.kill()
        report = self._stderr_tail()
        frame = re.search(r"Current thread .*\n\s*(File .*)", report)
        place = f" ({frame[1]})" if frame else ""
        reason = f"not finished after {seconds:g} s, at: {self.step}{place}; {SHOW}, or raise timeout_s"
        return {"status": "HUNG", "reason": reason, "report": report}

    def cause_of_death(self) -> dict[str, str]:
        """Findings of a worker that ended without sending any: CRASHED, OOM or INTERRUPTED."""
        code, report = self._process.wait(), self._stderr_tail()
        self.kill()  # compilers that it has started may still run
        cause = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        status, remedy = "CRASHED", SHOW
        killed_by_kernel = code == -signal.SIGKILL and _oom_kills() > self._oom_kills
        if killed_by_kernel or any(text in report for text in OUT_OF_MEMORY):
            status, remedy = "OOM", "free memory, or take a smaller model or fewer positions"
        elif -code in EXTERNAL:
            status, remedy = "INTERRUPTED", "another process sent the signal; resume=true runs the stack again"
        first = next((f": {line.strip()}" for line in report.splitlines() if line.strip()), "")
        reason = f"the process ended by {cause}, at: {self.step}{first}; {remedy}"
        return {"status": status, "reason": reason, "report": report}

    def _stderr_tail(self) -> str:
        size = self._stderr.seek(0, os.SEEK_END)
        self._stderr.seek(max(0, size - STDERR_TAIL))
        return self._stderr.read().decode(errors="replace").replace(f"{ROOT}{os.sep}", "")


class Pool:
    """At most one worker for each of `environments`. A worker that ends is replaced if jobs are left.

    setup: the first request of every worker. seconds: limit for one job, counted from its first `begin` event.
    """

    def __init__(self, setup: Event, environments: Sequence[Mapping[str, str]], seconds: float) -> None:
        self._setup, self._seconds = setup, seconds
        self._free = list(environments)
        self._workers: dict[WorkerProcess, Mapping[str, str]] = {}
        self._selector = selectors.DefaultSelector()
        self._jobs: Sequence[Event] = ()
        self._queue: deque[int] = deque()
        self._ready: list[Event] = []
        self._failed_starts = 0
        self._fits: Callable[[int], bool] = lambda job: True

    def __enter__(self) -> "Pool":
        return self

    def __exit__(self, *error: object) -> None:
        for worker in list(self._workers):
            self._remove(worker)
        self._selector.close()

    @property
    def running(self) -> list[int]:
        """Indexes of the jobs that workers have now."""
        return [worker.job for worker in self._workers if worker.job is not None]

    def describe(self) -> Event:
        """The device, as the first worker that is ready describes it. Raises LabError when no worker starts."""
        while not self._ready:
            self._start(1)
            for _ in self._receive(lambda job, kind, text: None):
                pass
        return self._ready[0]

    def run(
        self, jobs: Sequence[Event], notify: Notify, fits: Callable[[int], bool] = lambda job: True
    ) -> Iterator[tuple[int, Event, Event]]:
        """(index of the job, description of the device, findings) of each job as it ends.

        fits: asked when a worker is free for a job; one that does not fit is never begun.
        notify: called with a job's index (None for a worker that starts), `begin`, `detail` or `note`, and the text.
        Raises LabError when no worker starts.
        """
        self._jobs, self._queue, self._fits = jobs, deque(range(len(jobs))), fits
        for worker in self._workers:
            if worker.step == "ready":
                self._assign(worker)
        while self._queue or self.running:
            self._start(len(self._queue) + len(self.running))
            yield from self._receive(notify)

    def _start(self, wanted: int) -> None:
        while self._free and len(self._workers) < wanted:
            environment = self._free.pop(0)
            worker = WorkerProcess(self._setup, environment)
            worker.deadline = time.monotonic() + self._seconds
            self._workers[worker] = environment
            self._selector.register(worker.stdout, selectors.EVENT_READ, worker)

    def _assign(self, worker: WorkerProcess) -> None:
        worker.step, worker.deadline = "ready", float("inf")
        while self._queue and worker.job is None:
            job = self._queue.popleft()
            worker.job = job if self._fits(job) else None
        if worker.job is not None:
            worker.send({**self._jobs[worker.job], "seconds": self._seconds})

    def _receive(self, notify: Notify) -> Iterator[tuple[int, Event, Event]]:
        """Wait for the next event or the next deadline, and handle it."""
        nearest = min((worker.deadline for worker in self._workers), default=float("inf"))
        timeout = None if nearest == float("inf") else max(0.0, nearest + GRACE - time.monotonic())
        for chosen, _ in self._selector.select(timeout):
            worker = chosen.data
            events = worker.events()
            for event in events or ():
                yield from self._handle(worker, event, notify)
            if events is None:
                yield from self._end(worker, worker.cause_of_death())
        for worker in [worker for worker in self._workers if time.monotonic() > worker.deadline + GRACE]:
            yield from self._end(worker, worker.stop_hung(self._seconds))

    def _handle(self, worker: WorkerProcess, event: Event, notify: Notify) -> Iterator[tuple[int, Event, Event]]:
        ((kind, content),) = event.items()
        if kind == "ready":
            worker.device = content
            self._ready.append(content)
            self._failed_starts = 0
            self._assign(worker)
        elif kind in ("error", "machine"):
            raise (MachineError if kind == "machine" else LabError)(*content)
        elif kind in ("done", "spent"):
            job, worker.job = worker.job, None
            assert job is not None  # a worker answers only to a job
            if kind == "spent":
                self._remove(worker)
            yield job, worker.device, content
            if kind == "done":
                self._assign(worker)
        else:
            if kind == "begin":
                worker.step = content
                worker.deadline = min(worker.deadline, time.monotonic() + self._seconds)
            notify(worker.job, kind, content)

    def _end(self, worker: WorkerProcess, found: Event) -> Iterator[tuple[int, Event, Event]]:
        """Remove a worker that crashed or hung; `found` becomes the findings of its job."""
        job, device = worker.job, worker.device
        self._remove(worker)
        if job is not None:
            yield job, device, found
        elif worker.step == "start":
            self._failed_starts += 1
            if self._failed_starts == FAILED_STARTS:
                raise LabError(f"a worker does not start: {found['reason']}", f"its stderr: {found['report'][-500:]}")

    def _remove(self, worker: WorkerProcess) -> None:
        self._selector.unregister(worker.stdout)
        self._free.append(self._workers.pop(worker))
        worker.close()


def _oom_kills() -> int:
    """Processes that the Linux OOM killer has ended since this machine started."""
    try:
        lines = Path("/proc/vmstat").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)
