"""A call in a process of its own: its answer, its limit, its end, and what it has started."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from processes import alive

from common.errors import Crashed, LabError
from experiments.processes.call import apart

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
