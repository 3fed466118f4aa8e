"""Identity of a record: a stack against one parent is another question than the same stack against another one."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from experiments.experiment import Experiment
from experiments.run.sweep import open_sweep
from experiments.show.progress import Quiet

pytestmark = pytest.mark.host
STACK = ("redundant_rmsnorm", "fused_head")


@pytest.fixture
def sweep(configured, host_cache: Path, tmp_path: Path, seed):
    """sweep(stack, ...): the record of each, resumed from one file of records."""
    overrides = ["model=tiny", "archs=[]", f"cache={host_cache}", f"results={tmp_path}/r.jsonl", f"seed={seed}"]
    config = replace(configured("experiment=ablation", *overrides), blocks=2)

    def run(*stacks) -> list[dict[str, Any]]:
        with open_sweep(replace(config, stacks=stacks), Quiet()) as opened:
            opened.run()
        return [opened.records[index] for index in range(len(stacks))]

    run.experiment = Experiment(config, Quiet())
    return run


def test_a_resumed_stack_is_not_given_the_record_of_another_parent(sweep):
    own = sweep.experiment.composed(STACK, ())
    without = replace(sweep.experiment.composed(STACK, STACK[:1]), name="both - fused_head")
    (first,) = sweep(without)
    (second,) = sweep(own)
    assert (first["parent"], second["parent"]) == (list(STACK[:1]), [])
    assert first["id"] != second["id"]
    assert [row["id"] for row in sweep(without, own)] == [first["id"], second["id"]]


def test_a_resumed_record_has_the_name_that_was_asked_for(sweep):
    """One stack with one parent under two names is measured once."""
    own = sweep.experiment.composed(STACK, ())
    (first,) = sweep(replace(own, name="published"))
    (second,) = sweep(own)
    assert (first["id"], second["variant"]) == (second["id"], "redundant_rmsnorm+fused_head")
