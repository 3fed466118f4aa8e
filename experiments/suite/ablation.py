"""Ablation: each variant against its parent, and the best stack without each of its variants."""

from dataclasses import replace
from typing import Any

import pandas as pd

from common.errors import LabError
from common.stacks.catalog import read_catalog
from common.stacks.stack import Stack, title
from experiments.experiment import TIME, Experiment
from experiments.prediction.model import grid_barriers
from experiments.show.result_table import MEASURED, PREDICTED, ResultTable
from experiments.show.row import NOT_MODELLED

QUESTION = "how much each variant changes the time against its parent, and the best stack without each of its variants"
NOTES = (
    "effect is the change of a step's time against the parent: negative is faster.",
    "In the rows `A - b` the stack is A and its parent is A without b, so the effect is that of b beside all the "
    "others.",
)
BLIND = (
    f"{NOT_MODELLED}: no term of the model differs between the variant and its parent at this position. The model "
    "makes no statement about this variant; it does not predict 0."
)


def ask(experiment: Experiment) -> ResultTable:
    """Measured on a GPU; elsewhere predicted for the GPU that the options name."""
    position = experiment.options.whole("position", low=0)
    stacks = [*each(experiment), *leave_one_out(experiment, experiment.stack(experiment.options.text("best")))]
    rows = measured(experiment, stacks, position) if experiment.on_gpu else predicted(experiment, stacks, position)
    basis, missing = (MEASURED, None) if experiment.on_gpu else (PREDICTED, TIME)
    notes = NOTES if experiment.on_gpu else (*NOTES, BLIND)
    return ResultTable("ablation", QUESTION, pd.DataFrame(rows), basis, notes, missing)


def each(experiment: Experiment) -> list[Stack]:
    """The variants and named stacks of `options.variants`, else all."""
    catalog = read_catalog()
    known = [*catalog.variants, *catalog.stacks]
    return [experiment.stack(name) for name in (experiment.options.texts("variants") or known)]


def leave_one_out(experiment: Experiment, best: Stack) -> list[Stack]:
    """`best` once for each of its variants, with `best` without that variant as the parent, where that is legal."""
    stacks = []
    for name in best.variants:
        rest = tuple(other for other in best.variants if other != name)
        try:
            stacks.append(replace(experiment.composed(best.variants, rest, best), name=f"{best.name} - {name}"))
        except LabError:  # another variant of the stack needs it
            continue
    return stacks


def predicted(experiment: Experiment, stacks: list[Stack], position: int) -> list[dict[str, Any]]:
    """Counts and the predicted effect of each stack."""
    gpu = experiment.predictor.gpu(experiment.options.text("gpu"))
    rows = []
    for stack in stacks:
        counted = {}
        for which, variants in (("own", stack.variants), ("parent", stack.parent)):
            source = experiment.predictor.source(variants, stack.knobs)
            counts = experiment.predictor.counts(source, gpu)
            time = experiment.predictor.predict(variants, stack.knobs, gpu, position)
            counted[which] = (grid_barriers(source, counts, position), counts.total("prefetched"), time)
        (barriers, prefetched, own), (_, _, parent) = counted["own"], counted["parent"]
        effect = own.against(parent)
        blind = effect is None and stack.variants != stack.parent
        rows.append(
            {
                "variant": stack.name,
                "parent": title(stack.parent),
                "grid barriers": barriers,
                "prefetched MB": prefetched / 1e6,
                f"predicted us, {gpu.name}": 1e6 * own.seconds,
                "predicted effect %": None if effect is None else 100 * effect,
                "model": NOT_MODELLED if blind else "",
                "published": _published(stack),
            }
        )
    return rows


def measured(experiment: Experiment, stacks: list[Stack], position: int) -> list[dict[str, Any]]:
    """Time of each stack, and its effect with interval and verdict."""
    rows = []
    for stack, record in zip(stacks, experiment.measure(stacks), strict=True):
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
