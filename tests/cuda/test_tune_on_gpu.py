"""experiment=tune on a GPU: every candidate is validated, a wrong one never wins, and records stand for the GPU."""

import re

import pytest
from virtual_seconds import virtual_seconds

from common.devices.cuda import CudaDevice
from common.record.store import Store
from experiments.__main__ import main
from experiments.tuning.space import Candidate

pytestmark = [pytest.mark.cuda, pytest.mark.covers]
SHORT = ["timing.rounds=8", "timing.max_rounds=8", "timing.steps=1", "timing.warmup=1"]
SEARCHED = ["options.variants=[fused_head,redundant_rmsnorm,vec128]", "rows_per_warp=4", "l1=default"]  # 8 candidates


@pytest.fixture
def tune(gpu, cpu_cache, tmp_path, seed, capsys):
    """tune(*overrides): the newest table, and all records."""
    store = tmp_path / "records.jsonl"
    where = [f"cache={cpu_cache}", f"results={store}", f"seed={seed}", "archs=[]"]
    where += ["blocks=3"] if gpu == "standin" else []

    def tune_(*overrides: str):
        quick = ["device=cuda", "model=tiny", "validate=quick", "timeout_s=120", *SHORT]
        assert main(["experiment=tune", *quick, *where, *SEARCHED, *overrides]) == 0, capsys.readouterr().err
        records = Store(store).records()
        return [row for row in records if row["kind"] == "tune"][-1], records

    return tune_


def test_the_optimum_is_found_and_a_wrong_kernel_never_wins(tune, gpu, tmp_path, cpu_cache, tiny, monkeypatch):
    """By the stand-in's costs each barrier less is a gain, so the optimum has both variants that save some.

    vec128 is wrong there, and would be among the fastest.
    """
    if gpu == "standin":
        monkeypatch.setenv("STANDIN_FAULT", "wrong variants/vec128.cu")
    compiled, compile_ = [], CudaDevice.compile

    def noted(device, source):
        program = compile_(device, source)
        compiled.append(source.sha)
        return program

    monkeypatch.setattr(CudaDevice, "compile", noted)  # in this process; validating processes have their own
    cut, records = tune("options.trials=3")
    tried = [row for row in records if row["kind"] == "run"]
    assert len(tried) == 3
    found, records = tune()
    runs = [row for row in records if row["kind"] == "run"]
    assert runs[:3] == tried  # the first call's candidates are taken from its records
    assert len({tuple(row["stack"]) for row in runs}) == len(runs) == 8
    assert set(compiled) & {row["source_sha"] for row in runs}  # ahead of the worker
    if gpu == "standin":  # both processes of the lab have a context; nothing else has
        assert not [mark for row in runs for timed in row["latencies"] for mark in timed["marks"]]
    assert cut["basis"] == found["basis"] == "measured"
    (again,) = (note for note in found["notes"] if note.startswith("The fastest, for any command: "))
    fastest = re.search(r"stack=\[(.*?)\]", again)[1].split(",")
    if gpu == "standin":
        wrong = [row for row in runs if "vec128" in row["stack"]]
        assert {(row["status"], *row["latencies"]) for row in wrong} == {("MISMATCH",)}
        assert (len(wrong), fastest) == (4, ["fused_head", "redundant_rmsnorm"])
        first = found["table"][0]
        assert first["stack"] == "fused_head + redundant_rmsnorm"
        by_counts = virtual_seconds(cpu_cache, tiny)(Candidate(tuple(fastest), (("rows_per_warp", 4),)))
        assert first["us a step"] == pytest.approx(1e6 * by_counts, abs=1e-3)  # events tell 1 ns apart
        at = [row["stack"] for row in runs].index(fastest)
        later = {timed["verdict"] for row in runs[at + 1 :] for timed in row["latencies"]}
        assert later <= {"STOPPED"}  # a bound says that they are slower
