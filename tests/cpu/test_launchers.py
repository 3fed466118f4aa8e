"""Multirun with submitit: real jobs on this machine, and the requests for a SLURM cluster."""

import subprocess
import sys

import pytest
import yaml
from processes import HANGS_S

from common import ROOT
from common.record.store import Store

SWEEP = ["device=ptx", "model=tiny", "timing=none", "archs=[]", "validate=quick"]


@pytest.fixture
def sweep(cpu_cache, tmp_path):
    def run(flag: str, *argv: str) -> subprocess.CompletedProcess[str]:
        folders = [f"results={tmp_path}/records.jsonl", f"cache={cpu_cache}", f"hydra.sweep.dir={tmp_path}/jobs"]
        command = [sys.executable, "-m", "experiments", flag, *SWEEP, *folders, *argv]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=HANGS_S)

    return run


@pytest.mark.cpu
def test_all_jobs_append_to_one_store(sweep, tmp_path, seed):
    """Each job is its own process; afterwards resume=true shows their records and runs nothing."""
    argv = ["variant=baseline,atomic_barrier", f"seed={seed}"]
    done = sweep("-m", "hydra/launcher=local_jobs", *argv)
    assert done.returncode == 0, done.stderr
    assert "python -m experiments.show lists their records" in done.stderr
    rows = Store(tmp_path / "records.jsonl").records()
    assert {row["variant"]: row["status"] for row in rows} == {"baseline": "PASSED", "atomic_barrier": "PASSED"}
    shown = sweep("-m", "resume=true", *argv)
    assert (shown.returncode, Store(tmp_path / "records.jsonl").records()) == (0, rows), shown.stderr
    assert all(row["id"] in shown.stderr and row["variant"] in shown.stdout for row in rows)


@pytest.mark.cpu
def test_a_job_that_fails_in_its_own_process_fails_the_command(sweep):
    done = sweep("-m", "hydra/launcher=local_jobs", "variant=baseline", "seed=1", "weights=/nope")
    assert (done.returncode, "Traceback" in done.stderr) == (2, False), done.stderr
    assert done.stderr.splitlines()[-1].startswith("error: weights '/nope': there is no such file")  # behind Hydra's


def test_a_machine_without_slurm_is_told_so(sweep, monkeypatch):
    monkeypatch.setenv("PATH", "")
    done = sweep("-m", "hydra/launcher=gpu_slurm", "variant=baseline,vec128")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert done.stderr.startswith("error: hydra/launcher=gpu_slurm needs SLURM, and there is no srun; ")


def test_a_cluster_gives_each_job_one_gpu(sweep):
    """Without SLURM: the options that would be submitted."""
    done = sweep("--cfg=hydra", "hydra/launcher=gpu_slurm", "hydra.launcher.partition=fast")
    launcher = yaml.safe_load(done.stdout)["hydra"]["launcher"]
    assert launcher["_target_"].endswith("SlurmLauncher")
    assert (launcher["gres"], launcher["tasks_per_node"], launcher["nodes"]) == ("gpu:1", 1, 1)
    assert launcher["partition"] == "fast"
