"""Latency over the position of the token: each stack of the run beside its parent."""

from typing import Any

import pandas as pd

from common.stacks.stack import title
from experiments.experiment import TIME, Experiment, microseconds
from experiments.show.result_table import MEASURED, PREDICTED, ResultTable
from experiments.show.row import NOT_MODELLED


def ask(experiment: Experiment) -> ResultTable:
    """A row for each position that the cache holds; each stack of the run beside its parent."""
    ladder = experiment.positions
    stacks = experiment.config.stacks
    times = _measured(experiment, ladder) if experiment.on_gpu else _predicted(experiment, ladder)
    # The model may have a term for a stack at some positions only; without one at any, there is no effect, not even 0.
    blind = [
        stack.name
        for stack, (before, after) in zip(stacks, times, strict=True)
        if not experiment.on_gpu and before == after and stack.variants != stack.parent
    ]
    rows = []
    for at, position in enumerate(ladder):
        row: dict[str, Any] = {"position": position, "GB": experiment.model.bytes_per_token(position) / 1e9}
        for stack, (before, after) in zip(stacks, times, strict=True):
            row[f"{title(stack.parent)} us"] = before[at]
            row[f"{stack.name} us"] = after[at]
            row[f"{stack.name} effect %"] = None if stack.name in blind else 100 * (after[at] / before[at] - 1)
        rows.append(row)
    basis, missing = (MEASURED, None) if experiment.on_gpu else (PREDICTED, TIME)
    names = ", ".join(stack.name for stack in stacks)
    notes = []
    if not experiment.on_gpu:
        notes.append(f"Predicted for {experiment.predictor.gpu(experiment.options.text('gpu')).name}.")
    notes += [f"{name}: {NOT_MODELLED}." for name in blind]
    return ResultTable(
        "positions",
        f"how the time of a token grows with its position: {names}",
        pd.DataFrame(rows),
        basis,
        notes,
        missing,
    )


Times = list[tuple[list[float], list[float]]]  # of each stack: microseconds of its parent, and its own, by position


def _predicted(experiment: Experiment, ladder: tuple[int, ...]) -> Times:
    gpu = experiment.predictor.gpu(experiment.options.text("gpu"))

    def times(variants: tuple[str, ...], knobs: Any) -> list[float]:
        return [1e6 * experiment.predictor.predict(variants, knobs, gpu, position).seconds for position in ladder]

    return [
        (times(stack.parent, stack.knobs), times(stack.variants, stack.knobs)) for stack in experiment.config.stacks
    ]


def _measured(experiment: Experiment, ladder: tuple[int, ...]) -> Times:
    """The parent's time is the one taken in turn with the stack's own: its median is the stack's over 1 + effect."""
    found: Times = []
    for record in experiment.measure(experiment.config.stacks):
        timed = {entry["position"]: entry for entry in record["latencies"]}
        after = [microseconds(record, position) for position in ladder]
        effects = [(timed.get(position, {}).get("comparison") or {"effect": 0.0})["effect"] for position in ladder]
        found.append(([time / (1 + effect) for time, effect in zip(after, effects, strict=True)], after))
    return found
