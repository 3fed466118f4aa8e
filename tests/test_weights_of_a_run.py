"""Weights of a run: the path is relative to the folder of the caller, and changed or unusable weights are refused."""

import os

import pytest
from checkpoints import save, tensors
from faulty_root import json_lines, make_root, rows, start
from processes import HANGS_S

from common.errors import LabError
from common.record.store import Store
from experiments.run.pool import Pool
from experiments.run.setup import Setup
from experiments.tables.progress import Quiet


@pytest.mark.cpu
def test_a_run_from_another_folder_uses_the_callers_files(tmp_path, cpu_cache, seed):
    """The repository has a broken checkpoint with the same name as a valid one in the caller's folder."""
    root, here = make_root(tmp_path / "lab"), tmp_path / "here"
    (here / "c").mkdir(parents=True)
    (here / "c" / "kernels").symlink_to(cpu_cache)
    save(here / "ckpt", tensors(seed), max_position_embeddings=64)
    save(root / "ckpt").write_bytes(b"broken")
    options = ["weights=ckpt", "variant=baseline", "results=r.jsonl", "cache=c"]
    process = start(root, cpu_cache, *options, cwd=here)
    _, err = process.communicate(timeout=HANGS_S)
    assert process.returncode == 0, err
    (row,) = Store(here / "r.jsonl").records()
    assert row["status"] == "PASSED"
    assert {path.name for path in (here / "c").iterdir()} == {"weights", "kernels"}
    assert not (root / "c").exists()


@pytest.mark.cpu
def test_a_worker_refuses_other_weights_than_the_record_names(configured, cpu_cache):
    config = configured("variant=baseline", "model=tiny", f"cache={cpu_cache}", "seed=1")
    with Pool(config, "0" * 64, [os.environ]) as pool, pytest.raises(LabError, match="has changed since"):
        pool.describe()


def test_a_position_beyond_the_cache_is_refused_before_the_weights_are_read(configured, tmp_path):
    save(tmp_path / "nan", {name: tensor * float("nan") for name, tensor in tensors().items()})
    config = configured(f"weights={tmp_path / 'nan'}", "timing.positions=[200]", f"cache={tmp_path}")
    with pytest.raises(LabError, match=r"^timing.positions: 200 is not in 0..127, "):
        Setup(config, Quiet()).packed  # noqa: B018


@pytest.mark.cpu
def test_a_run_refuses_weights_that_cannot_be_validated(tmp_path, cpu_cache, seed):
    root = make_root(tmp_path / "lab")
    huge = {name: tensor * 1e30 for name, tensor in tensors(seed).items()}
    save(tmp_path / "huge", huge, max_position_embeddings=64)
    process = start(root, cpu_cache, "variant=baseline", "json=true", f"weights={tmp_path / 'huge'}")
    out, err = process.communicate(timeout=HANGS_S)
    assert process.returncode == 1, err
    (row,) = rows(root)
    assert (row["status"], json_lines(out)[0]["status"]) == ("REFUSED", "REFUSED")
    assert row["reason"].startswith("these weights cannot be validated in fp32: at input_norm of layer 0")
