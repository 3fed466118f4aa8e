"""Latency over the position of the token: each stack beside its parent."""

from collections.abc import Mapping
from functools import partial
from math import isnan
from typing import Any

from common.stacks.stack import Stack, title
from experiments.experiment import TIME, Experiment, microseconds
from experiments.tables.result_table import MEASURED, PREDICTED, ResultTable
from experiments.tables.row import NOT_MODELLED, changed

Times = tuple[list[float], list[float]]  # of a stack: microseconds of its parent, and its own, by position


def ask(experiment: Experiment) -> ResultTable:
    """A row for each position that the cache holds; each of `options.stacks`, else of the run, beside its parent."""
    ladder = experiment.positions
    stacks = chosen(experiment)
    times = measured(experiment, stacks, ladder) if experiment.on_gpu else predicted(experiment, stacks, ladder)
    # The model may have a term for a stack at some positions only; without one at any, there is no effect, not even 0.
    blind = [
        name
        for name, (stack, before, after) in times.items()
        if not experiment.on_gpu and before == after and stack.variants != stack.parent
    ]
    rows = []
    for at, position in enumerate(ladder):
        row: dict[str, Any] = {"position": position, "GB": experiment.model.bytes_per_token(position) / 1e9}
        for name, (stack, before, after) in times.items():
            row[f"{title(stack.parent)} us"] = before[at]
            row[f"{name} us"] = after[at]
            row[f"{name} effect %"] = None if name in blind else 100 * (after[at] / before[at] - 1)
        rows.append(row)
    basis, missing = (MEASURED, None) if experiment.on_gpu else (PREDICTED, TIME)
    notes = []
    if not experiment.on_gpu:
        notes.append(f"Predicted for {experiment.predictor.gpu(experiment.options.text('gpu')).name}.")
    notes += [f"{name}: {NOT_MODELLED}." for name in blind]
    question = f"how the time of a token grows with its position: {', '.join(times)}"
    return ResultTable("positions", question, rows if times else [], basis, notes, missing)


def chosen(experiment: Experiment) -> list[Stack]:
    """Stacks in `options.stacks`, else those of the run."""
    names = experiment.options.texts("stacks")
    return experiment.stacks(names) if names else list(experiment.config.stacks)


def predicted(
    experiment: Experiment, stacks: list[Stack], ladder: tuple[int, ...]
) -> dict[str, tuple[Stack, list[float], list[float]]]:
    """By the name of each stack."""
    found = {}
    for stack in stacks:
        if times := experiment.attempt(changed(stack), partial(_predicted, experiment, stack, ladder)):
            found[changed(stack)] = (stack, *times)
    return found


def _predicted(experiment: Experiment, stack: Stack, ladder: tuple[int, ...]) -> Times:
    gpu = experiment.predictor.gpu(experiment.options.text("gpu"))

    def times(variants: tuple[str, ...]) -> list[float]:
        return [1e6 * experiment.predictor.predict(variants, stack.knobs, gpu, at).seconds for at in ladder]

    return times(stack.parent), times(stack.variants)


def measured(
    experiment: Experiment, stacks: list[Stack], ladder: tuple[int, ...]
) -> dict[str, tuple[Stack, list[float], list[float]]]:
    """A record for each stack and position, so that an interruption loses one of them.

    The parent's time is the one taken in turn with the stack's own: its median is the stack's over 1 + effect.
    """
    found = {}
    records = [experiment.measure(stacks, position) for position in ladder]
    for stack, at in zip(stacks, zip(*records, strict=True), strict=True):
        after = [microseconds(record, position) for record, position in zip(at, ladder, strict=True)]
        effects = [_effect(record) for record in at]
        before = [time / (1 + effect) for time, effect in zip(after, effects, strict=True)]
        if not all(map(isnan, after)):
            found[changed(stack)] = (stack, before, after)
    return found


def _effect(record: Mapping[str, Any]) -> float:
    """Effect in a record of one position; 0 without a parent to compare with."""
    return next((timed["comparison"]["effect"] for timed in record["latencies"] if timed["comparison"]), 0.0)
