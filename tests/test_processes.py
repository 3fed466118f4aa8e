"""Processes of the lab: a call and its limit, a child and its messages, their ends and what they have started."""

import os
import signal
import subprocess
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
from processes import alive

from common.errors import Crashed, LabError
from experiments.processes import Child, Death, _interrupts_wait, apart

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
    assert child.death() == Death("exit code 7", "loud\nand clear\n", memory=False, external=False)
    child.close()


def abort(parent: Connection) -> None:
    os.abort()


def test_a_signal_of_its_own_is_the_cause_of_a_death():
    child = Child(abort, keep=True)
    with pytest.raises((EOFError, OSError)):
        child.connection.recv()
    found = child.death()
    assert (found.cause, found.external, alive(child.pid)) == ("SIGABRT", False, False)
    child.close()


def tell_environment_and_wait(parent: Connection) -> None:
    print("bad_alloc", flush=True)
    parent.send(os.environ["LAB_TOLD"])
    parent.recv()


def test_too_little_memory_another_process_and_stacks_are_told_apart():
    child = Child(tell_environment_and_wait, environment={"LAB_TOLD": "this"}, keep=True)
    assert child.connection.recv() == "this"
    os.kill(child.pid, signal.SIGINT)  # as Ctrl-C at a terminal, which is for the parent
    child.stacks()
    os.kill(child.pid, signal.SIGTERM)
    with pytest.raises(EOFError):
        child.connection.recv()
    found = child.death()
    assert (found.cause, found.memory, found.external) == ("SIGTERM", True, True)
    assert "Current thread" in found.report
    child.close()


def test_an_interrupt_waits_until_a_process_has_started():
    began = []

    def start() -> None:
        with _interrupts_wait():
            os.kill(os.getpid(), signal.SIGINT)
            began.append(Child(abort))

    with pytest.raises(KeyboardInterrupt):
        start()
    began[0].close()
