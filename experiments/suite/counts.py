"""Exact counts of one decode step: barriers, bytes by the width of the load, prefetches; the same on every machine.

Estimates are made from its records; Qwen3-0.6B's are committed.
"""

from common.devices.counters import Counts
from common.stacks.stack import Stack
from experiments.experiment import Experiment
from experiments.run.counting import GRID
from experiments.tables.result_table import COUNTED, ResultTable


def ask(experiment: Experiment) -> ResultTable:
    """A row for each stack."""
    rows = experiment.rows(experiment.chosen(), lambda stack: _count(experiment, stack).columns())
    question = f"what one step of {experiment.model.name} does at position 1 on a grid of {GRID} blocks"
    note = "Every row of a matrix loads the activations again, from L1 or L2; weights and KV cache come from memory."
    return ResultTable("counts", question, rows, COUNTED, [note])


def _count(experiment: Experiment, stack: Stack) -> Counts:
    """Counts of the stack; they are kept as a record, and so are the parent's."""
    experiment.counts(stack.parent, stack.knobs)
    return experiment.counts(stack.variants, stack.knobs)
