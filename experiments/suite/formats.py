"""Weights and cache below bf16: fewer bytes a token, and the least that a kernel can make of them."""

from functools import partial
from typing import Any

from common.model.format import read_formats
from common.model.shapes import Model
from common.stacks.stack import Stack
from experiments.estimate import Step, estimate, parts, step_of
from experiments.experiment import Experiment
from experiments.tables.result_table import ESTIMATED, ResultTable
from experiments.tables.row import label_of

QUESTION = "how many bytes a token reads with weights below bf16, and what is left when they are read"
NOTES = (
    "int4:128/int8/fp8: the layers' matrices, the LM head, and the KV cache. Of bytes: all that a token reads, once, "
    "at the GPU's read rate; the estimate adds the exchanges, which are the same in any format.",
    "Numbers that are taken apart cost instructions, which no estimate has: a kernel that multiplies no faster than "
    "its bytes arrive gains nothing from fewer.",
)


def ask(experiment: Experiment) -> ResultTable:
    """A row for each stack of the run and format; the first format is the one that the others are against.

    A format whose groups do not divide the model's rows is left out.
    """
    formats = {text: read_formats(text) for text in experiment.options.texts("formats")}
    gpu, position, costs = experiment.gpu, experiment.position, experiment.gpu.costs  # refused before it counts
    fitted = {
        text: experiment.attempt(text, partial(experiment.model.in_formats, *each)) for text, each in formats.items()
    }
    models = {text: model for text, model in fitted.items() if model}
    rows: list[dict[str, Any]] = []
    for stack in experiment.chosen:
        name, first = label_of(stack, own=False), None
        for text, model in models.items():
            found = experiment.attempt(f"{name}, {text}", partial(_step, experiment, model, stack, position))
            if found:
                us = estimate(found, costs)
                first = first or us
                rows.append(
                    {
                        "variant": name,
                        "format": text,
                        "MB a token": found.bytes / 1e6,
                        f"estimate us of bytes, {gpu.name}": parts(found, costs)["bytes"],
                        f"estimate us, {gpu.name}": us,
                        f"against {next(iter(models))} %": 100 * (us / first - 1),
                    }
                )
    where = f"Position {position}, {experiment.model.shape}."
    return ResultTable("formats", QUESTION, rows, ESTIMATED, [*NOTES, where], "time", keys=2)


def _step(experiment: Experiment, model: Model, stack: Stack, position: int) -> Step:
    """The step of a stack; counts are those of the run's own format, as exchanges are the same in all of them."""
    source = experiment.counting.source(stack.variants, stack.knobs)
    return step_of(source, experiment.counting.count(source), model, position)
