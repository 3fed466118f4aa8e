"""A dry run of the evidence on the host device by a virtual clock: cut twice and resumed, the tables are the same."""

import random
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from common.config import budget
from common.record.store import Store
from experiments.__main__ import main as experiments
from experiments.evidence import __main__ as command
from experiments.evidence.execute import Ended

pytestmark = pytest.mark.host
TICK = 12.0  # virtual seconds from one reading of the clock to the next: a row takes three or more
STEPS = {  # small forms of steps of each kind: a sweep, rows made in the experiment's process, predictions
    "validation": ["stack=[fused_head]", "resume=true"],
    "barriers": ["experiment=sync_cost", "options.host_blocks=2"],
    "quality": ["experiment=quality", "options.variants=[baseline,fused_head]", "options.tokens=3"],
    "factorial": ["experiment=factorial", "options.variants=[vec128,fused_head]", "options.position=1"],
    "sass": ["experiment=sass", "options.variants=[fused_head]", "archs=[sm_90]"],
}


@pytest.fixture
def call(host_cache: Path, monkeypatch, seed):
    """call(results, *overrides): one call of the command; each step runs in this process, by the virtual clock.

    Nothing stops such a step at its deadline: test_evidence_plan and test_evidence_execute have the tests of that.
    """
    steps = ",".join(
        f"{{name: {name}, run: experiments, args: [{','.join(map(repr, args))}], seconds: 90, least_s: 40, row_s: 27}}"
        for name, args in STEPS.items()
    )
    common = ["model=tiny", "blocks=2", "archs=[sm_90]", f"cache={host_cache}"]
    fixed = ["device=host", "report=false", f"seed={seed}", f"host.steps=[{steps}]", f"args={common}"]

    def execute(argv: Sequence[str], seconds: float) -> Ended:
        assert argv[0] == "experiments"
        return Ended(experiments(argv[1:]), "")

    def call(results: Path, *overrides: str) -> int:
        ticks = count()
        monkeypatch.setattr(budget, "clock", lambda: TICK * next(ticks))
        code = command.main([*fixed, f"results={results}", *overrides], execute)
        call.spent.append(TICK * next(ticks))
        return code

    call.spent = []
    return call


def tables(results: Path) -> dict[str, Any]:
    """The newest answer of each experiment, and what was found of each stack."""
    rows = Store(results).records()
    found = {row["kind"]: row["table"] for row in rows if "table" in row}
    runs = {row["variant"]: (row["status"], row["key"], row["counts"]) for row in rows if row["kind"] == "run"}
    return found | runs


def test_cut_twice_and_resumed_it_gives_the_tables_of_one_undisturbed_run(call, tmp_path, seed):
    assert call(tmp_path / "whole.jsonl") == 0
    whole = tables(tmp_path / "whole.jsonl")
    assert set(whole) == {"sync_cost", "quality", "factorial", "sass", "fused_head"}

    rng, results = random.Random(seed), tmp_path / "r.jsonl"
    for cut in range(2):  # killed within the call: the file ends in the middle of a row, and goes to another machine
        code = call(results, "budget_s=540")
        assert code == 3 or cut, f"seed {seed}"
        content = results.read_bytes()
        results = tmp_path / f"copy{cut}.jsonl"
        results.write_bytes(content[: rng.randrange(len(content) // 2, len(content))])
    while call(results, "budget_s=540") == 3:
        assert len(call.spent) < 20, f"seed {seed}"
    assert tables(results) == whole, f"seed {seed}"
