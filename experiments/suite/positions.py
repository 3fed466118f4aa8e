"""Latency over the position of the token: each stack and its parent."""

from typing import Any

from common.stacks.stack import title
from experiments.experiment import Experiment
from experiments.tables.result_table import ResultTable
from experiments.tables.row import NOT_MODELLED, label_of


def ask(experiment: Experiment) -> ResultTable:
    """A row for each position that the cache holds; each of `options.variants`, else of the run, with its parent."""
    positions = experiment.positions
    timed = experiment.measured_or_predicted(experiment.chosen, positions, apart=True)
    names = [label_of(stack, own=False) for stack, _ in timed]
    rows: list[dict[str, Any]] = [
        {"position": position, "GB": experiment.model.bytes_per_token(position) / 1e9} for position in positions
    ]
    notes = []
    if not experiment.on_gpu:
        notes.append(f"Predicted for {experiment.gpu.name}.")
    for name, (stack, of_stack) in zip(names, timed, strict=True):
        # The model may see a stack at some positions only; where at none, it predicts no effect, not even 0.
        same = all(time.us == time.parent_us for time in of_stack)
        blind = same and not experiment.on_gpu and stack.variants != stack.parent
        notes += [f"{name}: {NOT_MODELLED}."] if blind else []
        for row, time in zip(rows, of_stack, strict=True):
            row[f"{title(stack.parent)} us"] = time.parent_us
            row[f"{name} us"] = time.us
            row[f"{name} effect %"] = None if blind else 100 * (time.us / time.parent_us - 1)
    question = f"how the time of a token grows with its position: {', '.join(names)}"
    return experiment.answer(question, rows if timed else [], notes)
