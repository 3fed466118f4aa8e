"""Errors of the machine, injected: they end a run in one line that names the true cause, and are no verdict."""

import ast
import errno
import os
import signal
import subprocess
import sys

import pytest

from common import ROOT
from common.config.cli import run_task
from common.devices import gxx
from common.errors import OutOfMemory
from common.errors.machine import MachineError, system_errors
from common.record.store import Store
from experiments.__main__ import main
from experiments.experiment import Experiment
from experiments.tables.progress import Quiet

FULL = "/usr/bin/ld: final link failed: No space left on device\ncollect2: error: ld returned 1 exit status"


@pytest.fixture
def compiler(tmp_path, monkeypatch):
    """compiler(script): make a shell script g++."""

    def made(script: str) -> None:
        tool = tmp_path / "g++"
        tool.write_text(f'#!/bin/sh\n[ "$1" = --version ] && echo "g++ 0" && exit\n{script}\n')
        tool.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tool.parent}{os.pathsep}{os.environ['PATH']}")

    return made


@pytest.mark.parametrize(
    ("script", "cause"),
    [
        (
            f"cat >&2 <<'END'\n{FULL}\nEND\nexit 1",
            "/usr/bin/ld: final link failed: No space left on device",
        ),
        ("kill -KILL $$", f"exit code -{signal.SIGKILL:d}"),
    ],
)
def test_a_compiler_that_fails_is_the_machines_fault(compiler, script, cause):
    compiler(script)
    with pytest.raises(MachineError) as found:
        gxx.run(["kernel.cpp"])
    assert found.value.cause == f"g++ failed: {cause}"


def test_a_machine_without_a_compiler_gives_no_verdict(tmp_path, monkeypatch, capfd):
    """Else resume=true would keep it when there is one."""
    monkeypatch.setenv("PATH", str(tmp_path))
    argv = ["variant=baseline", "model=tiny", "device=ptx", "archs=[]", "validate=quick", f"cache={tmp_path}/cache"]
    assert main([*argv, f"results={tmp_path}/r.jsonl"]) == 2
    assert "error: kernels on the CPU need g++, which is not installed; " in capfd.readouterr().err
    assert Store(tmp_path / "r.jsonl").records() == []


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/full/file"), MachineError),
        (OSError(errno.EMFILE, os.strerror(errno.EMFILE)), MachineError),
        (OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)), OutOfMemory),
        (MemoryError(), OutOfMemory),
        (OSError("undefined symbol: harm"), OSError),
        (BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE)), BrokenPipeError),
    ],
)
def test_what_the_system_refuses_is_told_from_other_errors(error, kind):
    with pytest.raises(kind) as found, system_errors("writing"):
        raise error
    assert type(found.value) is kind


def test_a_full_disk_anywhere_in_a_command_is_one_line(capsys):
    def task(_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/full/file")

    assert run_task(task, "config", []) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: the command cannot go on: No space left on device, /full/file; free some space")


@pytest.mark.cpu
def test_a_full_disk_ends_a_run_without_a_verdict_and_resume_runs_the_stack(
    compiler, tmp_path, cpu_cache, monkeypatch, capfd, seed
):
    argv = ["variant=baseline", "model=tiny", "device=ptx", "timing=none", "archs=[]", "validate=quick"]
    argv += [f"seed={seed}", f"results={tmp_path}/r.jsonl"]
    path = os.environ["PATH"]
    compiler(f"cat >&2 <<'END'\n{FULL}\nEND\nexit 1")
    assert main([*argv, f"cache={tmp_path}/cache"]) == 2
    err = capfd.readouterr().err
    assert [line for line in err.splitlines() if line.startswith("error: ")] == [err.splitlines()[-1]]
    assert "final link failed: No space left on device; check that g++ works" in err.splitlines()[-1]
    assert Store(tmp_path / "r.jsonl").records() == []
    monkeypatch.setenv("PATH", path)
    assert main([*argv, f"cache={cpu_cache}", "resume=true"]) == 0
    assert [row["status"] for row in Store(tmp_path / "r.jsonl").records()] == ["PASSED"]


def test_a_row_that_meets_a_full_disk_ends_its_experiment(configured, tmp_path):
    config = configured("experiment=sass", "model=tiny", f"results={tmp_path}/r.jsonl", f"cache={tmp_path}")
    experiment = Experiment(config, Quiet())

    def full() -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(MachineError, match="baseline: No space left on device; "):
        experiment.row("baseline", full)
    assert experiment.store.records() == []
    (tmp_path / "file").touch()
    with pytest.raises(MachineError, match=r"file/r\.jsonl cannot be written: File exists; "):
        experiment.attempt("counted", lambda: Store(tmp_path / "file/r.jsonl").append({"counts": 1}))
    assert experiment.attempt("wrong", lambda: 1 / 0) is None
    assert experiment.left_out == ["Left out: wrong: ZeroDivisionError: division by zero"]


def test_a_locale_without_utf_8_changes_nothing():
    """The documents that the report reads and writes have other characters than ASCII."""
    plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    argv = [sys.executable, "-m", "experiments.report", "check=true"]
    done = subprocess.run(argv, cwd=ROOT, env=os.environ | plain, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_every_text_of_the_product_is_read_and_written_in_a_named_encoding():
    files = [path for folder in ("common", "experiments", "profiles") for path in (ROOT / folder).rglob("*.py")]
    calls = [(path, each) for path in files for each in ast.walk(ast.parse(path.read_bytes()))]
    texts = [
        (path, call)
        for path, call in calls
        if isinstance(call, ast.Call) and getattr(call.func, "attr", "") in ("read_text", "write_text")
    ]
    assert texts
    assert [f"{path}:{call.lineno}" for path, call in texts if "encoding" not in {k.arg for k in call.keywords}] == []
