"""Ablation: each variant against its parent, and the best stack without each of its variants."""

from contextlib import suppress
from dataclasses import replace
from functools import partial
from math import nan
from typing import Any

from common.errors import LabError
from common.stacks.catalog import read_catalog
from common.stacks.stack import Stack, check_stack, title
from experiments.experiment import Experiment
from experiments.tables.result_table import ResultTable
from experiments.tables.row import label_of, microseconds

QUESTION = "how much each variant changes the time against its parent, and the best stack without each of its variants"
NOTES = (
    "effect is the change of a step's time against the parent: negative is faster.",
    "In the rows `A - b` the stack is A and its parent is A without b, so the effect is b's beside all the others.",
)


def ask(experiment: Experiment) -> ResultTable:
    """Measured on a GPU, at every position that is timed; elsewhere counts, and the estimate for `options.gpu`."""
    best = leave_one_out(experiment.stack(experiment.options.text("best")))
    stacks = experiment.chosen(*best)
    if experiment.on_gpu:
        return experiment.answer(QUESTION, measured(experiment, stacks), NOTES, keys=2)
    experiment.gpu  # noqa: B018  an unknown one is refused before anything is counted
    rows = experiment.rows(stacks, partial(counted, experiment, experiment.position))
    return experiment.answer(QUESTION, rows, NOTES[1:], keys=2)


def leave_one_out(best: Stack) -> list[Stack]:
    """`best` once for each of its variants, with `best` without that variant as the parent, where that is legal."""
    stacks = []
    for name in best.variants:
        rest = tuple(other for other in best.variants if other != name)
        with suppress(LabError):  # another variant of the stack needs it
            parent = check_stack(rest, read_catalog())
            stacks.append(replace(best, name=f"{best.name} - {name}", parent=parent))
    return stacks


def counted(experiment: Experiment, position: int, stack: Stack) -> dict[str, Any]:
    """Counts of the stack and of its parent, and the estimate."""
    own, parent = (experiment.counts(variants, stack.knobs) for variants in (stack.variants, stack.parent))
    return {
        "parent": title(stack.parent),
        "grid barriers": own.total("grid_barriers"),
        "more than parent": own.total("grid_barriers") - parent.total("grid_barriers"),
        "exchanges by value": own.total("by_value"),
        "prefetched MB": own.total("prefetched") / 1e6,
        f"estimate us, {experiment.gpu.name}": experiment.estimate(stack, position),
        "published": _published(stack),
    }


def measured(experiment: Experiment, stacks: list[Stack]) -> list[dict[str, Any]]:
    """Time of each stack, and its effect with interval and verdict; all stacks at one position, then at the next."""
    rows = []
    for stack, latencies in experiment.latencies(stacks):
        for timed in latencies:
            pair = timed["comparison"] or {}
            rows.append(
                {
                    "variant": label_of(stack),
                    "position": timed["position"],
                    "parent": title(stack.parent),
                    "us a step": microseconds(timed),
                    "GB/s": timed["bandwidth"] / 1e9,
                    "% of read ceiling": 100 * timed["of_ceiling"],
                    "effect %": 100 * pair.get("effect", nan),
                    "low %": 100 * pair.get("low", nan),
                    "high %": 100 * pair.get("high", nan),
                    "verdict": timed["verdict"] or "-",
                    "published": _published(stack),
                }
            )
    return sorted(rows, key=lambda row: row["position"])


def _published(stack: Stack) -> str:
    catalog = read_catalog()
    entry = catalog.variants.get(stack.name) or catalog.stacks.get(stack.name)
    return entry.published if entry else ""
