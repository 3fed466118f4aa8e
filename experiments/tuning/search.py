"""Search: candidates chosen some ahead and tried one by one; those in records are not tried again."""

import random
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from experiments.tuning.space import Candidate, Point, Space
from experiments.tuning.strategies import Strategy

TURNS = 6  # one of them is for the strategy, the others are for steps beside the fastest
REPEATS = 20  # known candidates in a row, after which a new one is drawn
DRAWS = 500  # points drawn, after which all candidates of the space are looked through


@dataclass(frozen=True)
class Outcome:
    """Cost of a candidate.

    seconds    None where it has no time; low, high: their bounds
    state      why they cannot win, in a word: stopped early as too slow, unstable, or what failed; "": they can
    record     id of the run; reason: why it has no time
    """

    seconds: float | None
    low: float | None = None
    high: float | None = None
    state: str = ""
    record: str = ""
    reason: str = ""

    @property
    def final(self) -> bool:
        """True if the time is exact enough to win."""
        return self.seconds is not None and not self.state


@dataclass
class Search:
    """One search. found: every candidate tried, in this order, and its outcome.

    starts: points to try before the strategy's.
    local: most candidates are beside the fastest so far: a model of the whole space finds the region of the
    optimum, and steps of one choice the optimum.
    ahead: candidates chosen ahead of the one that is tried. prepare: called with each when it is chosen.
    """

    space: Space
    strategy: Strategy
    generator: random.Random
    starts: list[Point]
    local: bool = False
    ahead: int = 0
    prepare: Callable[[Candidate], object] = lambda candidate: None
    found: dict[Candidate, Outcome] = field(default_factory=dict)
    _turn: int = 0
    _waiting: dict[Candidate, Point] = field(default_factory=dict)

    def know(self, found: Mapping[Candidate, Outcome]) -> None:
        """Take over outcomes from records; candidates of another space are left out."""
        for candidate, outcome in found.items():
            point = self.space.point(candidate)
            if point is not None:
                self.found[candidate] = outcome
                self.strategy.tell(point, outcome.seconds)

    def candidates(self, most: int) -> Iterator[Candidate]:
        """Candidates to try, until `most` are found or none is left; each must be told before the next is taken."""
        queue: deque[Candidate] = deque()
        while True:
            while len(queue) <= self.ahead and len(self.found) + len(queue) < most:
                new = self._new()
                if new is None:
                    break
                self.prepare(new)
                queue.append(new)
            if not queue:
                return
            yield queue.popleft()

    def tell(self, candidate: Candidate, outcome: Outcome) -> None:
        """The outcome of a candidate that was taken."""
        self.found[candidate] = outcome
        self.strategy.tell(self._waiting.pop(candidate), outcome.seconds)

    @property
    def best(self) -> tuple[Candidate, Outcome] | None:
        """The fastest with an exact time."""
        final = [(candidate, outcome) for candidate, outcome in self.found.items() if outcome.final]
        return min(final, key=lambda pair: pair[1].seconds or 0.0, default=None)

    def _new(self) -> Candidate | None:
        """A candidate to try; None where all are known or waiting."""
        while self.starts:
            if new := self._take(self.starts.pop(0)):
                return new
        self._turn += 1
        if self.local and self._turn % TURNS and (new := self._neighbor()):
            return new
        for _ in range(REPEATS):
            if new := self._take(self.strategy.ask()):
                return new
        for _ in range(DRAWS):
            point = self.space.any(self.generator)
            if self._is_new(self.space.candidate(point)):
                return self._take(point)
        last = next(filter(self._is_new, self.space), None)
        return last and self._choose(last)

    def _neighbor(self) -> Candidate | None:
        """A new candidate beside the fastest."""
        beside = self.space.near(self.best[0]) if self.best else []
        new = [[candidate for candidate in choice if self._is_new(candidate)] for choice in beside]
        left = [choice for choice in new if choice]  # a knob of many values is not tried more often than one of few
        return self._choose(self.generator.choice(self.generator.choice(left))) if left else None

    def _is_new(self, candidate: Candidate) -> bool:
        return candidate not in self.found and candidate not in self._waiting

    def _choose(self, candidate: Candidate) -> Candidate | None:
        point = self.space.point(candidate)
        assert point is not None  # a point of this space
        return self._take(point)

    def _take(self, point: Point) -> Candidate | None:
        """The candidate of `point` if it is new; of a known one the strategy is told the time."""
        candidate = self.space.candidate(point)
        if candidate in self.found:
            self.strategy.tell(point, self.found[candidate].seconds)
        elif candidate not in self._waiting:
            self._waiting[candidate] = point
            return candidate
        return None
