"""Streams, events and their order: which work is known to be finished, by whom, and when.

Work is executed when it is queued, so that results are right; what could go wrong on a GPU is found by clocks. Every
stream counts its work. A clock says for each stream how much of its work is finished for sure: the host's clock grows
when it waits, a stream's when it waits for an event. Two uses of a buffer that no clock orders are a Misuse.
Time is virtual: work begins when its stream is free and the host has queued it.
"""

import itertools
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from standin_gpu.errors import Misuse

Clock = dict[int, int]
OWN = str(Path(__file__).resolve().parent.parent)
_numbers = itertools.count()


def join(clock: Clock, other: Clock) -> None:
    for stream, count in other.items():
        clock[stream] = max(clock.get(stream, 0), count)


def line() -> str:
    """File and line of the innermost caller outside the stand-in."""
    frame = sys._getframe(1)
    while frame and frame.f_code.co_filename.startswith(OWN):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame else "?"


@dataclass(frozen=True)
class Use:
    """One use of a buffer: by which stream's which work, what it was, and the line that queued it."""

    stream: int
    count: int
    what: str
    line: str

    def before(self, clock: Clock) -> bool:
        return clock.get(self.stream, 0) >= self.count


@dataclass(frozen=True)
class Past:
    """One use of memory by an array that was then freed, at this line."""

    use: Use
    freed: str


class Uses:
    """The last write of a buffer and the reads after it.

    past: uses by earlier owners of its memory, before its first write. freed: the line at which it lost its own owner.
    """

    def __init__(self, past: Sequence[Past] = ()) -> None:
        self.written: Use | None = None
        self.read: dict[int, Use] = {}
        self.past, self.freed = past, ""

    @property
    def uses(self) -> list[Use]:
        return [*filter(None, [self.written]), *self.read.values()]

    def use(self, use: Use, clock: Clock, writes: bool) -> None:
        does = f"{use.line}: {use.what} {'writes' if writes else 'reads'}"
        if self.freed:
            raise Misuse(f"{does} memory that was freed at {self.freed}; a graph does not keep its arrays: keep them")
        for past in self.past:
            if not past.use.before(clock):
                raise Misuse(
                    f"{does} memory that was freed at {past.freed} while {past.use.what} of {past.use.line} may still "
                    "use it on another stream, and that CuPy's pool has given away; wait before it is freed"
                )
        for other in self.uses if writes else filter(None, [self.written]):
            if not other.before(clock):
                raise Misuse(
                    f"{does} a buffer that {other.what} of {other.line} may still use on another stream; wait for "
                    "that stream, or for an event on it"
                )
        if writes:
            self.written, self.read, self.past = use, {}, ()
        else:
            self.read[use.stream] = use


@dataclass(eq=False)
class Queue:
    """One stream. blocking: it is ordered with the null stream. ready: second at which all its work is done.

    capture: records its work into a graph instead of having it executed. endless: its work never finishes.
    """

    blocking: bool
    number: int = field(default_factory=lambda: next(_numbers))
    count: int = 0
    clock: Clock = field(default_factory=dict)
    ready: float = 0.0
    capture: "list[Work] | None" = None
    endless: bool = False


@dataclass(frozen=True)
class Work:
    """Queued work. act: executes it and returns its seconds."""

    what: str
    reads: Sequence[Uses]
    writes: Sequence[Uses]
    act: Callable[[], float]
    line: str


class Order:
    """The host's clock and time, and all queues of this process."""

    def __init__(self) -> None:
        self.null = Queue(blocking=True)
        self.queues = [self.null]
        self.clock: Clock = {}
        self.now = 0.0

    def open(self, blocking: bool) -> Queue:
        self.queues.append(Queue(blocking))
        return self.queues[-1]

    def begin(self, queue: Queue) -> None:
        """The queue takes over what the host knows, and what the rule of the null stream gives it."""
        join(queue.clock, self.clock)
        others = [other for other in self.queues if other.blocking] if queue is self.null else [self.null]
        if queue.blocking:
            for other in others:
                join(queue.clock, other.clock)
                queue.ready = max(queue.ready, other.ready)
        queue.ready = max(queue.ready, self.now)

    def execute(self, queue: Queue, work: Work) -> None:
        self.begin(queue)
        queue.count += 1
        queue.clock[queue.number] = queue.count
        use = Use(queue.number, queue.count, work.what, work.line)
        for uses in work.reads:
            uses.use(use, queue.clock, writes=False)
        for uses in work.writes:
            uses.use(use, queue.clock, writes=True)
        if not queue.endless:
            queue.ready += work.act()

    def finished(self, queue: Queue) -> None:
        """The host knows that all work of `queue` is done."""
        join(self.clock, queue.clock)
        self.now = max(self.now, queue.ready)
