"""Search by optuna: candidates chosen some ahead and tried one by one."""

import random
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from common.errors import LabError
from experiments.tuning.space import Candidate, Point, Space

TURNS = 6  # one of them is for optuna's estimator, the others are for steps beside the fastest
REPEATS = 20  # known candidates in a row, after which points are drawn uniformly
DRAWS = 500  # known candidates in a row, after which none is left


@dataclass(frozen=True)
class Outcome:
    """Cost of a candidate.

    seconds    None where it has no time; low, high: their bounds
    state      why the time cannot win, in a word: stopped early as too slow, unstable, or what failed; "": it can
    reason     why it has no time
    """

    seconds: float | None
    low: float | None = None
    high: float | None = None
    state: str = ""
    reason: str = ""

    @property
    def final(self) -> bool:
        """True if the time is exact enough to win."""
        return self.seconds is not None and not self.state


class Search:
    """One search. found: every candidate tried, in this order, and its outcome.

    After `starts` one in TURNS candidates is optuna's, by a model of the whole space; the others are neighbors of the
    fastest so far.
    ahead: candidates chosen ahead of the one that is tried. prepare: called with each when it is chosen.
    """

    def __init__(self, space: Space, seed: int, starts: list[Candidate], ahead: int = 0) -> None:
        """Raises LabError without optuna."""
        self.space, self.ahead, self.found = space, ahead, dict[Candidate, Outcome]()
        self.prepare: Callable[[Candidate], object] = lambda candidate: None
        self._optuna, self._random = _import(), random.Random(seed)
        self._turn, self._waiting = 0, dict[Candidate, Any]()
        of = self._optuna.distributions
        self._distributions = {
            one.name: of.IntDistribution(0, len(one.values) - 1)
            if one.ordered
            else of.CategoricalDistribution(range(len(one.values)))
            for one in space.parameters
        }
        sampler = self._optuna.samplers.TPESampler(seed=seed)
        self.study = self._optuna.create_study(sampler=sampler)  # in memory: the store has the runs
        for point in filter(None, map(space.point, starts)):
            self._enqueue(point)

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
        self.found[candidate], states = outcome, self._optuna.trial.TrialState
        state = states.PRUNED if outcome.seconds is None else states.COMPLETE  # without a time
        self.study.tell(self._waiting.pop(candidate), outcome.seconds, state)

    @property
    def best(self) -> tuple[Candidate, Outcome] | None:
        """The fastest with an exact time."""
        final = [(candidate, outcome) for candidate, outcome in self.found.items() if outcome.final]
        return min(final, key=lambda pair: pair[1].seconds or 0.0, default=None)

    def _new(self) -> Candidate | None:
        """A candidate to try; None where all are known or waiting."""
        self._turn += 1
        for draw in range(DRAWS):
            if draw >= REPEATS:
                self._enqueue(self.space.any(self._random))
            elif self._turn % TURNS and self.best:
                self._enqueue(self.space.beside(self.best[0], self._random))
            trial = self.study.ask(self._distributions)
            candidate = self.space.candidate(trial.params)
            if candidate not in self.found and candidate not in self._waiting:
                self._waiting[candidate] = trial
                return candidate
            self.study.tell(trial, state=self._optuna.trial.TrialState.FAIL)  # the model has it already
        return None

    def _enqueue(self, point: Point) -> None:
        self.study.enqueue_trial(dict(point))


def _import() -> Any:
    try:
        import optuna
    except ImportError:
        raise LabError("a search needs optuna, which is not installed", "pip install -e '.[tune]'") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna
