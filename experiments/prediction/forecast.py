"""Forecasts of a run without a GPU: each stack beside its parent, predicted from known counts."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from common.config.resolve import model_named
from common.config.run_config import RunConfig
from common.errors import LabError
from common.record.store import Store
from common.stacks.catalog import read_catalog
from common.stacks.stack import Stack, knob_values, knob_words
from experiments.prediction.gpus import GpuModel
from experiments.prediction.predictor import Predictor, Uncounted, Unsupported
from experiments.tables.row import NOT_MODELLED, Forecast

MODEL, GPU, POSITION = "qwen3_0_6b", "rtx3090", 1  # most figures are published for these
NEWER = "h200"  # for stacks that GPU is too old for
THREADS = 256  # of a block where a command does not say


def forecasts(config: RunConfig) -> dict[str, Forecast]:
    """Forecasts by stack name: MODEL at POSITION, all on GPU; on NEWER if more stacks have a figure there.

    Counts come from records only: counting takes a minute a stack.
    """
    predict = forecaster(config.threads, config.results)

    def on(gpu: str) -> dict[str, Forecast]:
        return {stack.name: predict(stack, gpu) for stack in config.stacks}

    known = on(GPU)
    return min(known, on(NEWER), key=_lacking) if _lacking(known) else known


def _lacking(known: Mapping[str, Forecast]) -> int:
    return sum(one.microseconds is None for one in known.values())


def forecaster(threads: int, results: Path) -> Callable[..., Forecast]:
    """Predictor of a stack in blocks of `threads`, on GPU or on one named as second argument.

    Counts in `results` are used beside the committed ones.
    """
    unused = results.parent  # where kernels would be compiled, if any were counted
    return partial(_known, Predictor(model_named(MODEL), threads, Store(results), unused))


def _known(predictor: Predictor, stack: Stack, name: str = GPU) -> Forecast:
    try:
        return forecast(predictor, stack, predictor.gpu(name), POSITION)
    except Uncounted:
        note = f"no counts of {MODEL} yet: {counting(stack, predictor.threads)}"
    except Unsupported as error:
        note = error.cause
    except LabError as error:  # in a variant's declarations, or for loops that are not recognized
        note = str(error)
    return Forecast(stack.parent, None, None, None, None, note, name, MODEL, POSITION)


def forecast(predictor: Predictor, stack: Stack, gpu: GpuModel, position: int) -> Forecast:
    """Prediction of `stack` beside its parent. Raises LabError as `Predictor.predict` does."""
    own, parent = (
        predictor.predict(variants, stack.knobs, gpu, position) for variants in (stack.variants, stack.parent)
    )
    effect = own.against(parent)
    return Forecast(
        parent=stack.parent,
        microseconds=1e6 * own.seconds,
        interval=(1e6 * own.low, 1e6 * own.high),
        effect=effect.value if effect else None,
        effect_interval=(effect.low, effect.high) if effect else None,
        note=NOT_MODELLED if effect is None and stack.variants != stack.parent else "",
        gpu=gpu.key,
        model=predictor.model.name,
        position=position,
    )


def counting(stack: Stack, threads: int) -> str:
    """The command that counts `stack` and its parent, with the knobs and the block size that it has here."""
    catalog = read_catalog()
    named = stack.name in catalog.variants or stack.name in catalog.stacks
    words = [f"variant={stack.name}" if named else f"stack=[{','.join(stack.variants)}]"]
    for name, values in knob_values(catalog, list(stack.knobs), stack.knobs).items():
        defaults = {knob.name: knob.default for knob in catalog.variants[name].knobs}
        given = {knob: value for knob, value in values.items() if value != defaults[knob]}
        words += [word for word in knob_words(given) if word not in words]
    words += [f"threads={threads}"] if threads != THREADS else []
    return f"python -m experiments experiment=counts {' '.join(words)}"
