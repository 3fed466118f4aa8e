"""The trials of a full validation execute all of the CUDA text, but for what has a reason beside it.

The starts of all trials are executed without the reference, which does not change what a kernel executes.
"""

from contextlib import closing
from pathlib import Path

import pytest
import torch
from sampled import ALL, SAMPLE

from common.config.resolve import model_named
from common.model.layout import Layout
from common.model.shapes import Model
from common.model.weights import load
from common.stacks.catalog import read_catalog
from common.stacks.stack import Stack, choose_stacks
from common.validate.prove import text_of
from common.validate.scenarios import drawn
from common.validate.trials import TRIALS
from common.validate.values import weights_of
from tests.strength.coverage.covered import Covered, CoveredDevice, covered
from tests.strength.coverage.items import holes, items
from tests.strength.coverage.others import others
from tests.strength.coverage.reasons import read_reasons, unexplained
from tests.strength.coverage.table import listed

pytestmark = pytest.mark.cpu
CATALOG = read_catalog()
TINY, THREADS = model_named("tiny"), 256
# Stacks with a model whose formats they take; those beyond the catalog's take plain trials.
CASES = [
    *((TINY, *choose_stacks(CATALOG, name, None, {}, THREADS)) for name in (*CATALOG.variants, *CATALOG.stacks)),
    *others(TINY, THREADS),
]
BEYOND = CASES[len(CATALOG.variants) + len(CATALOG.stacks) :]


@pytest.fixture(scope="module")
def programs(cpu_cache: Path, tmp_path_factory: pytest.TempPathFactory):
    """programs(case, seed): its programs, after all starts of its trials. Kept, for the test of all of them."""
    seen: dict[int, list[Covered]] = {}

    def run(case: tuple[Model, Stack], seed: int) -> list[Covered]:
        number = CASES.index(case)
        if number not in seen:
            folder = tmp_path_factory.mktemp(f"case{number}")
            device, (model, stack) = CoveredDevice(cpu_cache, folder, seed), case
            for trial in (each.like(model) for each in TRIALS if each.plain or case not in BEYOND):
                trial = trial.with_room(text_of(CATALOG, stack, trial).tokens_per_step)
                layout = Layout(trial.model)
                packed = load("synthetic", trial.model, None, cpu_cache / "weights", seed)[2].flat
                weights = weights_of(trial.weights, packed, layout, seed)
                starts = drawn(trial.starts, layout, weights, torch.Generator().manual_seed(seed))
                program = device.compile(text_of(CATALOG, stack, trial))
                with closing(device.session(program, weights, trial.blocks)) as session:
                    for start in (each.on(session) for each in starts):
                        session.reset(start.ids, start.position, start.held, len(start.ids), start.barriers)
                        session.run(start.steps)
            seen[number] = list(covered(folder))
        return seen[number]

    return run


@pytest.mark.timeout(3600)  # an idle machine needs ten minutes
@pytest.mark.skipif(SAMPLE != ALL, reason="takes all stacks")
def test_all_stacks_leave_nothing_out_without_a_reason_and_every_reason_is_needed(programs, seed: int):
    """A reason is needed where one stack alone has its hole: a user may ask for the coverage of one."""
    missing = holes(items(program for case in CASES for program in programs(case, seed)))
    reasons = read_reasons()
    assert list(listed(unexplained(missing, reasons))) == []
    alone = [hole for case in CASES for hole in holes(items(programs(case, seed)))]
    assert [reason for reason in reasons if not any(reason.explains(hole) for hole in alone)] == []
