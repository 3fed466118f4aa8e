"""Strategies of a search: the next point, from known outcomes. `tpe` asks optuna; `random` is the plain baseline."""

import random
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from common.errors import LabError, unknown
from experiments.tuning.space import Parameter, Point, Space

PLAIN = "random"  # the baseline that every other strategy has to beat
NAMES = ("tpe", PLAIN)
LEAST = 4  # candidates with a time, below which importances mean nothing


class Strategy(Protocol):
    """Interface of a strategy to a search."""

    def ask(self) -> Point:
        """The next point to try; one that was tried before may come again."""

    def tell(self, point: Point, seconds: float | None) -> None:
        """The time of a point, whoever chose it; None for a candidate that has no time."""


class Random:
    """Every parameter evenly, whatever was found."""

    def __init__(self, space: Space, seed: int) -> None:
        self._space, self._random = space, random.Random(seed)

    def ask(self) -> Point:
        return self._space.any(self._random)

    def tell(self, point: Point, seconds: float | None) -> None: ...


class Tpe:
    """optuna's tree-structured Parzen estimator. Its storage is memory: the store has the trials."""

    def __init__(self, space: Space, seed: int) -> None:
        self._optuna = _import()
        self._distributions = {one.name: self._distribution(one) for one in space.parameters}
        self.study = self._optuna.create_study(sampler=self._optuna.samplers.TPESampler(seed=seed))

    def ask(self) -> Point:
        trial = self.study.ask(self._distributions)
        self.study.tell(trial, state=self._optuna.trial.TrialState.FAIL)  # left out of the model: `tell` adds points
        return trial.params

    def tell(self, point: Point, seconds: float | None) -> None:
        states = self._optuna.trial.TrialState
        state = states.PRUNED if seconds is None else states.COMPLETE  # pruned: worse than all that have a time
        about = {"params": dict(point), "distributions": self._distributions, "value": seconds, "state": state}
        self.study.add_trial(self._optuna.trial.create_trial(**about))

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
    tpe = Tpe(space, 0)
    for point, seconds in found:
        tpe.tell(point, seconds)
    evaluator = optuna.importance.FanovaImportanceEvaluator(seed=0)
    return optuna.importance.get_param_importances(tpe.study, evaluator=evaluator)


def _import() -> Any:
    try:
        import optuna
        import sklearn  # noqa: F401  optuna's fANOVA needs its forests
    except ImportError as error:
        cause = f"a search needs {error.name}, which is not installed"
        raise LabError(cause, "pip install -e '.[tune]', or options.strategy=random") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna
