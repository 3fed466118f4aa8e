"""Streams that are closed, readers that have gone and interrupts: the right exit code, one line or nothing."""

import os
import signal
import subprocess
import sys

import pytest
from processes import HANGS_S

from common import ROOT
from common.config.cli import guarded, run_task
from common.record.store import Store

WRONG = "experiments variant=no_such_variant"
COMMANDS = {"experiments.show": 0, "experiments.evidence plan=true device=ptx": 0, WRONG: 2}
SILENT = """
import os, signal
os.kill(os.getpid(), signal.SIGINT)
"""


@pytest.fixture
def shell(tmp_path):
    """shell(command, redirections): `python -m command` in bash with its exit code; `results=` has 30 rows."""
    store = Store(tmp_path / "r.jsonl")
    for number in range(30):
        store.append({"kind": "note", "number": number})

    def run(command: str, redirections: str) -> subprocess.CompletedProcess[str]:
        given = "" if command == WRONG else f"results={store.path}"
        script = f"{sys.executable} -m {command} {given} {redirections}; exit ${{PIPESTATUS[0]}}"
        return subprocess.run(["bash", "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=HANGS_S)

    return run


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("redirections", [">&-", "2>&-", "<&- >&- 2>&-", "| head -c 5", "2>&1 | head -c 1"])
def test_a_stream_that_is_closed_costs_its_text_alone(shell, command, redirections):
    done = shell(command, redirections)
    assert done.returncode == COMMANDS[command], done.stderr
    assert done.stderr.count("\n") <= 1
    assert "Traceback" not in done.stdout + done.stderr
    assert "Error executing" not in done.stdout + done.stderr
    if redirections == "2>&-":
        assert "error" not in done.stdout, "what is meant for stderr goes nowhere else"
    if redirections == ">&-":
        assert done.stderr.startswith("error: unknown variant") == (command == WRONG)


@pytest.mark.parametrize("code", [0, 1])
def test_a_reader_that_has_gone_leaves_the_exit_code(code, monkeypatch):
    """The command goes on to its end, and its records are kept."""
    reading, writing = os.pipe()
    os.close(reading)
    ended = []

    def task(_: object) -> int:
        print("x" * (1 << 20), flush=True)
        print("more", flush=True)
        ended.append(1)
        return code

    with open(writing, "w") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        assert run_task(task, "config", []) == code
    assert ended == [1]


def test_an_error_that_cannot_be_printed_keeps_its_exit_code(monkeypatch):
    with open("/dev/full", "w", buffering=1) as full:
        monkeypatch.setattr(sys, "stderr", full)
        assert run_task(lambda _: 0, "config", ["variant=no_such_variant"]) == 2


def test_what_runs_after_hydra_is_guarded_as_well(capsys):
    def interrupted() -> int:
        raise KeyboardInterrupt

    assert guarded(interrupted) == 130
    assert capsys.readouterr().err == "error: interrupted; records already written are kept\n"


@pytest.mark.parametrize(
    "module", ["experiments", "experiments.show", "experiments.evidence", "experiments.generate", "profiles"]
)
def test_an_interrupt_while_modules_are_imported_is_one_line(tmp_path, module):
    (tmp_path / "omegaconf.py").write_text(SILENT)
    (tmp_path / "hydra.py").write_text(SILENT)
    done = subprocess.run(
        [sys.executable, "-m", module],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a background job inherits that it is ignored
    )
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr == "error: interrupted; records already written are kept\n"


def test_a_program_that_imports_the_lab_keeps_its_own_hook():
    code = "import sys; import experiments, profiles; print(sys.excepthook is sys.__excepthook__)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"
