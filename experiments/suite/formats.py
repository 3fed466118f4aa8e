"""Weights and cache below bf16: fewer bytes a token, and the least that a kernel can make of them."""

from functools import partial
from typing import Any

from common.model.format import read_formats
from common.model.shapes import Model
from common.stacks.stack import Stack
from experiments.estimate import estimate, parts, step_of
from experiments.experiment import Experiment
from experiments.tables.result_table import ESTIMATED, ResultTable
from experiments.tables.row import label_of

QUESTION = "how many bytes a token reads with weights below bf16, and what is left when they are read"
NOTES = (
    "int4:128/int8/fp8: the layers' matrices, the LM head, and the KV cache. bytes us: all that a token reads, once, "
    "at the GPU's read rate; the estimate adds the exchanges, which are the same in any format.",
    "Numbers that are taken apart cost instructions, which no estimate has: a kernel that multiplies no faster than "
    "its bytes arrive gains nothing from fewer.",
)


def ask(experiment: Experiment) -> ResultTable:
    """A row for each stack of the run and format; the first format is the one that the others are against.

    A format whose groups do not divide the model's rows is left out.
    """
    formats = {text: read_formats(text) for text in experiment.options.texts("formats")}
    experiment.gpu.costs  # noqa: B018  refused before anything is counted
    fitted = {
        text: experiment.attempt(text, partial(experiment.model.in_formats, *each)) for text, each in formats.items()
    }
    models = {text: model for text, model in fitted.items() if model}
    rows: list[dict[str, Any]] = []
    for stack in experiment.chosen:
        name, first = label_of(stack, own=False), None
        for text, model in models.items():
            found = experiment.attempt(f"{name}, {text}", partial(_estimated, experiment, model, stack))
            if found:
                us = found[f"estimate us, {experiment.gpu.name}"]
                first = first or us
                against = {f"against {next(iter(models))} %": 100 * (us / first - 1)}
                rows.append({"variant": name, "format": text, **found, **against})
    position = f"Position {experiment.position}, {experiment.model.shape}."
    return ResultTable("formats", QUESTION, rows, ESTIMATED, [*NOTES, position], "time", keys=2)


def _estimated(experiment: Experiment, model: Model, stack: Stack) -> dict[str, float]:
    """Bytes and estimate; counts are those of the run's own format, as exchanges are the same in all of them."""
    source = experiment.counting.source(stack.variants, stack.knobs)
    step = step_of(source, experiment.counting.count(source), model, experiment.position)
    costs = experiment.gpu.costs
    return {
        "MB a token": step.bytes / 1e6,
        "bytes us": parts(step, costs)["bytes"],
        f"estimate us, {experiment.gpu.name}": estimate(step, costs),
    }
