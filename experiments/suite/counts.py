"""Exact counts of one decode step: barriers, bytes by the width of the load, prefetches; the same on every machine.

Predictions are made from its records; those of Qwen3-0.6B are committed.
"""

from contextlib import suppress
from itertools import product

from common.devices.counters import Counts
from common.stacks.catalog import read_catalog
from common.stacks.stack import Stack
from experiments.experiment import Experiment
from experiments.prediction import gpus
from experiments.prediction.forecast import GPU, NEWER
from experiments.prediction.predictor import GRID, POSITION, Unsupported
from experiments.tables.result_table import COUNTED, ResultTable


def ask(experiment: Experiment) -> ResultTable:
    """A row for each stack; those that prefetch are counted on the grid of every GPU, and parents on one."""
    rows = experiment.rows(_chosen(experiment), lambda stack: _count(experiment, stack).columns())
    question = f"what one step of {experiment.model.name} does at position 1 on a grid of {GRID} blocks"
    note = "Every row of a matrix loads the activations again, from L1 or L2; weights and KV cache come from memory."
    return ResultTable("counts", question, rows, COUNTED, [note])


def _count(experiment: Experiment, stack: Stack) -> Counts:
    """Counts of the stack; each count, also the parent's and those on other grids, is kept as a record."""
    predictor = experiment.predictor
    parent = predictor.source(stack.parent, stack.knobs)
    predictor.count(parent)
    source = predictor.source(stack.variants, stack.knobs)
    for key in gpus.names():
        predictor.counts(source, predictor.gpu(key))
    # A run without a GPU predicts with these; other chains are walked when they are needed.
    for each, gpu in product((parent, source), (GPU, NEWER)):
        with suppress(Unsupported):
            predictor.chains(each, predictor.gpu(gpu), POSITION)
    return predictor.count(source)


def _chosen(experiment: Experiment) -> list[Stack]:
    """Names in `options.variants`, else the run's stacks with their knobs; where that is every variant, all names."""
    catalog, stacks = read_catalog(), list(experiment.config.stacks)
    if names := experiment.options.texts("variants"):
        return experiment.stacks(names)
    whole = {stack.name for stack in stacks} >= set(catalog.variants)
    return [*stacks, *map(experiment.stack, catalog.stacks if whole else ())]
