"""Ablation: each variant against its parent, and the best stack without each of its variants."""

from dataclasses import replace
from math import nan
from typing import Any

from common.errors import LabError
from common.stacks.catalog import read_catalog
from common.stacks.stack import Stack, title
from experiments.experiment import Experiment
from experiments.prediction.model import grid_barriers
from experiments.tables.result_table import ResultTable
from experiments.tables.row import NOT_MODELLED, label_of

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
    """Measured on a GPU, at every position that is timed; elsewhere predicted for the GPU that the options name."""
    position = experiment.options.whole("position", low=0)
    best = leave_one_out(experiment, experiment.stack(experiment.options.text("best")))
    stacks = experiment.stacks(experiment.options.texts("variants"), *best)
    if experiment.on_gpu:
        return experiment.answer(QUESTION, measured(experiment, stacks), NOTES, keys=2)
    for option in ("gpu", "newer"):
        experiment.predictor.gpu(experiment.options.text(option))  # refuses an unknown one
    rows = experiment.rows(stacks, lambda stack: predicted(experiment, stack, position))
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


def predicted(experiment: Experiment, stack: Stack, position: int) -> dict[str, Any]:
    """Counts, and the predicted effect; on the newer GPU where a variant needs its arch."""
    predictor = experiment.predictor
    source, gpu = predictor.source(stack.variants, stack.knobs), predictor.gpu(experiment.options.text("gpu"))
    if source.min_arch > int(gpu.arch.removeprefix("sm_")):
        gpu = predictor.gpu(experiment.options.text("newer"))
    counts = predictor.counts(source, gpu)
    parent, own = (predictor.predict(names, stack.knobs, gpu, position) for names in (stack.parent, stack.variants))
    effect = own.against(parent)
    return {
        "parent": title(stack.parent),
        "grid barriers": grid_barriers(source, counts, position),
        "prefetched MB": counts.total("prefetched") / 1e6,
        f"predicted us, {gpu.name}": 1e6 * own.seconds,
        "low us": 1e6 * own.low,
        "high us": 1e6 * own.high,
        "predicted effect %": effect and 100 * effect.value,
        "low %": effect and 100 * effect.low,
        "high %": effect and 100 * effect.high,
        "model": NOT_MODELLED if effect is None and stack.variants != stack.parent else "",
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
