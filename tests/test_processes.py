"""Processes of the lab: a call and its limit, a child and its messages, their ends and what they have started."""

import os
import signal
import subprocess
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace

import pytest
from processes import alive

from common.errors import Crashed, LabError
from experiments.processes import Child, _interrupts_wait, apart
from experiments.run import pool

SLEEP = [sys.executable, "-c", "import time; time.sleep(1000)"]


def hang(told: Path) -> None:
    """Start a process that never ends, tell its number, and never end."""
    other = subprocess.Popen(SLEEP)
    (told.parent / "part").write_text(str(other.pid))
    (told.parent / "part").rename(told)
    other.wait()


def call_that_hangs(told: Path) -> None:
    apart(1000, hang, told)


def ends(pid: int) -> bool:
    """As the kernel says within some minutes."""
    for _ in range(4000):
        if not alive(pid):
            return True
        time.sleep(0.05)
    return False


def test_the_answer_is_that_of_another_process():
    assert apart(1000, os.getpid) != os.getpid()


def test_what_does_not_answer_is_ended_with_what_it_has_started(tmp_path, monkeypatch):
    """Its limit passes when it has started the other process."""
    told = tmp_path / "pid"

    def poll(connection: object, seconds: float) -> bool:
        while not told.exists():
            time.sleep(0.05)
        return False

    monkeypatch.setattr("multiprocessing.connection.Connection.poll", poll)
    with pytest.raises(LabError, match="not finished after 7 s; raise timeout_s"):
        apart(7, hang, told)
    assert ends(int(told.read_text()))


@pytest.mark.parametrize(("end", "how"), [((os.abort,), "SIGABRT"), ((os._exit, 5), "exit code 5")])
def test_a_process_that_ends_is_a_crash(end, how):
    with pytest.raises(Crashed, match=f"its process ended by {how}"):
        apart(1000, *end)


def test_it_ends_with_the_process_that_asked(tmp_path):
    told = tmp_path / "pid"
    code = f"from pathlib import Path; import test_processes as t; t.call_that_hangs(Path({str(told)!r}))"
    parent = subprocess.Popen([sys.executable, "-c", code], env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)})
    while not told.exists():
        assert parent.poll() is None
        time.sleep(0.05)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    assert ends(int(told.read_text()))


def echo(parent: Connection, times: int) -> None:
    """Messages as they came, one output on each stream, and an end of its own."""
    print("loud", flush=True)
    os.write(2, b"and clear\n")
    for _ in range(times):
        parent.send(parent.recv())
    os._exit(7)


def test_a_child_answers_by_messages_and_its_prints_are_its_report():
    child = Child(echo, 2, keep=True)
    for message in ({"number": 0}, "x" * 1_000_000):
        child.send(message)
        assert child.connection.recv() == message
    with pytest.raises(EOFError):
        child.connection.recv()
    assert (child.code(), child.report()) == (7, "loud\nand clear\n")
    child.close()


def abort(parent: Connection) -> None:
    os.abort()


def tell_environment_and_wait(parent: Connection) -> None:
    parent.send(os.environ["LAB_TOLD"])
    parent.recv()


def test_a_child_has_its_environment_and_tells_its_stacks_but_no_interrupt_ends_it():
    child = Child(tell_environment_and_wait, environment={"LAB_TOLD": "this"}, keep=True)
    assert child.connection.recv() == "this"
    os.kill(child.pid, signal.SIGINT)  # as Ctrl-C at a terminal, which is for the parent
    child.stacks()
    os.kill(child.pid, signal.SIGTERM)
    with pytest.raises(EOFError):
        child.connection.recv()
    assert (child.code(), alive(child.pid)) == (-signal.SIGTERM, False)
    assert "Current thread" in child.report()
    child.close()


@pytest.mark.parametrize(
    ("code", "report", "kills", "status"),
    [
        (-signal.SIGABRT, "", 0, "CRASHED"),
        (3, "some words", 1, "CRASHED"),
        (-signal.SIGTERM, "", 1, "INTERRUPTED"),
        (-signal.SIGKILL, "", 0, "INTERRUPTED"),
        (-signal.SIGKILL, "", 1, "OOM"),
        (-signal.SIGABRT, "what(): std::bad_alloc", 0, "OOM"),
    ],
)
def test_the_end_of_a_worker_gives_the_status_of_its_stack(code, report, kills, status, monkeypatch):
    """kills: of the OOM killer since the worker began."""
    monkeypatch.setattr(pool, "_oom_kills", lambda: 7 + kills)
    ended = SimpleNamespace(code=lambda: code, report=lambda: report, oom_kills=7, step="validate x")
    found = pool.Worker.findings(ended)
    assert (found["status"], found["report"]) == (status, report)
    assert f"{signal.Signals(-code).name if code < 0 else 'exit code 3'}, at: validate x" in found["reason"]


def test_an_interrupt_waits_until_a_process_has_started(request):
    ignored = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background process ignores it
    request.addfinalizer(lambda: signal.signal(signal.SIGINT, ignored))
    began = []

    def start() -> None:
        with _interrupts_wait():
            signal.raise_signal(signal.SIGINT)  # for this thread: another one could take it at any later time
            began.append(Child(abort))

    with pytest.raises(KeyboardInterrupt):
        start()
    began[0].close()
