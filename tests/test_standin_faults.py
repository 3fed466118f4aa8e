"""Faults of the hardware, on the stand-in: each costs the row of its stack, and what comes after it goes on.

The commands are processes as a user starts them, and their workers are processes too.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from composed import Composed
from sampled import sampled
from standin import environment, installed

from common import ROOT
from common.record.store import Store

pytestmark = pytest.mark.cpu
SHORT = ["timing.rounds=8", "timing.max_rounds=8", "timing.steps=1", "timing.warmup=1", "timing.tokens=1"]
PARENTS = ["", "redundant_rmsnorm"]
LIMIT_S = 30  # for one stack, on machines that do much else; its kernels are compiled before
SOON = {
    "vec128": ("trap", "CRASHED", "cudaErrorLaunchFailure: unspecified launch failure"),
    "fused_head": ("trap@45", "CRASHED", "cudaErrorLaunchFailure"),  # it is being timed then
    "split_kv": ("oom", "OOM", "Out of memory allocating"),
}
NEVER = {
    "head_split": ("hang", "HUNG", f"not finished after {LIMIT_S} s, at: validate head_split"),
    "smem_cache": ("blocked", "HUNG", f"not finished after {LIMIT_S} s, at: validate smem_cache"),
}


@pytest.fixture
def run(tmp_path, cpu_cache) -> Callable[..., tuple[subprocess.CompletedProcess, dict[str, Mapping[str, Any]]]]:
    """run(faults, *arguments): `python -m experiments` with them; the finished process, and the newest run by stack."""

    def run_(faults: str, *arguments: str) -> tuple[subprocess.CompletedProcess, dict[str, Mapping[str, Any]]]:
        store = tmp_path / "records.jsonl"
        fixed = ["device=cuda", "model=tiny", "archs=[]", "validate=quick", "blocks=3", "seed=1", *SHORT]
        where = [f"cache={cpu_cache}", f"results={store}", f"timeout_s={LIMIT_S}"]
        variables = {"STANDIN_FAULT": faults, "STANDIN_LOST": str(tmp_path / "lost"), "LAB_CACHE": str(cpu_cache)}
        done = subprocess.run(
            [sys.executable, "-m", "experiments", *fixed, *where, *arguments],
            cwd=ROOT,
            env=os.environ | environment(**variables),
            capture_output=True,
            text=True,
        )
        assert "Traceback" not in done.stderr, done.stderr
        return done, {row["variant"]: row for row in Store(store).records() if row["kind"] == "run"}

    return run_


@pytest.fixture
def compiled(cpu_cache, tiny, monkeypatch) -> Callable[..., None]:
    """compiled(*stacks): their kernels are in the cache, so that LIMIT_S is not spent on compiling."""

    def compile_(*stacks: str) -> None:
        monkeypatch.setenv("LAB_CACHE", str(cpu_cache))
        with installed():
            from standin_gpu.compiling import compile_text
            from standin_gpu.executing import program

            from common.compile.nvrtc import options

            for stack in stacks:
                text = Composed(tuple(stack.split())).source(tiny).text
                program(compile_text(text, options()).ptx).shared("decode")  # which decodes it

    return compile_


def test_each_fault_costs_the_row_of_its_stack(run, compiled):
    faults = dict((*sampled(SOON.items(), 2), *sampled(NEVER.items(), 1)))
    names = (*faults, "cp_async")
    compiled(*PARENTS, *names)
    faulty = "; ".join(f"{kind} variants/{name}.cu" for name, (kind, _, _) in faults.items())
    done, found = run(faulty, "experiment=roofline", f"options.variants=[{','.join(names)}]")
    for name, (_, status, reason) in faults.items():
        assert found[name]["status"] == status, found[name]
        assert reason in found[name]["reason"]
        assert not found[name]["latencies"]
    if "fused_head" in faults:
        assert found["fused_head"]["verdict"]["mismatch"] is None
    assert (found["cp_async"]["status"], len(found["cp_async"]["latencies"])) == ("PASSED", 1)
    assert done.returncode == 0, done.stderr
    assert "cp_async" in done.stdout
    assert all(name in done.stderr for name in faults)


def test_one_failed_stack_of_a_run_is_exit_code_1(run, compiled):
    compiled("", "vec128")
    done, found = run("trap variants/vec128.cu", "variant=vec128")
    assert found["vec128"]["status"] == "CRASHED"
    assert done.returncode == 1, done.stderr
    done, found = run("", "variant=vec128", "resume=true")
    assert (found["vec128"]["status"], done.returncode) == ("CRASHED", 1)


def test_a_lost_gpu_ends_the_run_with_one_line_and_keeps_its_record(run, compiled):
    compiled("", "vec128", "cp_async")
    done, found = run("lost variants/vec128.cu", "experiment=roofline", "options.variants=[vec128,cp_async]")
    assert found["vec128"]["status"] == "CRASHED"
    assert "cudaErrorUnknown" in found["vec128"]["reason"]
    assert "cp_async" not in found
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("error: the GPU cannot be used: cudaErrorNoDevice")
    done, _ = run("", "variant=vec128")
    assert done.returncode == 2
    assert "cudaErrorNoDevice: no CUDA-capable device is detected" in done.stderr
