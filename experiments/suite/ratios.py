"""Ratio of producer and consumer warps in `warp_split`: the rate at each ratio, beside the published sweep."""

from collections.abc import Sequence
from typing import Any

from common.errors import LabError
from experiments.experiment import Experiment
from experiments.tables.result_table import ResultTable

# MegaQwen's sweep, RTX 3090 (https://github.com/Infatoshi/MegaQwen): tokens a second, averaged over its positions.
RATIOS = {"0:8": 509.9, "1:7": 510.8, "2:6": 489.9, "3:5": 498.7, "4:4": 478.6}
QUESTION = "how many of a block's warps should only load"
PUBLISHED = "The published sweep is of another kernel, on an RTX 3090; its average is over the same positions."


def ask(experiment: Experiment) -> ResultTable:
    """Tokens a second of `warp_split` for each ratio, at each position and on average, beside the published sweep."""
    positions, ratios = experiment.positions, experiment.options.texts("ratios")
    if "ratio" in experiment.config.knobs:
        one = experiment.config.knobs["ratio"]
        raise LabError("ratio= is what this experiment varies", f"give options.ratios=['{one}']")
    stacks = [experiment.stack("warp_split", {"ratio": ratio}) for ratio in ratios]
    experiment.check_given(stacks)
    experiment.need_gpu()
    rows = []
    for stack, times in experiment.times(stacks, positions):
        ratio = "{producers}:{consumers}".format(**stack.knobs["warp_split"])
        rows.append(_row(ratio, positions, [1e6 / time.us for time in times]))
    return experiment.answer(QUESTION, rows, [PUBLISHED])


def _row(ratio: str, positions: Sequence[int], rates: Sequence[float]) -> dict[str, Any]:
    average, published = sum(rates) / len(rates), RATIOS.get(ratio)
    return {
        "producers:consumers": ratio,
        **{f"tok/s at {position}": rate for position, rate in zip(positions, rates, strict=True)},
        "average tok/s": average,
        "published average": published,
        "off published %": 100 * (average / published - 1) if published else None,
    }
