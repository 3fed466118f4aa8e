"""The trials execute all of the CUDA text that a stack's kernels have, but for what has a reason.

The starts of trials are executed without the reference, which does not change what a kernel executes.
"""

from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

import pytest
import torch
from sampled import ALL, SAMPLE, sampled

from common.config.resolve import model_named
from common.model.layout import Layout
from common.model.shapes import Model
from common.model.weights import load
from common.stacks.catalog import read_catalog
from common.stacks.stack import Stack, choose_stacks
from common.validate.prove import text_of
from common.validate.scenarios import drawn
from common.validate.trials import TRIALS, Trial, chosen
from common.validate.values import weights_of
from tests.strength.coverage.covered import CoveredDevice
from tests.strength.coverage.holes import LINES, Item, items, listed, read_reasons, reason_for, unexplained
from tests.strength.coverage.others import others

CATALOG = read_catalog()
TINY, THREADS = model_named("tiny"), 256
NAMED = [(TINY, *choose_stacks(CATALOG, name, None, {}, THREADS)) for name in (*CATALOG.variants, *CATALOG.stacks)]
BEYOND = others(TINY, THREADS)  # stacks with a model whose formats they take, for plain trials


def executed(case: tuple[Model, Stack], trials: Iterable[Trial], cache: Path, seed: int) -> dict[Item, bool]:
    """Rows that a stack executes at the starts of trials."""
    model, stack = case
    device = CoveredDevice(stack.variants, cache, seed=seed)
    for trial in (each.like(model) for each in trials):
        trial = trial.with_room(text_of(CATALOG, stack, trial).tokens_per_step)
        layout = Layout(trial.model)
        packed = load("synthetic", trial.model, None, cache / "weights", seed)[2].flat
        weights = weights_of(trial.weights, packed, layout, seed)
        starts = drawn(trial.starts, layout, weights, torch.Generator().manual_seed(seed))
        program = device.compile(text_of(CATALOG, stack, trial))
        with closing(device.session(program, weights, trial.blocks)) as session:
            for start in (each.on(session) for each in starts):
                session.reset(start.ids, start.position, start.held, len(start.ids), start.barriers)
                session.run(start.steps)
    return items(device.places)


@pytest.mark.parametrize("case", sampled([*NAMED, *BEYOND], 1), ids=lambda case: case[1].name)
def test_plain_trials_execute_every_line_of_variants(case, cpu_cache: Path, seed: int):
    done = executed(case, chosen("plain"), cpu_cache, seed)
    own = [item for item in done if item.kind == LINES and item.file.startswith("variants/")]
    assert any(done[item] for item in own)
    assert list(listed(unexplained((item for item in own if not done[item]), read_reasons()))) == []


@pytest.mark.timeout(3600)
@pytest.mark.skipif(SAMPLE != ALL, reason="takes all stacks")
def test_each_stack_leaves_nothing_out_without_a_reason_and_every_reason_is_needed(cpu_cache: Path, seed: int):
    reasons, missing = read_reasons(), set[Item]()
    for case in (*NAMED, *BEYOND):
        done = executed(case, chosen("plain") if case in BEYOND else TRIALS, cpu_cache, seed)
        missing |= {item for item, reached in done.items() if not reached}
    assert list(listed(unexplained(missing, reasons))) == []
    assert {reason_for(item, reasons) for item in missing} == set(reasons)
