"""Worker processes: each job in one, several at once; whatever happens to a process costs only the job it had."""

import contextlib
import json
import os
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

from common.errors import LabError

ROOT = Path(__file__).resolve().parent.parent
COMMAND = (sys.executable, "-m", "experiments.worker")
GRACE = 2.0  # seconds after its time in which a worker may still report by itself
STARTS = 3  # workers that end before they are ready, one after another, until the run is given up
LAST_WORDS = 8000  # characters of stderr that go into a report
FULL = ("bad_alloc", "allocate memory", "MemoryError")
OUTSIDE = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)  # what a process does not do to itself

Event = Mapping[str, Any]


class Worker:
    """One child process, in a process group of its own, without a shell; `job` is what it works at."""

    def __init__(self, setup: Event, environment: Mapping[str, str]) -> None:
        self._said = tempfile.TemporaryFile()  # noqa: SIM115  closed with the worker
        self._process = subprocess.Popen(
            COMMAND,
            cwd=ROOT,
            env=os.environ | environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            start_new_session=True,
        )
        os.set_blocking(self.stdout, False)
        self._rest = b""
        self._kills = _oom_kills()
        self.job: int | None = None
        self.device: Event = {}  # what it said when it was ready
        self.step, self.end = "start", float("inf")
        self.send(setup)

    @property
    def stdout(self) -> int:
        return self._process.stdout.fileno()

    def send(self, request: Event) -> None:
        """Ask; a worker that is gone is noticed when it is listened to."""
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass

    def events(self) -> list[Event] | None:
        """What it has said since; None once it has ended and all is heard."""
        try:
            heard = os.read(self.stdout, 1 << 20)
        except BlockingIOError:
            return []
        if not heard:
            return None
        *lines, self._rest = (self._rest + heard).split(b"\n")
        return [json.loads(line) for line in lines]

    def kill(self) -> None:
        """End the process and the compilers it has started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def close(self) -> None:
        self.kill()
        for stream in (self._process.stdin, self._process.stdout, self._said):
            with contextlib.suppress(BrokenPipeError):
                stream.close()

    def hung(self, seconds: float) -> dict[str, str]:
        """End a worker that is past its time; says where it stood."""
        try:
            os.kill(self._process.pid, signal.SIGUSR1)
            time.sleep(0.2)  # it writes down where it stands
        except ProcessLookupError:
            pass
        self.kill()
        reason = f"not done after {seconds:g} s, at: {self.step}; see the record's report, or raise timeout_s"
        return {"status": "HUNG", "reason": reason, "report": self._last_words()}

    def died(self) -> dict[str, str]:
        """Why a worker ended without an answer."""
        code, words = self._process.wait(), self._last_words()
        self.kill()  # what it started may still run
        what = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        status, remedy = "CRASHED", "see the record's report"
        if any(word in words for word in FULL) or (code == -signal.SIGKILL and _oom_kills() > self._kills):
            status, remedy = "OOM", "free memory, or take a smaller model or fewer positions"
        elif -code in OUTSIDE:
            status, remedy = "INTERRUPTED", "somebody ended it; resume=true runs it again"
        return {"status": status, "reason": f"the process ended by {what}, at: {self.step}; {remedy}", "report": words}

    def _last_words(self) -> str:
        size = self._said.seek(0, os.SEEK_END)
        self._said.seek(max(0, size - LAST_WORDS))
        return self._said.read().decode(errors="replace").replace(f"{ROOT}{os.sep}", "")


class Pool:
    """Up to one worker for each of `environments`; a worker that ends is replaced when there is work for another.

    setup: the first request of every worker. seconds: of one job, from its first sign of life on.
    """

    def __init__(self, setup: Event, environments: Sequence[Mapping[str, str]], seconds: float) -> None:
        self._setup, self._seconds = setup, seconds
        self._free = list(environments)
        self._workers: dict[Worker, Mapping[str, str]] = {}
        self._selector = selectors.DefaultSelector()
        self._jobs: Sequence[Event] = ()
        self._waiting: deque[int] = deque()
        self._ready: list[Event] = []
        self._failed = 0

    def __enter__(self) -> "Pool":
        return self

    def __exit__(self, *error: object) -> None:
        for worker in list(self._workers):
            self._drop(worker)
        self._selector.close()

    @property
    def running(self) -> list[int]:
        """Indexes of the jobs that are under way."""
        return [worker.job for worker in self._workers if worker.job is not None]

    def describe(self) -> Event:
        """What the first worker says when it is ready. Raises LabError when none gets so far."""
        while not self._ready:
            self._start(1)
            for _ in self._listen(lambda job, kind, text: None):
                pass
        return self._ready[0]

    def run(self, jobs: Sequence[Event], tell: Callable[[int, str, str], None]) -> Iterator[tuple[int, Event, Event]]:
        """(index of the job, what `ready` said, findings) of each job as it ends.

        tell: is given a job's index, `begin`, `detail` or `note`, and the text. Raises LabError when no worker starts.
        """
        self._jobs, self._waiting = jobs, deque(range(len(jobs)))
        for worker in self._workers:
            if worker.step == "ready":
                self._assign(worker)
        while self._waiting or self.running:
            self._start(len(self._waiting) + len(self.running))
            yield from self._listen(tell)

    def _start(self, wanted: int) -> None:
        while self._free and len(self._workers) < wanted:
            environment = self._free.pop(0)
            worker = Worker(self._setup, environment)
            worker.end = time.monotonic() + self._seconds
            self._workers[worker] = environment
            self._selector.register(worker.stdout, selectors.EVENT_READ, worker)

    def _assign(self, worker: Worker) -> None:
        worker.step, worker.end = "ready", float("inf")
        if self._waiting:
            worker.job = self._waiting.popleft()
            worker.send(self._jobs[worker.job] | {"seconds": self._seconds})

    def _listen(self, tell: Callable[[int, str, str], None]) -> Iterator[tuple[int, Event, Event]]:
        """Wait for the next events, or for the end of somebody's time."""
        nearest = min((worker.end for worker in self._workers), default=float("inf"))
        patience = None if nearest == float("inf") else max(0.0, nearest + GRACE - time.monotonic())
        for chosen, _ in self._selector.select(patience):
            worker = chosen.data
            events = worker.events()
            for event in events or ():
                yield from self._hear(worker, event, tell)
            if events is None:
                yield from self._lose(worker, worker.died())
        for worker in [worker for worker in self._workers if time.monotonic() > worker.end + GRACE]:
            yield from self._lose(worker, worker.hung(self._seconds))

    def _hear(
        self, worker: Worker, event: Event, tell: Callable[[int, str, str], None]
    ) -> Iterator[tuple[int, Event, Event]]:
        ((kind, content),) = event.items()
        if kind == "ready":
            worker.device = content
            self._ready.append(content)
            self._failed = 0
            self._assign(worker)
        elif kind == "error":
            raise LabError(*content)
        elif kind in ("done", "spent"):
            job, worker.job = worker.job, None
            if kind == "spent":
                self._drop(worker)
            yield job, worker.device, content
            if kind == "done":
                self._assign(worker)
        else:
            if kind == "begin":
                worker.step = content
                worker.end = min(worker.end, time.monotonic() + self._seconds)
            tell(worker.job, kind, content)

    def _lose(self, worker: Worker, found: Event) -> Iterator[tuple[int, Event, Event]]:
        job, device = worker.job, worker.device
        self._drop(worker)
        if job is not None:
            yield job, device, found
        elif worker.step == "start" and self._starts_fail():
            raise LabError(f"a worker does not start: {found['reason']}", f"its last words: {found['report'][-500:]}")

    def _starts_fail(self) -> bool:
        self._failed += 1
        return self._failed == STARTS

    def _drop(self, worker: Worker) -> None:
        self._selector.unregister(worker.stdout)
        self._free.append(self._workers.pop(worker))
        worker.close()


def _oom_kills() -> int:
    """How often the kernel has ended a process for want of memory since this machine started."""
    try:
        lines = Path("/proc/vmstat").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)
