"""A dry run of the evidence on the stand-in, by its virtual clock: killed and resumed, the tables are the same.

`make test` takes one of the steps, in a small form, and kills once; tests/test_evidence_plan.py cuts at any byte.
LAB_SAMPLE=all takes all of conf/evidence.yaml, in minutes, and kills twice.
"""

import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from nsight_samples import fake_tools
from omegaconf import OmegaConf
from sampled import ALL, SAMPLE, sampled
from standin import environment
from standin.standin_gpu import clock

from common import ROOT
from common.record.store import Store

pytestmark = [pytest.mark.cpu, pytest.mark.timeout(7200 if SAMPLE == ALL else 900)]
BUDGET = 540
LAST = BUDGET + 6.0  # virtual second at which the clock stops: a call's budget begins when its Python has started
SHORT = ["timing.rounds=8", "timing.max_rounds=8", "timing.steps=1", "timing.warmup=1", "timing.tokens=1"]
SMALL = {
    "ceiling": [],
    "streaming": ["variant=fused_head"],
    "megaqwen": ["variant=fused_head"],
    "ablation": ["options.variants=[fused_head]", "options.best=fused_head"],
    "roofline": ["options.variants=[vec128]"],
    "positions": ["options.variants=[fused_head]", "options.positions=[1,40]", "model.positions=256"],
    "quality": ["options.variants=[vec128]", "options.tokens=3"],
}
# Fields that depend on Python's own clock, which is real, and so differ from call to call.
REAL = {"first token ms", "tok/s", "average W", "peak W", "J/token", "tokens/J"}
TESTS = ["-m", "cuda", "-k", "test_every_word_is_read", "tests/cuda"]
STEPS = OmegaConf.to_container(OmegaConf.load(ROOT / "conf" / "evidence.yaml").cuda.steps)
KILLS = 2 if SAMPLE == ALL else 1
NAMES = [step["name"] for step in STEPS] if SAMPLE == ALL else sampled(SMALL, 1)


@pytest.fixture
def settings(cpu_cache: Path, seed) -> list[str]:
    """Keys of the evidence command: its steps, with the tiny model and few rounds."""
    steps = []
    for step in STEPS:
        args = [*step["args"], *([] if "run" in step else SHORT)]
        args += [] if SAMPLE == ALL else SMALL.get(step["name"], [])
        fields = {**step, "args": f"[{','.join(map(repr, TESTS if step['name'] == 'tests' else args))}]"}
        steps.append(f"{{{','.join(f'{name}: {value}' for name, value in fields.items())}}}")
    args = ["model=tiny", "validate=quick", "blocks=3", f"cache={cpu_cache}"]
    where = [f"cuda.steps=[{','.join(steps)}]", f"args={args}", f"only=[{','.join(NAMES)}]"]
    return ["device=cuda", f"seed={seed}", *where]


@pytest.fixture
def call(settings, tmp_path) -> Callable[..., tuple[int, float]]:
    """call(results, *overrides, last): `python -m experiments.evidence`, killed when the virtual clock reaches `last`.

    Returns its exit code, and the virtual seconds that it took.
    """
    virtual = tmp_path / "clock"
    variables = os.environ | environment(STANDIN_CLOCK=str(virtual), LAB_SAMPLE=SAMPLE) | fake_tools(tmp_path)

    def call_(results: Path, *overrides: str, last: float = 1e9) -> tuple[int, float]:
        clock.make(virtual, last)
        command = [sys.executable, "-m", "experiments.evidence", *settings, f"results={results}", *overrides]
        with open(tmp_path / "out", "a") as out:
            process = subprocess.Popen(command, cwd=ROOT, env=variables, stdout=out, stderr=out)
        while process.poll() is None and clock.read(virtual) < last:
            time.sleep(0.1)
        if last < BUDGET:
            process.kill()
        return process.wait(), clock.read(virtual)

    return call_


def tables(results: Path) -> dict[Any, Any]:
    """The newest table of each experiment, and the verdict and the times of every stack."""
    found: dict[Any, Any] = {}
    for row in Store(results).records():
        if "table" in row:
            lines = [{name: value for name, value in line.items() if name not in REAL} for line in row["table"]]
            found[row["kind"], str(row["options"])] = lines
        elif row["kind"] == "run" and row["status"] != "INTERRUPTED":
            times = [(timed["position"], timed["seconds"]) for timed in row["latencies"]]
            # By the stack, not its name: a stack that two rows of a step share is measured once when it is resumed.
            found[str(row["stack"]), str(row["parent"]), str(row["asked"])] = row["status"], times
    return found


def pop_barriers(found: dict[Any, Any]) -> list[float]:
    """Microseconds of barriers, taken out: how often one asks again depends on the host's threads, by nanoseconds."""
    return [line.pop("us") for key, lines in found.items() if key[0] == "sync_cost" for line in lines]


def test_killed_and_resumed_it_gives_the_tables_of_one_undisturbed_run(call, tmp_path, seed):
    code, took = call(tmp_path / "whole.jsonl")
    assert code == 0, (tmp_path / "out").read_text()
    whole, rng, results = tables(tmp_path / "whole.jsonl"), random.Random(seed), tmp_path / "0.jsonl"
    for kill in range(KILLS):
        call(results, f"budget_s={BUDGET}", last=rng.uniform(0.2, 0.8) * min(took, BUDGET))
        kept = results.read_bytes() if results.exists() else b""  # it goes to another machine
        results = tmp_path / f"{kill + 1}.jsonl"
        results.write_bytes(kept)
    calls = 0
    while call(results, f"budget_s={BUDGET}", last=LAST)[0] == 3:
        calls += 1
        assert calls < 9, (tmp_path / "out").read_text()
    cut = tables(results)
    assert pop_barriers(cut) == pytest.approx(pop_barriers(whole), abs=1e-3)
    assert cut == whole
