"""The line of requests before the device: one is answered, some wait, and the next one is refused."""

import asyncio
import math
import time
import traceback
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from queue import SimpleQueue
from typing import Any

from starlette.requests import Request

from common.errors import Crashed, LabError
from experiments.serving.errors import SERVER, ApiError
from experiments.serving.settings import Settings

Answer = Callable[[Callable[[], bool]], Iterator[Any]]  # its argument is true once nobody waits for the rest


class Job(AsyncIterator[Any]):
    """One request: an iterator, for the server's loop, over what `answer` yields in the device's thread.

    Raises ApiError for a refusal, a lost device and a missed deadline.
    """

    def __init__(self, answer: Answer, seconds: float) -> None:
        self.answer, self._seconds, self.loop = answer, seconds, asyncio.get_running_loop()
        self._deadline = self.loop.time() + seconds
        self._said: asyncio.Queue[Any] = asyncio.Queue()
        self.begun = self.left = self.done = False

    def say(self, event: Any) -> None:
        """Hand over the next event; an exception is the last one."""
        self._said.put_nowait(event)

    async def __anext__(self) -> Any:
        try:
            async with asyncio.timeout_at(self._deadline):
                event = await self._said.get()
        except TimeoutError:
            remedy = "ask for fewer tokens, or raise deadline_s of the server"
            raise ApiError(504, f"not finished within {self._seconds:g} s; {remedy}", "deadline", SERVER) from None
        if isinstance(event, Exception):
            raise event
        return event


class Line:
    """Jobs for one engine. `work` answers them in the thread that has it; all else runs in the server's loop.

    lost: why the device can take no more jobs.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._jobs = set[Job]()  # one of them has the device, or gets it next
        self._given: SimpleQueue[Job | None] = SimpleQueue()
        self._seconds = 1.0  # that the last job ran
        self._ended = False
        self.lost: LabError | None = None

    @property
    def waiting(self) -> int:
        """Jobs that wait for the device."""
        return max(0, len(self._jobs) - 1)

    @contextmanager
    def job(self, request: Request, answer: Answer) -> Iterator[Job]:
        """A place for as long as a client waits for it. Raises ApiError when the line is full.

        Where the client leaves early, the place is free at once, or the device after the current step.
        """
        if self._ended:
            raise _ending()
        if len(self._jobs) > self._settings.queue:
            seconds = math.ceil(max(1.0, self._seconds * len(self._jobs)))  # until there is likely to be room
            message = f"{self.waiting} requests wait for the device already; try again in {seconds} s"
            raise ApiError(429, message, "queue_full", "rate_limit_error", headers={"Retry-After": str(seconds)})
        job = Job(answer, self._settings.deadline_s)
        self._jobs.add(job)
        self._given.put(job)
        watching = asyncio.ensure_future(self._watch(job, request))
        try:
            yield job
        finally:
            watching.cancel()
            self._leave(job)

    def work(self) -> None:
        """Answer the jobs in turn, until `close`, or until the device is lost."""
        while not self.lost and (job := self._given.get()):
            job.begun, begin = True, time.monotonic()
            for event in self._events(job):
                with suppress(RuntimeError):  # the loop has ended, and all clients are gone
                    job.loop.call_soon_threadsafe(self._pass, job, event)
            self._seconds = time.monotonic() - begin

    def end(self) -> None:
        """Give up every job, and take no other: the server ends."""
        self._ended = True
        for job in self._jobs:
            job.left = True
            job.say(_ending())

    def close(self) -> None:
        """Let `work` return."""
        self._given.put(None)

    def _events(self, job: Job) -> Iterator[Any]:
        """All that a job's answer yields; last an exception, its end."""
        try:
            if not job.left:
                yield from job.answer(lambda: job.left)
            yield StopAsyncIteration()
        except ApiError as error:
            yield error
        except Exception as error:
            if not isinstance(error, LabError):
                traceback.print_exc()
                error = Crashed(f"{type(error).__name__} in the server", "its traceback is above")
            self.lost = error
            yield ApiError(503, f"the server ends: {error}", "device_lost", SERVER)

    def _pass(self, job: Job, event: Any) -> None:
        job.say(event)
        if isinstance(event, Exception):
            job.done = True
            self._jobs.discard(job)

    def _leave(self, job: Job) -> None:
        if not (job.done or job.left):
            job.left = True
            if not job.begun:
                self._jobs.discard(job)

    async def _watch(self, job: Job, request: Request) -> None:
        """Leave when the client does."""
        while (await request.receive())["type"] != "http.disconnect":
            pass
        self._leave(job)
        job.say(ApiError(499, "the client has left", "left"))


def _ending() -> ApiError:
    return ApiError(503, "the server ends; ask again when it is back", "server_ending", SERVER)
