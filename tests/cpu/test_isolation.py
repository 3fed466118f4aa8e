"""Isolation of stacks: a crash, hang or memory exhaustion affects one stack only, and is recorded with its status."""

import ast
import os
import re
import resource
import signal
import time
from dataclasses import replace
from math import ceil

import pytest
from faulty_root import by_variant, json_lines, make_root, results, rows, start
from processes import HANGS_S, alive, children
from sampled import sampled

from common import ROOT
from common.errors import LabError
from experiments.run import pool
from experiments.run.setup import Setup
from experiments.tables.progress import Quiet

pytestmark = pytest.mark.cpu
SOUND = {"baseline": "PASSED", "atomic_barrier": "PASSED"}


def test_abort_segfault_and_deadlock_do_not_affect_other_stacks(tmp_path, cpu_cache):
    root = make_root(tmp_path / "lab", "aborts", "segfaults", "deadlocks")
    process = start(root, cpu_cache, "json=true")
    out, err = process.communicate(timeout=HANGS_S)
    assert process.returncode == 1, err
    wanted = SOUND | {"aborts": "CRASHED", "segfaults": "CRASHED", "deadlocks": "HUNG"}
    found = by_variant(root)
    assert {name: row["status"] for name, row in found.items()} == wanted, err
    assert {row["variant"]: row["status"] for row in json_lines(out)} == wanted
    assert "SIGABRT, at: validate aborts" in found["aborts"]["reason"]
    assert "outside the buffers: 4 bytes at 0x0: variants/segfaults.cu:" in found["segfaults"]["reason"]
    # A block that skips one barrier arrives one too few times, so the others wait at the last barrier.
    assert re.search(r"polls .*common/kernel/barrier\.cuh:", found["deadlocks"]["report"])
    assert "Traceback" not in err
    assert len({row["key"] for row in rows(root)}) == 5
    assert all(row["source_sha"] for row in rows(root))


def test_an_endless_kernel_is_hung_and_its_place_is_reported(tmp_path, cpu_cache):
    root = make_root(tmp_path / "lab", "never_ends")
    began = time.monotonic()
    start(root, cpu_cache, "variant=never_ends", "device.timeout_s=1").communicate(timeout=HANGS_S)  # compiles it
    results(root).unlink()
    enough = ceil(time.monotonic() - began)  # for this machine to come as far as the kernel
    process = start(root, cpu_cache, "variant=never_ends", f"timeout_s={enough}")
    out, err = process.communicate(timeout=HANGS_S)
    (row,) = rows(root)
    assert (row["status"], process.returncode) == ("HUNG", 1), err
    assert "variants/never_ends.cu:" in row["report"]
    assert any(line.startswith("never_ends: HUNG ") for line in out.splitlines()), out


def test_a_kernel_that_exhausts_memory_is_oom(tmp_path, cpu_cache, one_core):
    root = make_root(tmp_path / "lab", "eats_memory")
    limit = (8 << 30,) * 2
    process = start(root, cpu_cache, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, limit))
    _, err = process.communicate(timeout=HANGS_S)
    found = by_variant(root)
    assert {name: row["status"] for name, row in found.items()} == SOUND | {"eats_memory": "OOM"}, err


@pytest.mark.parametrize("ends", sampled([signal.SIGINT, signal.SIGTERM], 1))
def test_an_interrupted_run_keeps_finished_records(tmp_path, cpu_cache, one_core, ends):
    root = make_root(tmp_path / "lab", "never_ends")
    process = start(root, cpu_cache)
    while not {row["variant"] for row in rows(root)} >= set(SOUND):
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(ends)
    out, err = process.communicate(timeout=HANGS_S)
    assert process.returncode == 130
    found = by_variant(root)
    assert {name: row["status"] for name, row in found.items()} == SOUND | {"never_ends": "INTERRUPTED"}
    assert "baseline" in out
    assert "never_ends: INTERRUPTED" in out
    assert err.splitlines()[-1] == "error: interrupted; records already written are kept"


def test_workers_die_with_their_parent(tmp_path, cpu_cache):
    root = make_root(tmp_path / "lab", "never_ends")
    process = start(root, cpu_cache, "variant=never_ends")
    workers = []
    while len(workers) < 2:  # one is the tracker of multiprocessing
        workers = children(process.pid)
        time.sleep(0.05)
    time.sleep(1)
    process.kill()
    process.communicate()
    while any(map(alive, workers)):
        time.sleep(0.1)


def test_a_worker_that_cannot_start_is_reported_in_one_line(monkeypatch, configured):
    monkeypatch.setattr(pool, "FAILED_STARTS", 2)  # each takes seconds
    no_cache = replace(configured("model=tiny"), cache=None)
    with pool.Pool(no_cache, "", [os.environ]) as opened, pytest.raises(LabError, match="does not start"):
        opened.describe()


def test_the_limit_of_a_stack_is_none_of_the_start_of_a_worker(monkeypatch, configured, cpu_cache):
    monkeypatch.setattr(pool, "GRACE", 0)
    config = replace(configured("model=tiny"), cache=cpu_cache, timeout_s=0.001)
    with pool.Pool(config, Setup(config, Quiet()).packed.sha, [os.environ]) as opened:
        assert opened.describe()["device"] == "ptx"


def test_no_shell_no_pickle_no_code_of_a_checkpoint():
    banned = {"shell": True, "trust_remote_code": True, "weights_only": False}
    for file in (path for folder in ("common", "experiments", "profiles") for path in (ROOT / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call):
                given = {word.arg: getattr(word.value, "value", None) for word in node.keywords}
                assert not [name for name, value in banned.items() if given.get(name) is value], (file, node.lineno)
                called = ast.unparse(node.func)
                assert called not in ("os.system", "os.popen", "eval", "exec", "torch.load"), (file, node.lineno)
            if isinstance(node, ast.Import):
                assert not {"pickle", "cloudpickle", "dill"} & {name.name for name in node.names}, file
