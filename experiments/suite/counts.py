"""Exact counts of one decode step: barriers, bytes by the width of the load, prefetches; the same on every machine.

Predictions are made from its records; those of Qwen3-0.6B are committed.
"""

import pandas as pd

from common.stacks.catalog import read_catalog
from common.stacks.stack import Stack
from experiments.experiment import Experiment
from experiments.prediction import gpus
from experiments.prediction.predictor import GRID
from experiments.show.result_table import COUNTED, ResultTable


def ask(experiment: Experiment) -> ResultTable:
    """A row for each stack; those that prefetch are counted on the grid of every GPU, and parents on one."""
    rows = []
    for stack in _chosen(experiment):
        parent = experiment.predictor.source(stack.parent, stack.knobs)
        experiment.predictor.known_counts.count(parent, GRID * parent.blocks_per_sm)
        source = experiment.predictor.source(stack.variants, stack.knobs)
        counts = experiment.predictor.known_counts.count(source, GRID * source.blocks_per_sm)
        for gpu in gpus.names():
            experiment.predictor.counts(source, experiment.predictor.gpu(gpu))
        rows.append({"variant": stack.name} | counts.columns())
    question = f"what one step of {experiment.model.name} does at position 1 on a grid of {GRID} blocks"
    note = "Every row of a matrix loads the activations again, from L1 or L2; weights and KV cache come from memory."
    return ResultTable("counts", question, pd.DataFrame(rows), COUNTED, [note])


def _chosen(experiment: Experiment) -> list[Stack]:
    """Those of `options.variants`, else those of the run with their knobs; where that is every variant, all names."""
    catalog, stacks = read_catalog(), list(experiment.config.stacks)
    if names := experiment.options.texts("variants"):
        return [experiment.stack(name) for name in names]
    whole = {stack.name for stack in stacks} >= set(catalog.variants)
    return [*stacks, *map(experiment.stack, catalog.stacks if whole else ())]
