"""Discrete-event simulation of a decode step: the loads, the multiplication and the exchanges of the busiest SM.

Every exchange waits for the SM that publishes last. That SM has work in every stage and the most rows of each matrix,
so it alone is simulated; the others do the same or less. Three things happen on it:

  loader    requests the next tile when there is a place for its bytes, fewer than `window` bytes are under way and,
            unless it runs ahead, the stage of the tile has begun
  memory    serves the requests of all SMs at its read rate; this SM gets its share of the stage's
            bytes; a tile lands a latency after it is served, and an SM takes in no more than its port gives
  consumer  multiplies the tiles in order, once the stage has its input; after the last one it publishes

An exchange ends a latency after the publication; what waits in memory's queue at that time delays it by `queue_share`.
Times are in ns, sizes in bytes. Nothing is drawn by chance: equal inputs give equal times.
"""

from collections import deque
from collections.abc import Sequence
from math import floor

from experiments.prediction.task import Memory, Task, Times

SAMPLE = 32  # tiles of a long stage over which the time of one is taken
EQUAL = 1e-6  # ns: two layers that leave the SM in the same state up to this are followed by others like them
FULL = 1 + 1e-9  # sums of shares of a stage may exceed a whole by rounding


def simulate(
    first: Sequence[Task], layer: Sequence[Task], last: Sequence[Task], layers: int, memory: Memory, steps: int = 1
) -> Times:
    """The last of `steps` decode steps in a row, each of them `first`, `layers` times `layer`, and `last`.

    A layer after which the SM is in the same state as after the layer before is followed by equal ones, which are added
    and not simulated.
    """
    sm = _Sm(memory, [*first, *(list(layer) * layers), *last] * steps)
    times = Times()
    for _ in range(steps):
        times = sm.run(first)
        done, before = 0, None
        while done < layers:
            found = sm.run(layer)
            done, after = done + 1, sm.state()
            alike = before is not None and _equal(before, after)
            skipped = sm.skip(len(layer), layers - done, found.total) if alike else 0
            times.add(found, 1 + skipped)
            done, before = done + skipped, after
        times.add(sm.run(last))
    return times


def _equal(before: Sequence[float], after: Sequence[float]) -> bool:
    return len(before) == len(after) and all(abs(a - b) <= EQUAL for a, b in zip(before, after, strict=True))


class _Held:
    """Bytes that hold a limited resource, `size` in all; `ends`: [time, bytes] of known ends."""

    def __init__(self) -> None:
        self.size, self.ends = 0.0, deque[list[float]]()

    def full(self, more: float, limit: float) -> bool:
        """True if there is no room for `more` bytes; whatever its size, one request always has room alone."""
        return self.size > limit * (FULL - 1) and self.size + more > limit * FULL

    def room(self, at: float, more: float, limit: float) -> float:
        """The first time from `at` on at which there is room for `more` bytes, as far as ends are known."""
        while self.ends and (self.ends[0][0] <= at or self.full(more, limit)):
            end, size = self.ends.popleft()
            at, self.size = max(at, end), self.size - size
        return at


class _Sm:
    """The SM at a moment: the input of the next stage, and tiles requested, landed, and multiplied."""

    def __init__(self, memory: Memory, order: Sequence[Task]) -> None:
        self._memory, self._order = memory, order
        self._now = 0.0  # the next stage has its input
        self._at = 0  # the next stage, an index of `order`
        self._requested = self._requested_tiles = 0  # the stage of the next request; its requested tiles
        self._request_at = self._free_at = self._port_at = 0.0  # of the last request; memory, and the port, are free
        # All as [time, bytes]: requested tiles with the time they land at, and what is prefetched, of all SMs, with the
        # time from which it lands in L2.
        self._landed: deque[list[float]] = deque()
        self._prefetched: deque[list[float]] = deque()
        self._places, self._under_way = _Held(), _Held()
        self._hits = self._hits_at = 0.0  # of the stage that is requested: bytes that this SM finds in L2, and when
        self._among = 0.0  # the share of its tiles that are such
        self._queue: deque[tuple[float, float]] = deque(maxlen=64)  # of requests: when, and when memory is done

    @property
    def _queues(self) -> tuple[deque[list[float]], ...]:
        return self._landed, self._prefetched, self._places.ends, self._under_way.ends

    def run(self, tasks: Sequence[Task]) -> Times:
        """The stages `tasks`, which are the next ones."""
        times = Times()
        for task in tasks:
            times.add(self._stage(task))
        return times

    def state(self) -> list[float]:
        """All that decides the next events, relative to now."""
        times = [self._request_at, self._free_at, self._port_at]
        queues = self._queues
        times += [entry[0] for queue in queues for entry in queue]
        sizes = [entry[1] for queue in queues for entry in queue]
        return [*(time - self._now for time in times), *sizes, self._requested - self._at, self._requested_tiles]

    def skip(self, width: int, left: int, took: float) -> int:
        """Skip layers that repeat the last one, of `left` with `width` stages each. Returns how many.

        Layers with requested tiles are not skipped: the loader may request something else after them.
        """
        if not self._landed and not self._requested_tiles:
            self._requested = self._at
        ahead = self._requested - self._at
        layers = max(0, left - ahead // width - (1 if ahead or self._requested_tiles else 0))
        self._at, self._requested = self._at + layers * width, self._requested + layers * width
        self._shift(layers * took)
        return layers

    def _shift(self, by: float) -> None:
        self._now, self._request_at = self._now + by, self._request_at + by
        self._free_at, self._port_at = self._free_at + by, self._port_at + by
        for queue in self._queues:
            for entry in queue:
                entry[0] += by
        self._queue = deque(((at + by, free + by) for at, free in self._queue), self._queue.maxlen)

    def _stage(self, task: Task) -> Times:
        if task.prefetch and task.early:
            self._prefetch(task, self._now)
        start = self._now + task.before
        ready = done = start + task.head
        ended: deque[float] = deque(maxlen=SAMPLE + 1)
        tile, size = 0, task.size / max(1, task.tiles)
        while tile < task.tiles:
            self._load(self._at, start)
            land = self._landed.popleft()[0]
            done = max(done, land, ready) + size / task.rate
            self._places.ends.append([done + task.lag, size])
            ended.append(done)
            tile += 1
            left, alike = task.tiles - self._requested_tiles - SAMPLE, not (self._hits or task.kept)
            if tile % (2 * SAMPLE) == 0 and self._requested == self._at and alike and left >= SAMPLE:
                skipped = left // SAMPLE * SAMPLE
                by = (ended[-1] - ended[0]) / SAMPLE * skipped
                self._shift(by)
                done, tile, self._requested_tiles = done + by, tile + skipped, self._requested_tiles + skipped
        published = done + task.tail
        if task.prefetch and not (task.early or task.by_loader):
            self._prefetch(task, published)
        self._load(self._at, published)  # loads that run ahead
        wait = task.exchange + task.read / self._memory.port
        if task.exchange:
            wait += self._memory.queue_share * self._queued(published)
        self._at, self._now = self._at + 1, published + wait
        chain = task.before + task.head + task.tail
        total = chain + wait + (done - ready)
        return Times(total, wait, chain, done - ready, max(task.size, task.total) - task.kept, {task.name: total})

    def _load(self, begun: int, start: float) -> None:
        """Request tiles as far as the times at which they get a place are known; stage `begun` began at `start`."""
        while self._requested < len(self._order):
            task = self._order[self._requested]
            if self._requested_tiles == task.tiles:
                if task.by_loader:
                    self._prefetch(task, self._request_at)
                self._requested, self._requested_tiles = self._requested + 1, 0
                continue
            if self._requested > begun and not task.ahead:
                return
            size, at = task.size / task.tiles, self._request_at
            if not task.ahead:
                at = max(at, start)
            at = self._under_way.room(at, size, task.window)
            at = self._request_at = self._places.room(at, size, task.place)
            if self._places.full(size, task.place):
                return  # until a tile is multiplied that is not yet
            if not self._requested_tiles:
                self._find(task)
            self._request(task, at, size)

    def _request(self, task: Task, at: float, size: float) -> None:
        memory = self._memory
        kept = task.kept / max(task.size, task.total)
        if self._hits >= size / 2 and self._turn(self._among):
            self._hits -= size
            land = max(at + memory.l2_latency, self._hits_at)
        elif self._turn(kept):
            land = at + memory.l2_latency
        else:
            share = memory.rate * task.size / max(task.size, task.total)
            self._free_at = max(self._free_at, at) + size / share
            land = self._free_at + memory.latency
            self._queue.append((at, self._free_at))
        land = self._port_at = max(land, self._port_at + size / memory.port)
        self._request_at, self._requested_tiles = at, self._requested_tiles + 1
        self._places.size += size
        self._under_way.size += size
        self._under_way.ends.append([land, size])
        self._landed.append([land, size])

    def _turn(self, share: float) -> bool:
        """True if the next tile is one of those that are a `share` of all, evenly among the others."""
        share *= FULL
        return floor((self._requested_tiles + 1) * share) > floor(self._requested_tiles * share)

    def _queued(self, at: float) -> float:
        """ns until memory has served all requests made by `at`."""
        return max(0.0, next((free for sent, free in reversed(self._queue) if sent <= at), at) - at)

    def _prefetch(self, task: Task, at: float) -> None:
        size = min(task.prefetch, self._memory.l2_bytes)
        began = max(self._free_at, at)
        self._prefetched.append([began + self._memory.latency, size])
        self._free_at = began + size / self._memory.rate

    def _find(self, task: Task) -> None:
        """Take the prefetched bytes of a stage that is requested now."""
        wanted = least = min(task.fetched, max(task.size, task.total))
        self._hits = self._hits_at = 0.0
        while self._prefetched and wanted > 0:
            entry = self._prefetched[0]
            size = min(entry[1], wanted)
            entry[0], entry[1], wanted = entry[0] + size / self._memory.rate, entry[1] - size, wanted - size
            self._hits_at = max(self._hits_at, entry[0])
            if entry[1] <= 0:
                self._prefetched.popleft()
        if least:
            found = (least - wanted) / max(task.size, task.total)
            self._hits, self._among = found * task.size, found if task.evenly else 1.0
