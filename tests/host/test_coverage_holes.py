"""The trials of a full validation execute all of the CUDA text, but for what has a reason beside it.

The starts of all trials are executed without the reference, which does not change what a kernel executes.
"""

from contextlib import closing
from pathlib import Path

import pytest
import torch
from sampled import ALL, SAMPLE

from common.model.layout import Layout
from common.model.weights import load
from common.stacks.catalog import read_catalog
from common.stacks.stack import choose_stacks
from common.validate.prove import text_of
from common.validate.scenarios import drawn
from common.validate.trials import TRIALS
from common.validate.values import weights_of
from tests.strength.coverage.covered import Covered, CoveredDevice, covered
from tests.strength.coverage.items import holes, items
from tests.strength.coverage.reasons import read_reasons, unexplained
from tests.strength.coverage.table import listed

pytestmark = pytest.mark.host
CATALOG = read_catalog()
NAMES = [*CATALOG.variants, *CATALOG.stacks]


@pytest.fixture(scope="module")
def programs(host_cache: Path, tmp_path_factory: pytest.TempPathFactory):
    """programs(name): a stack's programs, after all starts of all trials. Kept, for the test of all of them."""
    seen: dict[str, list[Covered]] = {}

    def run(name: str, seed: int) -> list[Covered]:
        if name not in seen:
            folder = tmp_path_factory.mktemp(name)
            device = CoveredDevice(host_cache, folder, seed)
            (stack,) = choose_stacks(CATALOG, name, None, {}, threads=256)
            for trial in TRIALS:
                layout = Layout(trial.model)
                packed = load("synthetic", trial.model, None, host_cache / "weights", seed)[2].flat
                weights = weights_of(trial.weights, packed, layout, seed)
                starts = drawn(trial.starts, layout, weights, torch.Generator().manual_seed(seed))
                program = device.compile(text_of(CATALOG, stack, trial))
                with closing(device.session(program, weights, trial.blocks)) as session:
                    for start in starts:
                        session.reset(start.ids, start.position, start.history, len(start.ids), start.barriers)
                        session.run(start.steps)
            seen[name] = list(covered(folder))
        return seen[name]

    return run


@pytest.mark.timeout(3600)  # an idle machine needs ten minutes
@pytest.mark.skipif(SAMPLE != ALL, reason="takes all stacks")
def test_all_stacks_leave_nothing_out_without_a_reason_and_every_reason_is_needed(programs, seed: int):
    """A reason is needed where one stack alone has its hole: a user may ask for the coverage of one."""
    missing = holes(items(program for name in NAMES for program in programs(name, seed)))
    reasons = read_reasons()
    assert list(listed(unexplained(missing, reasons))) == []
    alone = [hole for name in NAMES for hole in holes(items(programs(name, seed)))]
    assert [reason for reason in reasons if not any(reason.explains(hole) for hole in alone)] == []
