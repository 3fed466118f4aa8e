"""Pool of worker processes: a worker that crashes, hangs or runs out of memory loses only its own job."""

import re
import signal
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from common.config.run_config import RunConfig
from common.errors import LabError
from experiments.processes import OUT_OF_MEMORY, Child, cause_of

GRACE = 2.0  # seconds after its deadline in which a worker may still report by itself
START_S = 60.0  # limit for a worker's start, if timeout_s is less: it imports torch and maps the weights
FAILED_STARTS = 3  # consecutive workers that end before they are ready; then the run stops
EXTERNAL = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)  # signals that another process sends
SPENT = ("HUNG", "CRASHED", "OOM")  # after these a thread, the CUDA context or the heap of a worker may be damaged
SHOW = "see the report in its record"

Message = Mapping[str, Any]
Notify = Callable[[int | None, str, str], None]


def _serve(parent: Connection, config: RunConfig, weights: str) -> None:
    from experiments.run.worker import serve  # imports torch, which this process does without

    serve(parent, config, weights)


class Worker(Child):
    """A process that does one job at a time. job: its index, if any; device: as its `ready` event describes it.

    deadline: in seconds of time.monotonic(). limit: seconds for its start or its job. left: of these, counted while it
    works.
    """

    def __init__(self, config: RunConfig, weights: str, environment: Mapping[str, str]) -> None:
        super().__init__(_serve, config, weights, environment=environment, keep=True)
        self.environment, self.oom_kills = environment, _oom_kills()
        self.job: int | None = None
        self.device: Message = {}
        self.step, self.limit = "start", max(config.timeout_s, START_S)
        self.left, self.deadline = self.limit, time.monotonic() + self.limit

    def findings(self) -> dict[str, str]:
        """Findings of a worker that has ended without any: CRASHED, OOM or INTERRUPTED."""
        code, report, status, remedy = self.code(), self.report(), "CRASHED", SHOW
        killed_for_memory = code == -signal.SIGKILL and _oom_kills() > self.oom_kills
        if killed_for_memory or any(text in report for text in OUT_OF_MEMORY):
            status, remedy = "OOM", "free memory, or take a smaller model or fewer positions"
        elif -code in EXTERNAL:
            status, remedy = "INTERRUPTED", "another process sent the signal; resume=true runs the stack again"
        first = next((f": {line.strip()}" for line in report.splitlines() if line.strip()), "")
        reason = f"the process ended by {cause_of(code)}, at: {self.step}{first}; {remedy}"
        return {"status": status, "reason": reason, "report": report}

    def stop_hung(self) -> dict[str, str]:
        """Kill a worker that is past its deadline; returns the findings, with the stack of every thread as report."""
        self.stacks()
        self.kill()
        report = self.report()
        frame = re.search(r"Current thread .*\n\s*(File .*)", report)
        place = f" ({frame[1]})" if frame else ""
        reason = f"not finished after {self.limit:g} s, at: {self.step}{place}; {SHOW}, or raise timeout_s"
        return {"status": "HUNG", "reason": reason, "report": report}


class Pool:
    """At most one worker for each of `environments`. A worker that ends is replaced if jobs are left.

    weights: the sha256 of the packed weights that the records will name. `config.timeout_s`: limit for one job, counted
    from its first `begin` event, without what it waits for others between a `wait` and the next `begin`.
    """

    def __init__(self, config: RunConfig, weights: str, environments: Sequence[Mapping[str, str]]) -> None:
        self._config, self._weights, self._seconds = config, weights, config.timeout_s
        self._free = list(environments)
        self._workers: list[Worker] = []
        self._jobs: Sequence[Message] = ()
        self._queue: deque[int] = deque()
        self._device: Message | None = None
        self._failed_starts = 0
        self._fits: Callable[[int], bool] = lambda job: True

    def __enter__(self) -> "Pool":
        return self

    def __exit__(self, *error: object) -> None:
        for worker in list(self._workers):
            self._remove(worker)

    @property
    def running(self) -> list[int]:
        """Indexes of the jobs that workers have now."""
        return [worker.job for worker in self._workers if worker.job is not None]

    def describe(self) -> Message:
        """The device, as the first worker that is ready describes it. Raises LabError when no worker starts."""
        while self._device is None:
            self._start(1)
            for _ in self._receive(lambda job, kind, text: None):
                pass
        return self._device

    def run(
        self, jobs: Sequence[Message], notify: Notify, fits: Callable[[int], bool] = lambda job: True
    ) -> Iterator[tuple[int, Message, Message]]:
        """(index of the job, description of the device, findings) of each job as it ends.

        fits: called when a worker is free for a job; a job that does not fit is never begun.
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

    def _start(self, most: int) -> None:
        while self._free and len(self._workers) < most:
            self._workers.append(Worker(self._config, self._weights, self._free.pop(0)))

    def _assign(self, worker: Worker) -> None:
        worker.step, worker.deadline, worker.limit, worker.left = "ready", float("inf"), self._seconds, self._seconds
        while self._queue and worker.job is None:
            job = self._queue.popleft()
            worker.job = job if self._fits(job) else None
        if worker.job is not None:
            worker.send({**self._jobs[worker.job], "seconds": self._seconds})

    def _receive(self, notify: Notify) -> Iterator[tuple[int, Message, Message]]:
        """Wait for the next event or the next deadline, and handle it."""
        nearest = min((worker.deadline for worker in self._workers), default=float("inf"))
        timeout = None if nearest == float("inf") else max(0.0, nearest + GRACE - time.monotonic())
        ready = wait([worker.connection for worker in self._workers], timeout)
        for worker in [worker for worker in self._workers if worker.connection in ready]:
            try:
                kind, content = worker.connection.recv()
            except (EOFError, OSError):
                yield from self._end(worker, worker.findings())
            else:
                yield from self._handle(worker, kind, content, notify)
        for worker in [worker for worker in self._workers if time.monotonic() > worker.deadline + GRACE]:
            yield from self._end(worker, worker.stop_hung())

    def _handle(
        self, worker: Worker, kind: str, content: Any, notify: Notify
    ) -> Iterator[tuple[int, Message, Message]]:
        if kind == "ready":
            self._device = worker.device = content
            self._failed_starts = 0
            self._assign(worker)
        elif kind == "error":
            raise content
        elif kind == "done":
            job, worker.job = worker.job, None
            assert job is not None  # a worker answers only to a job
            if spent := content["status"] in SPENT:
                self._remove(worker)
            yield job, worker.device, content
            if not spent:
                self._assign(worker)
        else:
            now = time.monotonic()
            if kind == "begin":
                worker.step = content
                worker.deadline = min(worker.deadline, now + worker.left)
            elif kind == "wait":
                worker.left, worker.deadline = min(worker.left, worker.deadline - now), float("inf")
            notify(worker.job, "detail" if kind == "wait" else kind, content)

    def _end(self, worker: Worker, found: Message) -> Iterator[tuple[int, Message, Message]]:
        """Remove a worker that crashed or hung; `found` becomes the findings of its job."""
        job, device = worker.job, worker.device
        self._remove(worker)
        if job is not None:
            yield job, device, found
        elif worker.step == "start":
            self._failed_starts += 1
            if self._failed_starts == FAILED_STARTS:
                raise LabError(f"a worker does not start: {found['reason']}", f"its stderr: {found['report'][-500:]}")

    def _remove(self, worker: Worker) -> None:
        self._workers.remove(worker)
        self._free.append(worker.environment)
        worker.close()


def _oom_kills() -> int:
    """Processes that the Linux OOM killer has ended since this machine started."""
    try:
        lines = Path("/proc/vmstat").read_text(encoding="utf-8").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)
