"""Ablation: each variant against its parent, and the best stack without each of its variants."""

from dataclasses import replace
from functools import partial
from math import nan
from typing import Any

from common.errors import LabError
from common.stacks.catalog import read_catalog
from common.stacks.stack import Stack, title
from experiments.experiment import Experiment
from experiments.prediction.forecast import forecast
from experiments.prediction.gpus import GpuModel
from experiments.prediction.model import grid_barriers
from experiments.tables.result_table import ResultTable
from experiments.tables.row import NOT_MODELLED, label_of

QUESTION = "how much each variant changes the time against its parent, and the best stack without each of its variants"
NOTES = (
    "effect is the change of a step's time against the parent: negative is faster.",
    "In the rows `A - b` the stack is A and its parent is A without b, so the effect is b's beside all the others.",
)
BLIND = (
    f"{NOT_MODELLED}: no term of the model differs between the variant and its parent at this position. The model "
    "makes no statement about this variant; it does not predict 0."
)


def ask(experiment: Experiment) -> ResultTable:
    """Measured on a GPU, at every position that is timed; elsewhere predicted for the GPU that the options name."""
    best = leave_one_out(experiment, experiment.stack(experiment.options.text("best")))
    stacks = experiment.stacks(experiment.options.texts("variants"), *best)
    if experiment.on_gpu:
        return experiment.answer(QUESTION, measured(experiment, stacks), NOTES, keys=2)
    newer = experiment.predictor.gpu(experiment.options.text("newer"))
    rows = experiment.rows(stacks, partial(predicted, experiment, (experiment.gpu, newer), experiment.position))
    return experiment.answer(QUESTION, rows, (*NOTES, BLIND), keys=2)


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


def predicted(experiment: Experiment, gpus: tuple[GpuModel, GpuModel], position: int, stack: Stack) -> dict[str, Any]:
    """Counts, and the predicted effect on the first of `gpus`; on the second where a variant needs its arch."""
    predictor = experiment.predictor
    source = predictor.source(stack.variants, stack.knobs)
    gpu = gpus[source.min_arch > int(gpus[0].arch.removeprefix("sm_"))]
    counts, found = predictor.counts(source, gpu), forecast(predictor, stack, gpu, position)
    fast, slow = found.interval or (None, None)
    low, high = found.effect_interval or (None, None)
    return {
        "parent": title(stack.parent),
        "grid barriers": grid_barriers(source, counts, position),
        "prefetched MB": counts.total("prefetched") / 1e6,
        f"predicted us, {gpu.name}": found.microseconds,
        "low us": fast,
        "high us": slow,
        "predicted effect %": found.effect and 100 * found.effect,
        "low %": low and 100 * low,
        "high %": high and 100 * high,
        "model": found.note,
        "published": _published(stack),
    }


def measured(experiment: Experiment, stacks: list[Stack]) -> list[dict[str, Any]]:
    """Time of each stack, and its effect with interval and verdict; all stacks at one position, then at the next."""
    rows = []
    for stack, record in zip(stacks, experiment.measure(stacks), strict=True):
        for timed in record["latencies"]:
            pair = timed["comparison"] or {}
            rows.append(
                {
                    "variant": label_of(stack),
                    "position": timed["position"],
                    "parent": title(stack.parent),
                    "us a token": 1e6 * timed["seconds"]["median"],
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
