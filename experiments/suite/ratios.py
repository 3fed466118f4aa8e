"""Ratio of producer and consumer warps in `warp_split`: the rate at each ratio, beside the published sweep."""

from collections.abc import Sequence
from typing import Any

from common.errors import LabError
from experiments.experiment import Experiment
from experiments.prediction.published import RATIOS, error
from experiments.tables.result_table import ResultTable
from experiments.tables.row import NOT_MODELLED

QUESTION = "how many of a block's warps should only load"
PUBLISHED = "The published sweep is of another kernel, on an RTX 3090; its average is over the same positions."
PREDICTED = (
    f"Predicted for {{}}: fewer loading threads have fewer loads in flight. {NOT_MODELLED}: that consumers multiply "
    "with fewer warps. The published loaders are not this lab's: they prefetch into L2, and the other warps load as "
    "before."
)


def ask(experiment: Experiment) -> ResultTable:
    """Tokens a second of `warp_split` for each ratio, at each position and on average, beside the published sweep."""
    positions, ratios = experiment.positions, experiment.options.texts("ratios")
    if "ratio" in experiment.config.knobs:
        one = experiment.config.knobs["ratio"]
        raise LabError("ratio= is what this experiment varies", f"give options.ratios=['{one}']")
    stacks = [experiment.stack("warp_split", {"ratio": ratio}) for ratio in ratios]
    experiment.check_given(stacks)
    rows = []
    for stack, times in experiment.measured_or_predicted(stacks, positions):
        ratio = "{producers}:{consumers}".format(**stack.knobs["warp_split"])
        rows.append(_row(ratio, positions, [1e6 / time.us for time in times]))
    notes = [PUBLISHED]
    if not experiment.on_gpu:
        notes.append(PREDICTED.format(experiment.gpu.name))
    return experiment.answer(QUESTION, rows, notes)


def _row(ratio: str, positions: Sequence[int], rates: Sequence[float]) -> dict[str, Any]:
    average, published = sum(rates) / len(rates), RATIOS.get(ratio)
    return {
        "producers:consumers": ratio,
        **{f"tok/s at {position}": rate for position, rate in zip(positions, rates, strict=True)},
        "average tok/s": average,
        "published average": published,
        "off published %": error(average, published) if published else None,
    }
