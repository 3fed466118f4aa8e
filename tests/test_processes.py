"""Processes of the lab: a call and its limit, a child and its messages, their ends and what they have started."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from processes import alive

from common.errors import Crashed, LabError
from experiments.processes import Child, Death, Message, apart

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


def served(body: str) -> Child:
    """A child with a body that has `parent` and `requests`; `timeit` runs it."""
    code = "from queue import SimpleQueue; from experiments.processes import Parent; requests = SimpleQueue()"
    return Child(["timeit", "-n1", "-r1", f"{code}; parent = Parent(requests.put)\n{body}"], keep=True)


async def everything(child: Child) -> list[Message]:
    events = []
    while (event := await child.read()) is not None:
        events.append(event)
    return events


def test_a_child_answers_in_lines_of_json_and_its_prints_are_its_report():
    child = served(
        "print('loud', flush=True)\nfor _ in range(2): parent.send({'got': requests.get()})\nimport os; os._exit(7)"
    )
    for number in range(2):
        child.send({"number": number})
    assert asyncio.run(everything(child)) == [{"got": {"number": number}} for number in range(2)]
    assert child.death() == Death("exit code 7", "loud\n", memory=False, external=False)
    child.close()


@pytest.mark.parametrize(
    ("body", "cause"),
    [
        ("parent._stdout.write('no JSON' + chr(10)); parent._stdout.flush(); requests.get()", "a line that is no JSON"),
        ("parent._stdout.write(2000 * 'x'); parent._stdout.flush(); requests.get()", "a line of more than 1000 bytes"),
        ("import os; os.abort()", "SIGABRT"),
    ],
)
def test_the_cause_of_a_death_is_told(body, cause, monkeypatch):
    monkeypatch.setattr("experiments.processes.LONGEST_LINE", 1000)
    child = served(body)
    assert asyncio.run(everything(child)) == []
    found = child.death()
    assert (found.cause, found.external, child.alive) == (cause, False, False)
    child.close()


def test_too_little_memory_another_process_and_stacks_are_told_apart():
    child = served("import sys; print('bad_alloc', file=sys.stderr, flush=True); parent.send({}); requests.get()")
    assert asyncio.run(child.read()) == {}
    child.stacks()
    os.kill(child.popen.pid, signal.SIGTERM)
    assert asyncio.run(child.read()) is None
    found = child.death()
    assert (found.cause, found.memory, found.external) == ("SIGTERM", True, True)
    assert "Current thread" in found.report
    child.close()
