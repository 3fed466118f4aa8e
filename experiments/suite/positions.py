"""Latency over the position of the token: each stack and its parent."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from common.stacks.stack import Stack, title
from experiments.experiment import Experiment
from experiments.tables.result_table import ESTIMATED, ResultTable
from experiments.tables.row import label_of, microseconds

MORE = "time: an estimate counts the bytes of the cache, not how a kernel copes with a long context"


def ask(experiment: Experiment) -> ResultTable:
    """A row for each position that the cache holds; each of `options.variants`, else of the run, with its parent."""
    positions, stacks = experiment.positions, experiment.chosen()
    rows: list[dict[str, Any]] = [
        {"position": position, "GB": experiment.model.bytes_per_token(position) / 1e9} for position in positions
    ]
    names = _measured(experiment, stacks, rows) if experiment.on_gpu else _estimated(experiment, stacks, rows)
    question = f"how the time of a token grows with its position: {', '.join(names)}"
    return experiment.answer(question, rows if names else [], otherwise=(ESTIMATED, MORE))


def _measured(experiment: Experiment, stacks: Sequence[Stack], rows: Sequence[dict[str, Any]]) -> list[str]:
    """Add each stack's columns to the rows; returns the names of the stacks that were timed."""
    timed = experiment.latencies(stacks, [row["position"] for row in rows])
    names = [label_of(stack, own=False) for stack, _ in timed]
    for name, (stack, of_stack) in zip(names, timed, strict=True):
        at = {latency["position"]: latency for latency in of_stack}
        for row in rows:
            if latency := at.get(row["position"]):
                us, pair = microseconds(latency), latency["comparison"]
                row[f"{name} us"] = us
                if pair:
                    row.setdefault(f"{title(stack.parent)} us", us / (1 + pair["effect"]))
                    row[f"{name} effect %"] = 100 * pair["effect"]
    return names


def _estimated(experiment: Experiment, stacks: Sequence[Stack], rows: Sequence[dict[str, Any]]) -> list[str]:
    """Add each stack's column to the rows; returns the names of the stacks that could be counted."""
    gpu, names = experiment.gpu, []
    for stack in stacks:
        name = label_of(stack, own=False)
        if times := experiment.attempt(name, partial(_times, experiment, stack, [row["position"] for row in rows])):
            names.append(name)
            for row, us in zip(rows, times, strict=True):
                row[f"{name} estimate us, {gpu.name}"] = us
    return names


def _times(experiment: Experiment, stack: Stack, positions: Sequence[int]) -> list[float]:
    return [experiment.estimate(stack, position) for position in positions]
