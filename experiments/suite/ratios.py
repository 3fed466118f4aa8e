"""Ratio of producer and consumer warps in `warp_split`: the rate at each ratio, beside the published sweep."""

from functools import partial
from math import isnan
from typing import Any

from common.errors import LabError
from common.stacks.stack import Stack
from experiments.experiment import TIME, Experiment, microseconds
from experiments.prediction.gpus import GpuModel
from experiments.prediction.published import RATIOS, error
from experiments.tables.result_table import MEASURED, PREDICTED, ResultTable
from experiments.tables.row import NOT_MODELLED, label_of

QUESTION = "how many of a block's warps should only load"


def ask(experiment: Experiment) -> ResultTable:
    """Tokens a second of `warp_split` for each ratio, at each position and on average, beside the published sweep."""
    ladder = experiment.positions
    ratios = experiment.options.texts("ratios")
    if "ratio" in experiment.config.knobs:
        one = experiment.config.knobs["ratio"]
        raise LabError("ratio= is what this experiment varies", f"give options.ratios=['{one}']")
    stacks = [experiment.stack("warp_split", {"ratio": ratio}) for ratio in ratios]
    experiment.check_knobs(stacks)
    if experiment.on_gpu:
        times = [[microseconds(record, at) for at in ladder] for record in experiment.measure(stacks)]
    else:
        gpu = experiment.predictor.gpu(experiment.options.text("gpu"))
        times = [
            experiment.attempt(label_of(stack), partial(_predicted, experiment, stack, gpu, ladder)) or []
            for stack in stacks
        ]
    known = {ratio: found for ratio, found in zip(ratios, times, strict=True) if not all(map(isnan, found))}
    rows = [_row(ratio, ladder, found) for ratio, found in known.items()]
    basis, missing = (MEASURED, None) if experiment.on_gpu else (PREDICTED, TIME)
    notes = ["The published sweep is of another kernel, on an RTX 3090; its average is over the same positions."]
    if not experiment.on_gpu:
        notes.append(
            f"Predicted for {gpu.name}: fewer loading threads have fewer loads in flight. {NOT_MODELLED}: that "
            "consumers multiply with fewer warps. The published loaders are not this lab's: they prefetch into L2, and "
            "the other warps load as before."
        )
    return ResultTable("ratios", QUESTION, rows, basis, notes, missing)


def _predicted(experiment: Experiment, stack: Stack, gpu: GpuModel, ladder: tuple[int, ...]) -> list[float]:
    return [1e6 * experiment.predictor.predict(stack.variants, stack.knobs, gpu, at).seconds for at in ladder]


def _row(ratio: str, ladder: tuple[int, ...], microseconds_: list[float]) -> dict[str, Any]:
    rates = [1e6 / time for time in microseconds_]
    row: dict[str, Any] = {"producers:consumers": ratio}
    row |= {f"tok/s at {position}": rate for position, rate in zip(ladder, rates, strict=True)}
    average, published = sum(rates) / len(rates), RATIOS.get(ratio)
    row |= {"average tok/s": average, "published average": published}
    return row | {"off published %": error(average, published) if published else None}
