"""Modules that the lab starts as processes, forked from a server that has imported torch: 0.1 s of a core, not 1.7."""

import os
import runpy
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from multiprocessing import get_context
from multiprocessing.reduction import DupFd
from typing import Any

import torch

SERVED = ("experiments.run.worker",)
SERVER = get_context("forkserver")
SERVER.set_forkserver_preload(["experiments.run.steps"])  # import what takes longest
THREADS = "OMP_NUM_THREADS"  # which torch has read in the server


def _of_interpreter(environment: Mapping[str, str]) -> dict[str, str]:
    """Variables that an interpreter, or a library that the server has imported, reads when it starts."""
    return {name: value for name, value in environment.items() if name.startswith(("PYTHON", "LD_", "MKL", "TORCH"))}


OWN = _of_interpreter(os.environ)


class Forked:
    """Members of `subprocess.Popen` that experiments/processes.py uses, for a process that the server has forked."""

    def __init__(self, argv: Sequence[str], cwd: Any, env: Mapping[str, str], **streams: Any) -> None:
        ours = {}
        theirs = []
        for number, name in enumerate(("stdin", "stdout", "stderr")):
            stream = streams.get(name)
            if stream == subprocess.PIPE:
                read, write = os.pipe()
                ours[name] = os.fdopen(write, "wb", 0) if number == 0 else os.fdopen(read, "rb", 0)
                theirs.append(read if number == 0 else write)
            else:
                theirs.append(os.dup(number if stream is None else stream.fileno()))
        self.stdin, self.stdout, self.stderr = (ours.get(name) for name in ("stdin", "stdout", "stderr"))
        state = (str(cwd), dict(env), os.sched_getaffinity(0))
        self._process = SERVER.Process(target=_run, args=([*argv], [DupFd(file) for file in theirs], *state))
        self._process.start()
        for file in theirs:
            os.close(file)
        self.pid = self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired(self._process.name, timeout or 0)
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)


def _run(argv: list[str], files: Sequence[Any], cwd: str, env: dict[str, str], cores: set[int]) -> None:
    """`python -m argv`, as a process that `subprocess.Popen` starts would be."""
    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number, file in enumerate(files):
        passed = file.detach()
        os.dup2(passed, number)
        os.close(passed)
    sys.stdin, sys.stdout, sys.stderr = (os.fdopen(file, "w" if file else "r", 1, closefd=False) for file in range(3))
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)
    os.sched_setaffinity(0, cores)
    torch.set_num_threads(int(env.get(THREADS, len(cores))))
    sys.argv = argv
    runpy.run_module(argv[0], run_name="__main__", alter_sys=True)


class Subprocess:
    """`subprocess` as experiments/processes.py sees it in a test."""

    PIPE, TimeoutExpired = subprocess.PIPE, subprocess.TimeoutExpired

    @staticmethod
    def Popen(command: Sequence[str], env: Mapping[str, str] | None = None, **given: Any) -> Any:  # noqa: N802
        env = os.environ if env is None else env
        if command[:2] != [sys.executable, "-m"] or command[2] not in SERVED or _of_interpreter(env) != OWN:
            return subprocess.Popen(command, env=env, **given)
        assert given.pop("start_new_session")
        return Forked(command[2:], env=env, **given)
