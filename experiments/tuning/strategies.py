"""Strategies of a search: what to try next, from what is known. `tpe` asks optuna; `random` is the plain baseline."""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from common.errors import LabError
from common.errors.suggest import unknown
from experiments.tuning.space import Parameter, Point, Space

PLAIN = "random"  # the baseline that every other strategy has to beat
NAMES = ("tpe", PLAIN)
LEAST = 4  # candidates with a time, below which importances mean nothing


@dataclass(frozen=True)
class Asked:
    """A point to try. tell: takes its seconds; None for a candidate that has no time."""

    point: Point
    tell: Callable[[float | None], None]


class Strategy(Protocol):
    """Interface of a strategy to a search."""

    def known(self, point: Point, seconds: float | None) -> None:
        """A point that was tried before."""

    def ask(self) -> Asked:
        """The next point to try; one that was tried before may come again."""

    def choose(self, point: Point) -> Asked:
        """The same for a point that the search itself chose."""


class Random:
    """Every parameter evenly, whatever was found."""

    def __init__(self, space: Space, seed: int) -> None:
        self._space, self._random = space, random.Random(seed)

    def known(self, point: Point, seconds: float | None) -> None: ...

    def ask(self) -> Asked:
        return self.choose(self._space.any(self._random))

    def choose(self, point: Point) -> Asked:
        return Asked(point, lambda seconds: None)


class Tpe:
    """optuna's tree-structured Parzen estimator, by ask and tell. Its storage is memory: the store has the trials."""

    def __init__(self, space: Space, seed: int) -> None:
        self._optuna = _import()
        self._distributions = {one.name: self._distribution(one) for one in space.parameters}
        sampler = self._optuna.samplers.TPESampler(seed=seed, constant_liar=True)
        self._study = self._optuna.create_study(sampler=sampler)

    def known(self, point: Point, seconds: float | None) -> None:
        self._study.add_trial(self._trial(point, seconds))

    def ask(self) -> Asked:
        trial = self._study.ask(self._distributions)

        def tell(seconds: float | None) -> None:
            if seconds is None:  # worse than all that have a time
                self._study.tell(trial, state=self._optuna.trial.TrialState.PRUNED)
            else:
                self._study.tell(trial, seconds)

        return Asked(trial.params, tell)

    def choose(self, point: Point) -> Asked:
        self._study.enqueue_trial(dict(point))
        return self.ask()

    def _trial(self, point: Point, seconds: float | None) -> Any:
        states = self._optuna.trial.TrialState
        state = states.PRUNED if seconds is None else states.COMPLETE
        return self._optuna.trial.create_trial(
            params=dict(point), distributions=self._distributions, value=seconds, state=state
        )

    def _distribution(self, one: Parameter) -> Any:
        of, last = self._optuna.distributions, len(one.values) - 1
        return of.IntDistribution(0, last) if one.ordered else of.CategoricalDistribution(range(last + 1))


def strategy(name: str, space: Space, seed: int) -> Strategy:
    """The strategy called `name`. Raises LabError for an unknown one, and for tpe without optuna."""
    if name not in NAMES:
        raise unknown("options.strategy", name, NAMES)
    return (Tpe if name == "tpe" else Random)(space, seed)


def importances(space: Space, found: Sequence[tuple[Point, float]]) -> Mapping[str, float]:
    """Share of each parameter in the variance of the times, by fANOVA; {} where they are too few, or all equal.

    Raises LabError without optuna and scikit-learn.
    """
    optuna = _import()
    if len(found) < LEAST or len({seconds for _, seconds in found}) == 1:
        return {}
    study = Tpe(space, 0)
    for point, seconds in found:
        study.known(point, seconds)
    evaluator = optuna.importance.FanovaImportanceEvaluator(seed=0)
    return optuna.importance.get_param_importances(study._study, evaluator=evaluator)


def _import() -> Any:
    try:
        import optuna
        import sklearn  # noqa: F401  of which optuna's fANOVA makes its forest
    except ImportError as error:
        cause = f"a search needs {error.name}, which is not installed"
        raise LabError(cause, "pip install -e '.[tune]', or options.strategy=random") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna
