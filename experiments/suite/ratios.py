"""Producer and consumer warps: how many of a block's warps should only load."""

from typing import Any

import pandas as pd

from experiments.inquiry import TIME, Inquiry, microseconds
from experiments.outcome import MEASURED, PREDICTED, Outcome
from experiments.prediction.published import RATIOS

QUESTION = "how many of a block's warps should only load"


def ask(inquiry: Inquiry) -> Outcome:
    """Tokens a second of `warp_split` for each ratio, at each position and on average, beside the published sweep."""
    ladder = inquiry.options.wholes("positions", low=0)
    ladder = tuple(position for position in ladder if position < inquiry.model.positions)
    ratios = inquiry.options.texts("ratios")
    stacks = [inquiry.stack("warp_split", {"ratio": ratio}) for ratio in ratios]
    if inquiry.on_gpu:
        times = [[microseconds(record, at) for at in ladder] for record in inquiry.measure(stacks)]
    else:
        gpu = inquiry.gpu(inquiry.options.text("gpu"))
        times = [
            [1e6 * inquiry.predict(stack.variants, stack.knobs, gpu, at).seconds for at in ladder] for stack in stacks
        ]
    rows = [_row(ratio, ladder, found) for ratio, found in zip(ratios, times, strict=True)]
    basis, missing = (MEASURED, None) if inquiry.on_gpu else (PREDICTED, TIME)
    notes = ["The published sweep is of another kernel, on an RTX 3090; its positions are averaged as these are."]
    if not inquiry.on_gpu:
        notes.append(
            f"Predicted for {gpu.name}: fewer loading threads have fewer loads under way; that consumers wait for "
            "their tiles, and multiply with fewer warps, is not in the model."
        )
    return Outcome("ratios", QUESTION, pd.DataFrame(rows), basis, notes, missing)


def _row(ratio: str, ladder: tuple[int, ...], microseconds_: list[float]) -> dict[str, Any]:
    rates = [1e6 / time for time in microseconds_]
    row: dict[str, Any] = {"producers:consumers": ratio}
    row |= {f"tok/s at {position}": rate for position, rate in zip(ladder, rates, strict=True)}
    return row | {"average tok/s": sum(rates) / len(rates), "published average": RATIOS.get(ratio)}
