"""Tune: the fastest stack and values of knobs that a search finds."""

import shlex
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from math import nan
from typing import Any

from common.errors import LabError, Unfinished
from common.record.measurement import IMPLAUSIBLE, STOPPED
from common.stacks.catalog import BASELINE, read_catalog
from common.stacks.stack import Stack, knob_words, title
from experiments.experiment import Experiment
from experiments.run.sweep import open_sweep
from experiments.tables.result_table import ResultTable
from experiments.tuning.search import Outcome, Search
from experiments.tuning.space import Candidate, Space, order

AHEAD = 1  # candidates compiled while another one is on the GPU; each is chosen before their outcomes
SHOWN = 10  # the fastest candidates
QUESTION = "which stack and which values of knobs are the fastest"
STATES = "A `state` says why a time cannot win: stopped early as too slow, or unstable."


def ask(experiment: Experiment) -> ResultTable:
    """A row for each of the fastest candidates."""
    space = space_of(experiment)
    experiment.need_gpu()
    search = Search(space, experiment.config.seed, starts(space), AHEAD)
    trials = experiment.options.whole("trials", low=1)
    notes = [STATES]
    with measuring(experiment, search) as measure:
        try:
            for candidate in search.candidates(trials):
                search.tell(candidate, trial(experiment, candidate, measure))
        except Unfinished as error:
            notes.append(f"The budget ended it: {error.cause}.")
    notes.append(f"{len(search.found)} candidates were tried.")
    if search.best:
        notes.append(f"The fastest, for any command: {overrides(experiment, search.best[0])}")
    return experiment.answer(QUESTION, _fastest(search), notes)


def space_of(experiment: Experiment) -> Space:
    """Search space that the options leave. Raises LabError where they leave nothing."""
    catalog, is_fixed = read_catalog(), experiment.options.given("stack")
    if is_fixed and experiment.options.texts("variants"):
        raise LabError("both options.stack and options.variants are given", "give only one of them")
    if is_fixed:
        stacks = [experiment.stack(experiment.options.text("stack"))]
        variants = stacks[0].variants
    else:
        variants = order(catalog, experiment.options.texts("variants") or tuple(catalog.variants))
        stacks = [experiment.stack(name) for name in variants]
    experiment.check_given(stacks)
    space = Space(catalog, variants, experiment.config.threads, is_fixed, experiment.config.knobs)
    if not space.parameters:
        raise LabError("experiment=tune has nothing to search", "give options.variants=[a,b], or a stack with knobs")
    return space


def starts(space: Space) -> list[Candidate]:
    """Candidates to try first: the baseline, and every named stack of this space with its own knobs."""
    named = [stack for stack in space.catalog.stacks.values() if set(stack.variants) <= set(space.variants)]
    return [Candidate((), ()), *(Candidate(stack.variants, tuple(stack.knobs.items())) for stack in named)]


def composed(experiment: Experiment, candidate: Candidate) -> Stack:
    """Stack of a candidate with the given knobs, without a parent: a search compares candidates. Raises LabError."""
    knobs = candidate.values | experiment.own_knobs(candidate.variants)
    stack = experiment.choose(list(candidate.variants) or [BASELINE], knobs)
    return replace(stack, parent=stack.variants)


def trial(experiment: Experiment, candidate: Candidate, measure: Callable[[Stack], Outcome]) -> Outcome:
    """The outcome of a candidate. Its run is a record, which stands for it when the search is resumed.

    Raises Unfinished where the budget does not hold another one.
    """
    label = _label(candidate)
    outcome = experiment.attempt(label, lambda: measure(composed(experiment, candidate)))
    if outcome is None:
        return Outcome(None, state="not tried")
    if outcome.seconds is None:
        experiment.left_out.append(f"Left out: {label}, {outcome.state}: {outcome.reason}")
    return outcome


@contextmanager
def measuring(experiment: Experiment, search: Search) -> Iterator[Callable[[Stack], Outcome]]:
    """Validation and timing of a stack in a worker process; the candidates that wait are compiled meanwhile."""

    def compile_ahead(candidate: Candidate) -> None:
        """Compile into CuPy's cache. Errors stay in the thread: the worker compiles it again and reports them."""
        experiment.device.compile(experiment.source(composed(experiment, candidate)))

    with open_sweep(experiment.timed(experiment.position), experiment.show) as sweep, ThreadPoolExecutor() as compilers:

        def measure(stack: Stack) -> Outcome:
            one = sweep.of([stack])
            one.run(beat=search.best[1].high if search.best else None)
            return outcome_of(one.records[0])

        search.prepare = lambda candidate: compilers.submit(compile_ahead, candidate)
        yield measure
        compilers.shutdown(wait=False, cancel_futures=True)


def outcome_of(record: Mapping[str, Any]) -> Outcome:
    """Outcome of a candidate from its run's record."""
    if record["status"] != "PASSED":
        return Outcome(None, state=record["status"], reason=record["reason"])
    (timed,) = record["latencies"]
    seconds, verdict = timed["seconds"], timed["verdict"]
    if verdict == IMPLAUSIBLE:
        return Outcome(None, state=verdict, reason="faster than the memory allows")
    state = {STOPPED: "stopped", "UNSTABLE": "unstable"}.get(verdict, "")
    return Outcome(seconds["median"], seconds["low"], seconds["high"], state)


def overrides(experiment: Experiment, candidate: Candidate) -> str:
    """Words of a command line that choose a candidate, for every command that takes a stack."""
    knobs = candidate.values | experiment.own_knobs(candidate.variants)
    stack = f"stack=[{','.join(candidate.variants) or BASELINE}]"
    return shlex.join([stack, *knob_words(knobs), f"threads={experiment.config.threads}"])


def _label(candidate: Candidate) -> str:
    return " ".join([title(candidate.variants), *knob_words(candidate.values)])


def _fastest(search: Search) -> list[dict[str, Any]]:
    timed = [(candidate, outcome) for candidate, outcome in search.found.items() if outcome.seconds]
    timed.sort(key=lambda pair: (not pair[1].final, pair[1].seconds))
    return [
        {
            "stack": _label(candidate),
            "us a step": 1e6 * (outcome.seconds or nan),
            "low us": outcome.low and 1e6 * outcome.low,
            "high us": outcome.high and 1e6 * outcome.high,
            "state": outcome.state,
        }
        for candidate, outcome in timed[:SHOWN]
    ]
