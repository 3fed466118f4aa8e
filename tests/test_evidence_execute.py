"""The process of one step of the evidence: exit code, last lines, its end at the deadline and with its parent."""

import os
import signal
import subprocess
import sys
import time
from math import inf

from processes import alive, children

from common import ROOT
from common.config import budget
from experiments.evidence import execute as module
from experiments.evidence.execute import execute

SLEEPS = ["timeit", "-n1", "-r1", "import time; print('begun', flush=True); time.sleep(1000)"]
PARENT = f"from experiments.evidence.execute import execute; execute({SLEEPS}, float('inf'))"


def test_exit_code_and_last_lines(capfd):
    lines = f"import os; print(*range({2 * module.TAIL}), sep=chr(10), flush=True); os._exit(7)"
    ended = execute(["timeit", "-n1", "-r1", lines], inf)
    assert ended.code == 7
    assert ended.tail.split() == [str(number) for number in range(module.TAIL, 2 * module.TAIL)]
    assert capfd.readouterr().err.split() == [str(number) for number in range(2 * module.TAIL)]


def test_a_step_is_stopped_at_its_deadline(monkeypatch, tmp_path):
    """Its clock stands still until it has begun."""
    begun = tmp_path / "begun"
    monkeypatch.setattr(budget, "clock", lambda: 100.0 * begun.exists())
    lines = f"import time; print('begun', flush=True); open({str(begun)!r}, 'w').close(); time.sleep(1000)"
    ended = execute(["timeit", "-n1", "-r1", lines], 100)
    assert (ended.code, ended.tail) == (None, "begun\n")


def test_a_step_ends_with_a_killed_command():
    parent = subprocess.Popen([sys.executable, "-c", PARENT], cwd=ROOT, stderr=subprocess.PIPE, text=True)
    assert parent.stderr is not None
    assert parent.stderr.readline() == "begun\n"
    (child,) = children(parent.pid)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    for _ in range(4000):
        if not alive(child):
            return
        time.sleep(0.05)
    os.kill(child, signal.SIGKILL)
    raise AssertionError(child)
