"""Rows of an experiment: one that fails costs itself only, a finished one is not made again, knobs reach them all."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from checkpoints import MODEL, save

from common.compile.source import Source
from common.config import budget
from common.errors import CompileError, Crashed, LabError
from common.record.provenance import provenance
from common.record.store import Store
from common.stacks.stack import Stack
from experiments import experiment
from experiments.__main__ import main
from experiments.engines.arms import ARMS
from experiments.run.steps import LabStack
from experiments.suite import counts, sass

pytestmark = [pytest.mark.cpu, pytest.mark.covers]
QUALITY = ["experiment=quality", "options.variants=[baseline,vec128,fused_head]", "options.tokens=3"]
NAMES = ["transformers, bf16", "baseline", "vec128 l1=default", "fused_head rows_per_warp=4"]


@pytest.fixture
def run(cpu_cache: Path, tmp_path: Path, seed) -> Callable[..., tuple[int, list[dict[str, Any]]]]:
    """run(*overrides): exit code, and all records of the store."""

    def run(*overrides: str) -> tuple[int, list[dict[str, Any]]]:
        results = tmp_path / "records.jsonl"
        common = ["device=ptx", "model=tiny", f"cache={cpu_cache}", f"results={results}", f"seed={seed}"]
        grid = [] if overrides[0].endswith(("=sass", "=counts")) else ["blocks=2"]
        return main([*common, *grid, *overrides]), Store(results).records()

    return run


def broken(module, name: str, monkeypatch, error: Exception, stack: str = "vec128") -> list[str]:
    """Let `module.name` fail for one stack; returns the names of the stacks that it was called for."""
    works, called = getattr(module, name), []

    def fails(*given: Any) -> Any:
        (found,) = (one.name for one in given if isinstance(one, Stack | Source | LabStack))
        called.append(found)
        if found == stack:
            raise error
        return works(*given)

    monkeypatch.setattr(module, name, fails)
    return called


def test_a_kernel_that_crashes_costs_quality_its_row(run, monkeypatch):
    broken(LabStack, "session", monkeypatch, Crashed("a kernel wrote beyond its buffers", "see there"))
    code, (*_, record) = run(*QUALITY)
    assert code == 0
    assert [row["variant"] for row in record["table"]] == [name for name in NAMES if "vec128" not in name]
    assert record["notes"][-1] == "Left out: vec128 l1=default: a kernel wrote beyond its buffers; see there"


def test_a_table_of_a_checkpoint_names_its_model(run, tmp_path):
    weights = f"weights={save(tmp_path)}"
    code, (*_, record) = run("experiment=counts", "model=auto", weights, "options.variants=[baseline]")
    assert (code, record["model"]["hidden"]) == (0, MODEL.hidden)


def test_a_kernel_that_crashes_leaves_the_rivals(run, monkeypatch):
    broken(LabStack, "session", monkeypatch, RuntimeError("CUDA error:\nan illegal memory access"))
    short = ["options.tokens=3", "options.positions=[2]", "model.positions=64"]
    code, (*_, record) = run("experiment=rivals", "variant=vec128", "options.rivals=[torch]", *short)
    assert code == 0
    assert [row["system"] for row in record["table"]] == ["torch"]
    assert record["notes"][-1].endswith("vec128 l1=default: RuntimeError: CUDA error: an illegal memory access")


def test_an_arm_that_lacked_something_is_asked_again_when_a_run_resumes(run, monkeypatch):
    short = ["options.tokens=3", "options.positions=[2]", "model.positions=64", "resume=true"]
    argv = ["experiment=rivals", "variant=vec128", "options.rivals=[torch,transformers]", *short]
    works = ARMS["torch"].run

    def lacks(work):
        raise LabError("no compiler", "install one")

    monkeypatch.setitem(ARMS, "torch", replace(ARMS["torch"], run=lacks))
    _, (*_, record) = run(*argv)
    assert [row["state"] for row in record["table"]] == ["ran", "not run: no compiler; install one", "ran"]
    monkeypatch.setitem(ARMS, "torch", replace(ARMS["torch"], run=works))
    monkeypatch.setitem(ARMS, "transformers", replace(ARMS["transformers"], run=lacks))
    _, (*_, record) = run(*argv)
    assert [row["state"] for row in record["table"]] == ["ran", "ran", "ran"], "and one that ran is not run again"


@pytest.mark.parametrize(("module", "name"), [(sass, "inspect"), (counts, "_count")])
def test_a_text_that_does_not_compile_costs_its_row(module, name, run, monkeypatch):
    broken(module, name, monkeypatch, CompileError("no such type", "see the log", "log"))
    task = f"experiment={module.__name__.rpartition('.')[2]}"
    code, (*_, record) = run(task, "options.variants=[vec128,smem_cache]", "archs=[sm_90]")
    assert code == 0
    assert [row["variant"] for row in record["table"]] == ["smem_cache"]
    assert "no such type" in record["notes"][-1]


def test_a_row_for_which_the_machine_lacked_a_tool_is_asked_again(run, monkeypatch):
    argv = ["experiment=sass", "options.variants=[baseline]", "archs=[sm_90]"]
    broken(sass, "inspect", monkeypatch, LabError("nvdisasm is not installed", "install it"), "baseline")
    code, (record,) = run(*argv)
    assert (code, record["reason"]) == (2, "Not run: baseline: nvdisasm is not installed; install it")
    monkeypatch.undo()
    code, (*_, record) = run(*argv)
    assert (code, [row["variant"] for row in record["table"]]) == (0, ["baseline"])


def test_an_interrupted_experiment_goes_on_after_its_last_row(run, monkeypatch):
    called = broken(LabStack, "session", monkeypatch, KeyboardInterrupt(), "fused_head")
    code, records = run(*QUALITY)
    assert (code, called) == (130, ["baseline", "vec128", "fused_head"])
    assert [row["asked"]["row"] for row in records] == NAMES[:3]
    monkeypatch.undo()
    called = broken(LabStack, "session", monkeypatch, KeyboardInterrupt(), "none")
    code, records = run(*QUALITY)
    assert (code, called) == (0, ["fused_head"])
    assert [row["variant"] for row in records[-1]["table"]] == NAMES
    assert run(*QUALITY, "options.tokens=4")[0] == 0, "another question"
    assert len(called) == 4


def test_a_format_of_bf16_is_not_the_row_of_transformers_in_bf16(run):
    argv = ["experiment=quality", "options.variants=[baseline]", "options.formats=[bf16]", "options.tokens=3"]
    tables = [run(*argv)[1][-1]["table"] for _ in ("made", "resumed")]
    assert tables[0] == tables[1]
    assert tables[0][0]["mean KL"] > tables[0][1]["mean KL"] == 0


def test_a_row_of_another_version_is_made_again(run, monkeypatch):
    argv = ["experiment=sass", "options.variants=[baseline]", "archs=[sm_90]"]
    run(*argv)
    run(*argv)
    monkeypatch.setattr(experiment, "provenance", lambda *given: provenance(*given) | {"nvrtc": "99.9"})
    _, records = run(*argv)
    assert [row["asked"]["versions"]["nvrtc"] == "99.9" for row in records if row["kind"] == "row"] == [False, True]


def test_no_row_begins_that_the_budget_does_not_hold(run, monkeypatch):
    """Every reading of the clock is a second later: a row takes one, and reading what is left another."""
    ticks = iter(range(10**6))
    monkeypatch.setattr(budget, "clock", lambda: next(ticks))
    code, rows = run(*QUALITY, "budget_s=5", "row_s=1")
    assert code == 3
    assert 0 < len(rows) < len(NAMES)
    done = len(rows)
    assert run(*QUALITY, "budget_s=1", "row_s=1")[0] == 3
    code, rows = run(*QUALITY, "budget_s=100", "row_s=1")
    assert code == 0
    assert [row["asked"]["row"] for row in rows[:-1]] == NAMES, "each was made once"
    assert done < len(rows)


def test_knobs_reach_the_stacks_of_an_experiment(run):
    small = ["options.variants=[l2_prefetch]", "options.best=vec128"]
    tables = [run("experiment=ablation", *small, *knob)[1][-1]["table"] for knob in ([], ["prefetch_bytes=128"])]
    (usual, given) = ({row["variant"]: row for row in table} for table in tables)
    label = "l2_prefetch how=prefetch matrices=[o,gate,up,down] prefetch_bytes={}"
    assert usual[label.format(65536)]["prefetched MB"] > given[label.format(128)]["prefetched MB"] > 0
    code, (*_, record) = run("experiment=counts", "variant=warp_split", "ratio=1:7")
    assert (code, [row["variant"] for row in record["table"]]) == (0, ["warp_split ratio=1:7"])
    assert record["knobs"] == {"ratio": "1:7"}
    assert "Knobs: ratio=1:7." in record["notes"]


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["ablation", "options.variants=[vec128]", "options.best=vec128"], "prefetch_bytes= has no effect"),
        (["quality", "options.variants=[vec128]"], "vec128 has no such knob; leave it out; variants that take it: l2_"),
        (["sass", "options.variants=[vec128]"], "prefetch_bytes= has no effect"),
        (["counts", "options.variants=[vec128]"], "prefetch_bytes= has no effect"),
        (["roofline"], "prefetch_bytes= has no effect"),
        (["sync_cost"], "prefetch_bytes= has no effect"),
    ],
)
def test_a_knob_without_effect_is_refused_before_anything_runs(argv, message, run, capsys):
    name, *more = argv
    code, rows = run(f"experiment={name}", "model.positions=256", *more, "prefetch_bytes=128")
    error = capsys.readouterr().err.splitlines()[-1]
    assert (code, rows) == (2, []), error
    assert message in error
