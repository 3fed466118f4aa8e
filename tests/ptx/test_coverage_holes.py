"""A validation executes all of the CUDA text that a stack's kernels have, but for what has a reason."""

from dataclasses import replace

import pytest
from sampled import ALL, SAMPLE, sampled

from common import ROOT
from common.config.cli import composed
from common.config.resolve import model_named, resolve
from common.stacks.catalog import read_catalog
from common.stacks.stack import choose_stacks
from experiments.tables.progress import Quiet
from tests.strength.coverage.execution import executed, others
from tests.strength.coverage.holes import FOLDERS, LINES, Item, items, listed, reason_for
from tests.strength.excuses import excuses

NAMED = choose_stacks(read_catalog(), "catalog", None, {}, 256)
BEYOND = others(model_named("tiny"), 256)  # stacks with a model whose formats they take


@pytest.fixture
def covered(cpu_cache, seed):
    """covered(trials, stacks, beyond): as `python -m tests.strength.coverage` executes them; True for what is."""

    def covered_(trials: str, stacks=(), beyond=()) -> list[dict[Item, bool]]:
        keys = [f"validate.trials={trials}", "model=tiny", f"cache={cpu_cache}", f"seed={seed}"]
        found, failed = executed(replace(resolve(composed("coverage", keys)), stacks=tuple(stacks)), Quiet(), beyond)
        assert failed == []
        return [items(places) for _, places in found]

    return covered_


@pytest.mark.cpu
@pytest.mark.parametrize("case", sampled([*NAMED, *BEYOND], 1), ids=lambda case: getattr(case, "name", "beyond"))
def test_plain_trials_execute_every_line_of_variants(case, covered):
    (done,) = covered("plain", [case]) if case in NAMED else covered("plain", beyond=[case])
    own = [item for item in done if item.kind == LINES and item.file.startswith("variants/")]
    assert any(done[item] for item in own)
    assert list(listed(item for item in own if not done[item] and not reason_for(item))) == []


@pytest.mark.cpu
@pytest.mark.timeout(7200)
@pytest.mark.skipif(SAMPLE != ALL, reason="takes all stacks")
def test_each_stack_leaves_nothing_out_without_a_reason_and_every_reason_is_needed(covered):
    missing = {item for done in covered("all", NAMED, BEYOND) for item, reached in done.items() if not reached}
    assert list(listed(item for item in missing if not reason_for(item))) == []
    files = [str(path.relative_to(ROOT)) for folder in FOLDERS for path in (ROOT / folder).glob("*.cu*")]
    every = {why for file in files for whys in excuses(file, "not executed").values() for why in whys}
    assert {reason_for(item) for item in missing} == every
