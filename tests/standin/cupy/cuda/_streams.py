"""Streams, events and graphs of cupy.cuda."""

import threading
from typing import Any

from standin_gpu import cost, errors
from standin_gpu.cython import typed
from standin_gpu.errors import CUDARuntimeError
from standin_gpu.machine import MACHINE
from standin_gpu.streams import Clock, Queue, Work

_current = threading.local()


class Stream:
    """A stream; Stream.null is the legacy default stream."""

    null: "Stream"

    def __init__(
        self, null: bool = False, non_blocking: bool = False, ptds: bool = False, priority: Any = None
    ) -> None:
        if not null:
            MACHINE.call()
        self._queue = MACHINE.order.null if null else MACHINE.order.open(blocking=not non_blocking)
        self.ptr = 0 if null else 1000 + self._queue.number

    def __enter__(self) -> "Stream":
        _stack().append(self)
        return self

    def __exit__(self, *error: object) -> None:
        _stack().pop()

    def use(self) -> "Stream":
        _stack()[-1] = self
        return self

    @property
    def done(self) -> bool:
        return MACHINE.done(self._queue)

    def synchronize(self) -> None:
        MACHINE.wait(self._queue)

    def record(self, event: "Event | None" = None) -> "Event":
        event = event or Event()
        event.record(self)
        return event

    def begin_capture(self, mode: Any = None) -> None:
        MACHINE.call()
        if self._queue.blocking or mode is not None:
            raise NotImplementedError("the stand-in makes relaxed captures of non-blocking streams, as the lab does")
        MACHINE.refuse_captured(self._queue, "another capture")
        self._queue.capture = []

    def end_capture(self) -> "Graph":
        MACHINE.call()
        capture, self._queue.capture = self._queue.capture, None
        if capture is None:
            raise CUDARuntimeError(errors.ILLEGAL_STATE)
        return Graph._captured(capture)


def _stack() -> list[Stream]:
    if not hasattr(_current, "streams"):
        _current.streams = [Stream.null]
    return _current.streams


@typed
def get_current_stream(device_id: int = -1) -> Stream:
    return _stack()[-1]


class Event:
    """A point in a stream."""

    def __init__(self, block: bool = False, disable_timing: bool = False, interprocess: bool = False) -> None:
        MACHINE.call()
        self._timed = not disable_timing
        self._clock: Clock | None = None
        self._time, self._endless = 0.0, False

    def record(self, stream: Stream | None = None) -> None:
        MACHINE.call()
        queue = (stream or get_current_stream())._queue
        MACHINE.refuse_captured(queue, "an event")
        MACHINE.order.begin(queue)
        self._clock, self._time, self._endless = dict(queue.clock), queue.ready, queue.endless

    def synchronize(self) -> None:
        MACHINE.call()
        if self._clock is not None:
            MACHINE.wait(self._point(self._clock))

    @property
    def done(self) -> bool:
        return self._clock is None or MACHINE.done(self._point(self._clock))

    def _point(self, clock: Clock) -> Queue:
        return Queue(blocking=False, clock=clock, ready=self._time, endless=self._endless)


@typed
def get_elapsed_time(start_event: Any, end_event: Any) -> float:
    """Milliseconds. Both events must have been waited for, by themselves or with their stream."""
    MACHINE.call()
    for event in (start_event, end_event):
        if event._clock is None or not event._timed:
            raise CUDARuntimeError(errors.INVALID_HANDLE)
        if any(MACHINE.order.clock.get(stream, 0) < count for stream, count in event._clock.items()):
            raise CUDARuntimeError(errors.NOT_READY)
    return round(1e3 * (end_event._time - start_event._time), 6)


class Graph:
    """Captured work; a launch executes it on a stream, in the order of its capture."""

    @classmethod
    def _captured(cls, works: list[Work]) -> "Graph":
        graph = cls.__new__(cls)
        graph._works = works
        return graph

    @typed
    def launch(self, stream: Any = None) -> None:
        MACHINE.call(seconds=cost.LAUNCH_CALL)
        queue = (stream or get_current_stream())._queue
        MACHINE.refuse_captured(queue, "another graph")
        for work in self._works:
            MACHINE.order.execute(queue, work)
            queue.ready += cost.NODE - cost.LAUNCH


Stream.null = Stream(null=True)
