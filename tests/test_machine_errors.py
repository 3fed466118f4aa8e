"""Errors of the machine, injected: they end a run in one line that names the true cause, and are no verdict."""

import errno
import os
import signal
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from common.cache.files import again, cached
from common.config.cli import run_task
from common.devices import gxx
from common.devices.ptx import device as ptx
from common.errors import CompileError, LabError, OutOfMemory
from common.errors.machine import MachineError, Vanished, system_errors
from common.json_values import to_json
from common.record.store import Store
from experiments.__main__ import main
from experiments.experiment import Experiment
from experiments.run.setup import Setup
from experiments.run.worker import answer
from experiments.tables.progress import Quiet

FULL = "/usr/bin/ld: final link failed: No space left on device\ncollect2: error: ld returned 1 exit status"
TEXT = "variants/x.cu:7:1: error: 'y' was not declared\ncompilation terminated."
HEADER = "kernel.cpp:2:10: fatal error: y.h: No such file or directory\ncompilation terminated."
SYMBOL = "/usr/bin/ld: x.o: undefined reference to `harm'\ncollect2: error: ld returned 1 exit status"


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
    ("said", "kind", "cause"),
    [
        (FULL, MachineError, "g++ failed: /usr/bin/ld: final link failed: No space left on device"),
        (
            "x.hpp:219:3: fatal error: error writing to /t/a.s: No space left on device\n  219 |  }",
            MachineError,
            "g++ failed: error writing to /t/a.s: No space left on device",
        ),
        ("cc1plus: out of memory allocating 65536 bytes", MachineError, "out of memory allocating 65536 bytes"),
        ("g++: fatal error: Killed signal terminated program cc1plus", MachineError, "Killed signal terminated"),
        ("collect2: fatal error: ld terminated with signal 7 [Bus error]", MachineError, "signal 7 [Bus error]"),
        ("a.s: Fatal error: can't close a.o: Disk quota exceeded", MachineError, "Disk quota exceeded"),
        ("cc1plus: fatal error: kernel.cpp: No such file or directory", Vanished, "kernel.cpp: No such file"),
        (TEXT, CompileError, "g++ failed: variants/x.cu:7:1: error: 'y' was not declared"),
        (HEADER, CompileError, "y.h: No such file or directory"),
        (SYMBOL, CompileError, "g++ failed: /usr/bin/ld: x.o: undefined reference to `harm'"),
        ("g++: internal compiler error: Segmentation fault signal terminated program cc1plus", CompileError, "Segment"),
    ],
)
def test_the_compiler_fails_for_a_text_or_for_the_machine(compiler, said, kind, cause):
    compiler(f"cat >&2 <<'END'\n{said}\nEND\nexit 1")
    with pytest.raises(LabError) as found:
        gxx.run(["kernel.cpp"])
    assert type(found.value) is kind
    assert cause in found.value.cause
    assert "collect2: error" not in str(found.value)


def test_a_compiler_that_a_signal_ends_says_nothing_of_the_text(compiler):
    compiler("kill -KILL $$")
    with pytest.raises(MachineError, match=f"g\\+\\+ was ended by signal {signal.SIGKILL:d}; "):
        gxx.run(["kernel.cpp"])


@pytest.mark.cpu
def test_messages_of_the_compiler_are_read_in_any_language(tmp_path, monkeypatch):
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    missing = tmp_path / "gone.o"
    with pytest.raises(Vanished, match=f"cannot (find|open) {missing}: No such file or directory"):
        gxx.run(["-shared", str(missing)])


def test_a_cache_that_is_cleared_while_it_is_written_is_written_once_more(tmp_path, monkeypatch, caplog):
    path, made = tmp_path / "kernels" / "one.o", []

    def make() -> bytes:
        made.append(1)
        return b"content"

    def clearing(folder: Path, **options: bool) -> None:
        os.makedirs(folder, exist_ok=options["exist_ok"])
        if len(made) < 2:
            os.rmdir(folder)

    monkeypatch.setattr(Path, "mkdir", clearing)
    with pytest.raises(Vanished):
        cached(path, make)
    made.clear()
    assert again(partial(cached, path, make)) == b"content"
    assert [record.getMessage().endswith("; trying again") for record in caplog.records] == [True]


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
    assert "final link failed: No space left on device; free some space" in err.splitlines()[-1]
    assert Store(tmp_path / "r.jsonl").records() == []
    monkeypatch.setenv("PATH", path)
    assert main([*argv, f"cache={cpu_cache}", "resume=true"]) == 0
    assert [row["status"] for row in Store(tmp_path / "r.jsonl").records()] == ["PASSED"]


@pytest.mark.cpu
@pytest.mark.parametrize("times", [1, 2])
def test_an_executor_that_vanishes_before_it_is_loaded_is_made_once_more(
    configured, cpu_cache, tmp_path, monkeypatch, times
):
    library, vanished = ptx.library, []

    def vanishes(*given: Any) -> Path:
        made = library(*given)
        if len(vanished) < times:
            vanished.append(made)
            return tmp_path / "gone.so"
        return made

    monkeypatch.setattr(ptx, "library", vanishes)
    given = ["variant=baseline", "model=tiny", "archs=[]", "validate=quick", f"cache={cpu_cache}", "seed=1"]
    config = configured(*given)
    request = {"stack": to_json(config.stacks[0]), "seconds": 1000.0}
    work = partial(answer, Setup(config, Quiet()), request)
    if times == 1:
        assert again(work)["status"] == "PASSED"
    else:
        with pytest.raises(Vanished, match=f"the executor {tmp_path}/gone.so is gone: "):
            again(work)


def test_a_row_that_meets_a_full_disk_ends_its_experiment(configured, tmp_path):
    config = configured("experiment=sass", "model=tiny", f"results={tmp_path}/r.jsonl", f"cache={tmp_path}")
    experiment, calls = Experiment(config, Quiet()), []

    def full() -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def vanishes() -> dict[str, int]:
        calls.append(1)
        if not calls[1:]:
            raise Vanished("a file is gone", "again")
        return {"found": 3}

    with pytest.raises(MachineError, match="baseline: No space left on device; "):
        experiment.row("baseline", full)
    assert experiment.store.records() == []
    assert experiment.row("vec128", vanishes) == {"found": 3}
    assert experiment.attempt("wrong", lambda: 1 / 0) is None
    assert experiment.left_out == ["Left out: wrong: ZeroDivisionError: division by zero"]
