"""A dry run of the evidence on a CPU by a virtual clock: cut twice and resumed, the tables are the same."""

import random
from collections.abc import Sequence
from math import inf
from pathlib import Path
from typing import Any

import pytest
from sampled import sampled

from common.config import budget
from common.config.cli import INTERRUPTED
from common.record.store import Store
from experiments.__main__ import main as experiments
from experiments.evidence import __main__ as command
from experiments.evidence.execute import Ended

pytestmark = pytest.mark.cpu
TICK = 12.0  # virtual seconds from one reading of the clock to the next: a row takes three or more
STEPS = {  # small forms of steps of each kind: a sweep, rows made in the experiment's process, counts
    "validation": ["stack=[fused_head]", "resume=true"],
    "barriers": ["experiment=sync_cost", "options.cpu_blocks=2"],
    "quality": ["experiment=quality", "options.variants=[baseline,fused_head]", "options.tokens=3"],
    "ablation": ["experiment=ablation", "options.variants=[vec128]", "options.best=vec128"],
    "sass": ["experiment=sass", "options.variants=[fused_head]", "archs=[sm_90]"],
}
KINDS = {name: name for name in STEPS} | {"validation": "fused_head", "barriers": "sync_cost"}  # what they leave


NAMES = sampled(STEPS, 3)
BUDGET = 80 * len(NAMES)  # virtual seconds of a call: too few for all of them


class Clock:
    """Virtual: each reading takes TICK. At `until`, the deadline of a step, it interrupts once, as `execute` does."""

    now = 0.0
    until = inf

    def __call__(self) -> float:
        self.now += TICK
        if self.now > self.until:
            self.until = inf
            raise KeyboardInterrupt
        return self.now


@pytest.fixture
def call(cpu_cache: Path, monkeypatch, seed):
    """call(results, *overrides): one call of the command; each step runs in this process, by the virtual clock."""
    steps = ",".join(
        f"{{name: {name}, run: experiments, args: [{','.join(map(repr, args))}], seconds: 90, row_s: 35}}"
        for name, args in STEPS.items()
        if name in NAMES
    )
    common = ["model=tiny", "blocks=2", "archs=[sm_90]", f"cache={cpu_cache}"]
    fixed = ["device=ptx", f"seed={seed}", f"cpu.steps=[{steps}]", f"args={common}"]

    def execute(argv: Sequence[str], seconds: float) -> Ended:
        assert argv[0] == "experiments"
        clock.until = clock.now + seconds
        code = experiments(argv[1:])
        clock.until = inf
        return Ended(None if code == INTERRUPTED else code, "")

    def call(results: Path, *overrides: str) -> int:
        clock.now, clock.until = 0.0, inf
        code = command.main([*fixed, f"results={results}", *overrides], execute)
        call.spent.append(clock.now)
        return code

    clock = Clock()
    monkeypatch.setattr(budget, "clock", clock)

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
    assert set(whole) == {KINDS[name] for name in NAMES}

    rng, results = random.Random(seed), tmp_path / "r.jsonl"
    for cut in range(2):  # killed within the call: the file ends in the middle of a row, and goes to another machine
        code = call(results, f"budget_s={BUDGET}")
        assert code == 3 or cut, f"seed {seed}"
        content = results.read_bytes()
        results = tmp_path / f"copy{cut}.jsonl"
        results.write_bytes(content[: rng.randrange(len(content) // 2, len(content))])
    while call(results, f"budget_s={BUDGET}") == 3:
        assert len(call.spent) < 20, f"seed {seed}"
    assert max(call.spent[1:]) < BUDGET + 60, f"seed {seed}"
    assert tables(results) == whole, f"seed {seed}"
