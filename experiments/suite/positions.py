"""Latency over the position: what a longer cache costs, before and after."""

from typing import Any

import pandas as pd

from common.stack import title
from experiments.inquiry import TIME, Inquiry, microseconds
from experiments.outcome import MEASURED, PREDICTED, Outcome


def ask(inquiry: Inquiry) -> Outcome:
    """A row for each position that the cache holds; each stack of the run beside its parent."""
    ladder = inquiry.options.wholes("positions", low=0)
    ladder = tuple(position for position in ladder if position < inquiry.model.positions)
    stacks = inquiry.config.stacks
    times = _measured(inquiry, ladder) if inquiry.on_gpu else _predicted(inquiry, ladder)
    rows = []
    for at, position in enumerate(ladder):
        row: dict[str, Any] = {"position": position, "GB": inquiry.model.bytes_per_token(position) / 1e9}
        for stack, (before, after) in zip(stacks, times, strict=True):
            row[f"{title(stack.parent)} us"] = before[at]
            row[f"{stack.name} us"] = after[at]
            row[f"{stack.name} effect %"] = 100 * (after[at] / before[at] - 1)
        rows.append(row)
    basis, missing = (MEASURED, None) if inquiry.on_gpu else (PREDICTED, TIME)
    names = ", ".join(stack.name for stack in stacks)
    notes = [] if inquiry.on_gpu else [f"Predicted for {inquiry.gpu(inquiry.options.text('gpu')).name}."]
    return Outcome("positions", f"what a longer cache costs {names}", pd.DataFrame(rows), basis, notes, missing)


Times = list[tuple[list[float], list[float]]]  # of each stack: microseconds of its parent, and its own, by position


def _predicted(inquiry: Inquiry, ladder: tuple[int, ...]) -> Times:
    gpu = inquiry.gpu(inquiry.options.text("gpu"))

    def times(variants: tuple[str, ...], knobs: Any) -> list[float]:
        return [1e6 * inquiry.predict(variants, knobs, gpu, position).seconds for position in ladder]

    return [(times(stack.parent, stack.knobs), times(stack.variants, stack.knobs)) for stack in inquiry.config.stacks]


def _measured(inquiry: Inquiry, ladder: tuple[int, ...]) -> Times:
    """The parent's time is the one taken in turn with the stack's own: its median is the stack's over 1 + effect."""
    found: Times = []
    for record in inquiry.measure(inquiry.config.stacks):
        timed = {entry["position"]: entry for entry in record["latencies"]}
        after = [microseconds(record, position) for position in ladder]
        effects = [(timed.get(position, {}).get("comparison") or {"effect": 0.0})["effect"] for position in ladder]
        found.append(([time / (1 + effect) for time, effect in zip(after, effects, strict=True)], after))
    return found
