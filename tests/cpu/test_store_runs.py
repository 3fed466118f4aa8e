"""Store of records in whole runs: two at once, a full disk and an unwritable folder."""

import resource

import pytest
from faulty_root import make_root, results, rows, start
from permissions import without_root_rights
from processes import HANGS_S

from experiments.__main__ import main


@pytest.mark.cpu
def test_two_sweeps_at_once_share_one_store(tmp_path, cpu_cache, one_core, caplog):
    root = make_root(tmp_path / "lab")
    both = [start(root, cpu_cache, f"seed={seed}") for seed in (1, 2)]
    for process in both:
        _, err = process.communicate(timeout=HANGS_S)
        assert process.returncode == 0, err
    found = rows(root)
    wanted = [(seed, name) for seed in (1, 2) for name in ("atomic_barrier", "baseline")]
    assert sorted((row["seed"], row["variant"]) for row in found) == wanted
    assert not caplog.records, "no line is torn"


@pytest.mark.cpu
def test_a_disk_that_fills_up_ends_the_run_with_one_line_and_whole_rows(tmp_path, cpu_cache):
    root, one = make_root(tmp_path / "lab"), ("variant=baseline", "seed=1")
    start(root, cpu_cache, *one).communicate(timeout=HANGS_S)
    before = results(root).read_bytes()
    limit = (len(before) + 100,) * 2  # limit of the file size: the present rows fit, and another one does not
    process = start(root, cpu_cache, *one, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limit))
    _, err = process.communicate(timeout=HANGS_S)
    assert process.returncode == 2, err
    assert "Traceback" not in err
    assert [line for line in err.splitlines() if "error" in line] == [err.splitlines()[-1]]
    assert "cannot be written: File too large; choose another file" in err.splitlines()[-1]
    assert results(root).read_bytes() == before


def test_a_read_only_folder_is_reported_before_any_work(tmp_path, capsys):
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o500)
    with without_root_rights():
        code = main(["device=ptx", f"results={locked}/records.jsonl"])
    (line,) = capsys.readouterr().err.splitlines()
    assert code == 2
    assert line.startswith(f"error: {locked}/records.jsonl cannot be written: Permission denied; ")
    assert not list(locked.iterdir())
