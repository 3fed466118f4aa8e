"""The store under whole runs: two at once, a full disk, a folder that cannot be written, NVML's warnings."""

import resource
import warnings

import pytest
from faulty_root import make_root, results, rows, start
from permissions import as_anybody

from common.gpu import marks
from experiments.__main__ import main

host = pytest.mark.host


@host
def test_two_sweeps_at_once(tmp_path, host_cache):
    root = make_root(tmp_path / "lab")
    both = [start(root, host_cache, f"seed={seed}") for seed in (1, 2)]
    for process in both:
        _, err = process.communicate(timeout=200)
        assert process.returncode == 0, err
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = rows(root)
    wanted = [(seed, name) for seed in (1, 2) for name in ("atomic_barrier", "baseline")]
    assert sorted((row["seed"], row["variant"]) for row in found) == wanted


@host
def test_a_disk_that_fills_up_ends_the_run_with_one_line_and_whole_rows(tmp_path, host_cache):
    root = make_root(tmp_path / "lab")
    start(root, host_cache, "seed=1").communicate(timeout=200)
    before = results(root).read_bytes()
    limit = (len(before) + 100,) * 2  # no file may grow beyond: what is there fits, and another row does not
    process = start(root, host_cache, "seed=1", preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limit))
    _, err = process.communicate(timeout=200)
    assert process.returncode == 2, err
    assert "Traceback" not in err
    assert [line for line in err.splitlines() if "error" in line] == [err.splitlines()[-1]]
    assert "of a row; free space on that disk" in err.splitlines()[-1]
    assert results(root).read_bytes() == before


def test_a_read_only_folder_is_told_before_work(tmp_path, capsys):
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o500)
    with as_anybody():
        code = main(["device=host", f"results={locked}/records.jsonl"])
    (line,) = capsys.readouterr().err.splitlines()
    assert code == 2
    assert line.startswith(f"error: {locked}/records.jsonl cannot be written: Permission denied; ")
    assert not list(locked.iterdir())


def test_what_disturbed_a_measurement_is_named():
    calm = {"sm_mhz": 1980, "memory_mhz": 2619, "other_processes": 0, "throttled": []}
    assert marks([]) == ()
    assert marks([calm] * 3) == ()
    assert marks([calm, calm | {"throttled": ["power cap"]}]) == ("throttled (power cap) in 1 of 2 rounds",)
    assert marks([calm, calm | {"other_processes": 2}]) == ("2 other process(es) on the GPU",)
    assert marks([calm, calm | {"sm_mhz": 1410}]) == ("SM clock between 1410 and 1980 MHz",)
    assert marks([calm | {"sm_mhz": None, "memory_mhz": None, "other_processes": None}]) == ()
