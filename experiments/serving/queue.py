"""The queue before the device: one job runs, some wait, and a worker that ends is replaced."""

import asyncio
import contextlib
import itertools
import math
import time
from collections import deque
from collections.abc import AsyncIterator, Sequence
from typing import Any

from common.errors import LabError
from experiments.serving.child import COMMAND, Child, Event
from experiments.serving.errors import busy, ending, failed, late, refused
from experiments.serving.metrics import Metrics
from experiments.serving.settings import Settings

LAST = ("done", "refused", "failed")  # kinds of the event that ends a job


class Job:
    """One request on its way. `events` gives what the worker says of it; `leave` must be called at the end."""

    def __init__(self, queue: "Queue", number: int, request: Event, deadline_s: float) -> None:
        self._queue, self._seconds = queue, deadline_s
        self.number, self.request = number, request
        self.deadline = asyncio.get_running_loop().time() + deadline_s
        self.said: asyncio.Queue[Event] = asyncio.Queue()
        self.left = False

    async def events(self) -> AsyncIterator[Event]:
        """Events up to and including `done`. Raises ApiError for a refusal, a lost worker and a missed deadline."""
        while True:
            try:
                async with asyncio.timeout_at(self.deadline):
                    event = await self.said.get()
            except TimeoutError:
                raise late(self._seconds) from None
            if "refused" in event:
                raise refused(*event["refused"])
            if "failed" in event:
                raise failed(*event["failed"])
            if "ending" in event:
                raise ending()
            yield event
            if "done" in event:
                return

    def leave(self) -> None:
        """No client waits for this job any more: it frees its place, or the device after the current step."""
        if not self.left:
            self.left = True
            self._queue.drop(self)


class Queue:
    """Jobs for one worker. An async context manager: it starts the worker, which raises LabError, and ends it.

    first: the worker's first request. `about`: what the worker says of itself when it is ready.
    """

    def __init__(self, first: Event, settings: Settings, metrics: Metrics, command: Sequence[str] = COMMAND) -> None:
        self._first, self._settings, self._metrics, self._command = first, settings, metrics, command
        self._waiting: deque[Job] = deque()
        self._running: Job | None = None
        self._numbers = itertools.count(1)
        self._wake = asyncio.Event()
        self._child: Child | None = None
        self._ended = False
        self._seconds = 1.0  # that the last job ran
        self.about: dict[str, Any] = {}

    async def __aenter__(self) -> "Queue":
        await self._start()
        self._serving = asyncio.create_task(self._serve())
        return self

    async def __aexit__(self, *error: object) -> None:
        self._serving.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._serving
        if self._child:
            await self._child.close()
            await self._watching

    def end(self) -> None:
        """Give up every job, and take no other: the server ends."""
        self._ended = True
        for job in (*self._waiting, *filter(None, [self._running])):
            job.said.put_nowait({"ending": True})

    @property
    def alive(self) -> bool:
        """True if a worker is there to take a job."""
        return self._child is not None and self._child.alive

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def idle(self) -> bool:
        return self._running is None and not self._waiting

    def submit(self, request: Event) -> Job:
        """Queue one request. Raises ApiError when as many wait as may, and at the end."""
        if self._ended:
            raise ending()
        if not self.idle and len(self._waiting) >= self._settings.queue:
            raise busy(len(self._waiting), math.ceil(max(1.0, self._seconds * (1 + len(self._waiting)))))
        job = Job(self, next(self._numbers), request, self._settings.deadline_s)
        if self.idle:
            self._running = job  # taken at once, so that the next one is counted as waiting
        else:
            self._waiting.append(job)
        self._wake.set()
        return job

    def drop(self, job: Job) -> None:
        """Forget a job that no client waits for; a worker that does not react to the cancel is killed."""
        if job in self._waiting:
            self._waiting.remove(job)
            self._metrics.left.inc()
        elif job is self._running and self._child:
            self._metrics.left.inc()
            self._child.send({"cancel": job.number})
            asyncio.get_running_loop().call_later(self._settings.cancel_s, self._stop, job)

    def _stop(self, job: Job) -> None:
        if job is self._running and self._child:
            self._child.kill()

    async def _start(self) -> Child:
        """The worker, started if there is none. Raises LabError."""
        ended = self._child
        if ended and ended.alive:
            return ended
        if ended:
            await ended.close()
        self._child = await Child.start(self._first, self._command)
        self._watching = asyncio.create_task(self._watch(self._child))
        if ended:
            self._metrics.restarts.inc()
        self.about = dict(self._child.about)
        return self._child

    async def _serve(self) -> None:
        while True:
            if not self.alive:  # the next request need not wait for the start
                with contextlib.suppress(LabError):
                    await self._start()
            if self._running is None and self._waiting:
                self._running = self._waiting.popleft()
            if self._running is None:
                self._wake.clear()
                await self._wake.wait()
            else:
                begin = time.monotonic()
                if not self._running.left:
                    await self._run(self._running)
                    self._seconds = time.monotonic() - begin
                self._running = None

    async def _watch(self, child: Child) -> None:
        """Wake the queue when an idle worker ends."""
        await child.wait()
        self._wake.set()

    async def _run(self, job: Job) -> None:
        """Give one job to the worker and pass on what it says, until its last event."""
        try:
            child = await self._start()
        except LabError as error:
            return job.said.put_nowait({"failed": [error.cause, error.remedy]})
        if job.left:  # while the worker started
            return None
        child.send({"job": job.number, **job.request})
        while True:
            event = await child.read()
            if event is None:
                cause = f"the worker ended by {child.end}"
                return job.said.put_nowait({"failed": [cause, "a new one starts; ask again"]})
            job.said.put_nowait(event)
            if "failed" in event:  # it ends by itself; none of its successor's jobs may reach it
                await child.close()
            if any(kind in event for kind in LAST):
                return None
