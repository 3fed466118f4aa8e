"""What each variant brings against its parent, and what the best stack loses without each of its own."""

from dataclasses import replace
from typing import Any

import pandas as pd

from common.catalog import read_catalog
from common.errors import LabError
from common.stack import Stack, title
from experiments.inquiry import TIME, Inquiry
from experiments.outcome import MEASURED, PREDICTED, Outcome
from experiments.prediction.model import grid_barriers

QUESTION = "what each variant brings against its parent, and what the best stack loses without it"
NOTES = (
    "effect is the change of a step's time against the parent: negative is faster.",
    "In the rows `A - b` the stack is A and its parent is A without b, so the effect is what b brings when all the "
    "others are there.",
)


def ask(inquiry: Inquiry) -> Outcome:
    """Measured on a GPU; elsewhere predicted for the GPU that the options name."""
    position = inquiry.options.whole("position", low=0)
    stacks = [*each(inquiry), *leave_one_out(inquiry, inquiry.stack(inquiry.options.text("best")))]
    rows = measured(inquiry, stacks, position) if inquiry.on_gpu else predicted(inquiry, stacks, position)
    basis, missing = (MEASURED, None) if inquiry.on_gpu else (PREDICTED, TIME)
    return Outcome("ablation", QUESTION, pd.DataFrame(rows), basis, NOTES, missing)


def each(inquiry: Inquiry) -> list[Stack]:
    """The variants and named stacks of `options.variants`, else all there are."""
    catalog = read_catalog()
    known = [*catalog.variants, *catalog.stacks]
    return [inquiry.stack(name) for name in (inquiry.options.texts("variants") or known)]


def leave_one_out(inquiry: Inquiry, best: Stack) -> list[Stack]:
    """`best` once for each of its variants, with `best` without that variant as the parent, where that is legal."""
    stacks = []
    for name in best.variants:
        rest = tuple(other for other in best.variants if other != name)
        try:
            stacks.append(replace(inquiry.composed(best.variants, rest, best), name=f"{best.name} - {name}"))
        except LabError:  # another variant of the stack needs it
            continue
    return stacks


def predicted(inquiry: Inquiry, stacks: list[Stack], position: int) -> list[dict[str, Any]]:
    """Counts and the predicted effect of each stack."""
    gpu = inquiry.gpu(inquiry.options.text("gpu"))
    rows = []
    for stack in stacks:
        counted = {}
        for which, variants in (("own", stack.variants), ("parent", stack.parent)):
            source = inquiry.source(variants, stack.knobs)
            counts = inquiry.counts(source, gpu)
            time = inquiry.predict(variants, stack.knobs, gpu, position)
            counted[which] = (grid_barriers(source, counts, position), counts.total("prefetched"), time.seconds)
        (barriers, prefetched, own), (_, _, parent) = counted["own"], counted["parent"]
        rows.append(
            {
                "variant": stack.name,
                "parent": title(stack.parent),
                "grid barriers": barriers,
                "prefetched MB": prefetched / 1e6,
                f"predicted us, {gpu.name}": 1e6 * own,
                "predicted effect %": 100 * (own / parent - 1) if stack.variants != stack.parent else None,
                "published": _published(stack),
            }
        )
    return rows


def measured(inquiry: Inquiry, stacks: list[Stack], position: int) -> list[dict[str, Any]]:
    """Time of each stack, and its effect with interval and verdict."""
    rows = []
    for stack, record in zip(stacks, inquiry.measure(stacks), strict=True):
        timed = next((found for found in record["latencies"] if found["position"] == position), None)
        if timed is None:
            continue
        pair = timed["comparison"] or {"effect": float("nan"), "low": float("nan"), "high": float("nan")}
        rows.append(
            {
                "variant": stack.name,
                "parent": title(stack.parent),
                "us a token": 1e6 * timed["seconds"]["median"],
                "GB/s": timed["bandwidth"] / 1e9,
                "% of read ceiling": 100 * timed["of_ceiling"],
                "effect %": 100 * pair["effect"],
                "low %": 100 * pair["low"],
                "high %": 100 * pair["high"],
                "verdict": timed["verdict"] or "-",
                "published": _published(stack),
            }
        )
    return rows


def _published(stack: Stack) -> str:
    catalog = read_catalog()
    known = catalog.variants.get(stack.name) or catalog.stacks.get(stack.name)
    return known.published if known else ""
