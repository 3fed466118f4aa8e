"""The queue before the device: one job runs, some wait, and a worker that ends is replaced."""

import asyncio
import math
import time
from collections.abc import AsyncIterator, Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from typing import Any

from common.errors import LabError
from experiments.processes import Child
from experiments.serving.errors import SERVER, ApiError
from experiments.serving.jobs import FULL, Event
from experiments.serving.metrics import Metrics
from experiments.serving.settings import Settings

WORKER = ("experiments.serving.worker",)  # for `python -m`


class Job:
    """One request on its way. said: events of the worker that `events` has not given yet."""

    def __init__(self, number: int, request: Event, deadline_s: float) -> None:
        self.number, self.request, self._seconds = number, request, deadline_s
        self._deadline = asyncio.get_running_loop().time() + deadline_s
        self.said: asyncio.Queue[Event | ApiError] = asyncio.Queue()
        self.left = False  # true once no client waits for it

    async def events(self) -> AsyncIterator[Event]:
        """Events up to and including `done`. Raises ApiError for a refusal, a lost worker and a missed deadline."""
        while True:
            try:
                async with asyncio.timeout_at(self._deadline):
                    event = await self.said.get()
            except TimeoutError:
                remedy = "ask for fewer tokens, or raise deadline_s of the server"
                message = f"not finished within {self._seconds:g} s; {remedy}"
                raise ApiError(504, message, "deadline", SERVER) from None
            if isinstance(event, ApiError):
                raise event
            yield event
            if "done" in event:
                return


class Queue:
    """Jobs for one worker. An async context manager: it starts the worker, which raises LabError, and ends it.

    first: the worker's first request. `about`: content of the worker's `ready` event.
    """

    def __init__(self, first: Event, settings: Settings, metrics: Metrics, worker: Sequence[str] = WORKER) -> None:
        self._first, self._settings, self._metrics, self._worker = first, settings, metrics, worker
        self._jobs: list[Job] = []  # the first one has the device, or gets it next
        self._numbers = count(1)
        self._device = asyncio.Lock()  # held while a job runs, and while a worker starts
        self._tasks: set[asyncio.Task[None]] = set()
        self._ended = False
        self._seconds = 1.0  # that the last job ran
        self.about: Event = {}
        metrics.waiting.set_function(lambda: len(self._jobs[1:]))
        metrics.alive.set_function(lambda: self.alive)

    async def __aenter__(self) -> "Queue":
        self._child = await self._start()
        return self

    async def __aexit__(self, *error: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.to_thread(self._child.close)

    @property
    def alive(self) -> bool:
        """True if a worker is there to take a job."""
        return self._child.alive

    def end(self) -> None:
        """Give up every job, and take no other: the server ends."""
        self._ended = True
        for job in self._jobs:
            job.said.put_nowait(_ending())

    @contextmanager
    def job(self, request: Event) -> Iterator[Job]:
        """One request, in the queue for as long as a client waits for it. Raises ApiError when the queue is full.

        Where the client leaves early, its place is free at once, or the device after the current step.
        """
        if self._ended:
            raise _ending()
        if len(self._jobs) > self._settings.queue:
            seconds = math.ceil(max(1.0, self._seconds * len(self._jobs)))  # until there is likely to be room
            message = f"{len(self._jobs) - 1} requests wait for the device already; try again in {seconds} s"
            raise ApiError(429, message, "queue_full", "rate_limit_error", headers={"Retry-After": str(seconds)})
        job = Job(next(self._numbers), request, self._settings.deadline_s)
        self._jobs.append(job)
        self._spawn(self._run(job))
        try:
            yield job
        finally:
            if job in self._jobs:
                self._leave(job)

    def _leave(self, job: Job) -> None:
        """Forget a job that is not done; a worker that does not react to the cancel is killed."""
        job.left = True
        self._metrics.left.inc()
        if job is self._jobs[0]:
            self._child.send({"cancel": job.number})
            asyncio.get_running_loop().call_later(self._settings.cancel_s, self._stop, job)
        else:
            self._jobs.remove(job)

    def _stop(self, job: Job) -> None:
        if job in self._jobs:
            self._spawn(asyncio.to_thread(self._child.kill))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _start(self) -> Child:
        """A worker that is ready. Raises LabError."""
        child = Child(self._worker)
        try:
            child.send(self._first)
            event = await child.read()
            if event is None:
                cause = f"the worker ended before it was ready: {child.death().cause}"
                raise LabError(cause, "see its messages above")
            if "error" in event:
                raise LabError(*event["error"])
        except BaseException:
            child.close()
            raise
        self.about = event["ready"]
        self._spawn(self._watch(child))
        return child

    async def _watch(self, child: Child) -> None:
        """Replace a worker that ends, so that the next job need not wait for its start."""
        await asyncio.to_thread(child.popen.wait)
        async with self._device:
            with suppress(LabError):  # the next job tries again, and says why
                await self._replace()

    async def _replace(self) -> None:
        """Start another worker if this one has ended. Raises LabError."""
        if not self._child.alive:
            self._child.close()
            self._child = await self._start()
            self._metrics.restarts.inc()

    async def _run(self, job: Job) -> None:
        """Have one job answered as soon as the device is free."""
        async with self._device:
            begin = time.monotonic()
            try:
                await self._replace()
                if not job.left:
                    await self._answer(job)
            except LabError as error:
                job.said.put_nowait(ApiError(503, str(error), "worker_failed", SERVER, headers={"Retry-After": "1"}))
            finally:
                if job in self._jobs:
                    self._jobs.remove(job)
                    self._seconds = time.monotonic() - begin

    async def _answer(self, job: Job) -> None:
        """Give one job to the worker and pass on its events, until the last one. Raises LabError for a failure."""
        self._child.send({"job": job.number, **job.request})
        while True:
            event = await self._child.read()
            if event is None:
                death = await asyncio.to_thread(self._child.death)
                raise LabError(f"the worker ended by {death.cause}", "a new one starts; ask again")
            if "failed" in event:  # it ends by itself; none of its successor's jobs may reach it
                await asyncio.to_thread(self._child.kill)
                raise LabError(*event["failed"])
            if "refused" in event:
                message, field, code = event["refused"]
                job.said.put_nowait(ApiError(400 if code == FULL else 422, message, code, param=field))
                return
            job.said.put_nowait(event)
            if "done" in event:
                return


def _ending() -> ApiError:
    return ApiError(503, "the server ends; ask again when it is back", "server_ending", SERVER)
