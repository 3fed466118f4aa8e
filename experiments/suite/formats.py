"""Weights and cache below bf16: fewer bytes a token, and what a kernel makes of them."""

from functools import partial
from itertools import product
from typing import Any

from common.model.format import read_formats
from common.model.shapes import Model
from common.stacks.stack import Stack
from experiments.experiment import Experiment
from experiments.prediction.gpus import GpuModel
from experiments.tables.result_table import PREDICTED, ResultTable
from experiments.tables.row import label_of

QUESTION = "how much faster a token is with weights below bf16, where fewer bytes are read and more is calculated"
NOTES = (
    "int4:128/int8/fp8: the layers' matrices, the LM head, and the KV cache. Read floor: all that a token reads, once, "
    "at the GPU's read rate; no bound for a kernel that finds some of it in L2. low and high: what the unknown "
    "constants of the GPU allow.",
    "A kernel that multiplies no faster than its bytes arrive gains nothing from fewer: then it is bound by the "
    "instructions that take numbers apart, and by the exchanges, which are the same in any format.",
)


def ask(experiment: Experiment) -> ResultTable:
    """A row for each GPU, stack of the run and format; the first format is the one that the others are against.

    A format whose groups do not divide the model's rows is left out.
    """
    formats = {text: read_formats(text) for text in experiment.options.texts("formats")}
    gpus = [experiment.predictor.gpu(key) for key in experiment.options.texts("gpus")]
    fitted = {
        text: experiment.attempt(text, partial(experiment.model.in_formats, *each)) for text, each in formats.items()
    }
    models = {text: model for text, model in fitted.items() if model}
    rows: list[dict[str, Any]] = []
    for gpu, stack in product(gpus, experiment.chosen):
        first = None
        for text, model in models.items():
            name = f"{label_of(stack, own=False)}, {text}, {gpu.key}"
            found = experiment.attempt(name, partial(_times, experiment, model, stack, gpu))
            if found:
                first = first or found["predicted us"]
                against = 100 * (found["predicted us"] / first - 1)
                about = {"gpu": gpu.key, "variant": label_of(stack, own=False), "format": text}
                rows.append({**about, **found, f"against {next(iter(models))} %": against})
    position = f"Position {experiment.position}, {experiment.model.shape}."
    missing = "the times themselves: only a measurement says what a GPU makes of them"
    return ResultTable("formats", QUESTION, rows, PREDICTED, [*NOTES, position], missing)


def _times(experiment: Experiment, model: Model, stack: Stack, gpu: GpuModel) -> dict[str, float]:
    size = model.bytes_per_token(experiment.position)
    time = experiment.predictor_of(model).predict(stack.variants, stack.knobs, gpu, experiment.position)
    return {
        "MB a token": size / 1e6,
        "read floor us": 1e6 * size / gpu.read_rate,
        "predicted us": 1e6 * time.seconds,
        "low us": 1e6 * time.low,
        "high us": 1e6 * time.high,
        "tok/s": time.rate,
    }
