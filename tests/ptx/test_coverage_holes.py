"""The trials execute all of the CUDA text that a stack's kernels have, but for what has a reason."""

from pathlib import Path

import pytest
from sampled import ALL, SAMPLE, sampled

from common.config.resolve import model_named
from common.stacks.catalog import read_catalog
from common.stacks.stack import choose_stacks
from common.validate.trials import TRIALS, chosen
from tests.strength.coverage.execution import places
from tests.strength.coverage.holes import LINES, Item, items, listed, read_reasons, reason_for, unexplained
from tests.strength.coverage.others import others

CATALOG = read_catalog()
TINY, THREADS = model_named("tiny"), 256
NAMED = [(TINY, *choose_stacks(CATALOG, name, None, {}, THREADS)) for name in (*CATALOG.variants, *CATALOG.stacks)]
BEYOND = others(TINY, THREADS)  # stacks with a model whose formats they take


@pytest.mark.parametrize("case", sampled([*NAMED, *BEYOND], 1), ids=lambda case: case[1].name)
def test_plain_trials_execute_every_line_of_variants(case, cpu_cache: Path, seed: int):
    done = items(places(*case, chosen("plain"), cpu_cache, seed))
    own = [item for item in done if item.kind == LINES and item.file.startswith("variants/")]
    assert any(done[item] for item in own)
    assert list(listed(unexplained((item for item in own if not done[item]), read_reasons()))) == []


@pytest.mark.timeout(3600)
@pytest.mark.skipif(SAMPLE != ALL, reason="takes all stacks")
def test_each_stack_leaves_nothing_out_without_a_reason_and_every_reason_is_needed(cpu_cache: Path, seed: int):
    reasons, missing = read_reasons(), set[Item]()
    for case in (*NAMED, *BEYOND):
        done = items(places(*case, TRIALS, cpu_cache, seed))
        missing |= {item for item, reached in done.items() if not reached}
    assert list(listed(unexplained(missing, reasons))) == []
    assert {reason_for(item, reasons) for item in missing} == set(reasons)
