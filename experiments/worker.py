"""The child process that compiles, validates and measures stacks for a run: `python -m experiments.worker`.

A request is one JSON object on a line of stdin; every line it writes back is one event: `begin`, `detail`, `note`, and
last `done` with the findings, or `spent` when this process should do no more. The first request is the configuration,
answered by `ready` and the device's description. What it prints otherwise goes to stderr, which the parent keeps for
the report of a crash.
"""

import contextlib
import faulthandler
import fcntl
import json
import os
import resource
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import replace
from queue import SimpleQueue
from typing import Any, TextIO

from common.config import RunConfig
from common.errors import Crashed, LabError, OutOfMemory
from common.plain import plain, restore
from common.records import Store
from common.stack import Stack
from experiments.progress import Progress

SPENT = ("HUNG", "CRASHED", "OOM")  # what leaves a thread, a CUDA context or a heap behind that nobody can trust
FULL = ("bad_alloc", "allocate memory", "out of memory", "OutOfMemory", "MemoryError")  # how libraries say it


def packed(config: RunConfig) -> dict[str, Any]:
    """The configuration as a worker's first request."""
    return plain(replace(config, options=None))


class _Line(Progress):
    """Progress as events to the parent."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def begin(self, what: str) -> None:
        self.send({"begin": what})

    def detail(self, text: str, of: str = "") -> None:
        self.send({"detail": text})

    def note(self, text: str) -> None:
        self.send({"note": text})

    def send(self, event: Mapping[str, Any]) -> None:
        print(json.dumps(event, allow_nan=False), file=self._stream, flush=True)


def main() -> None:
    """Serve requests until stdin ends."""
    line = _Line(os.fdopen(os.dup(1), "w"))
    os.dup2(2, 1)  # what a library or a kernel prints must not be taken for an event
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1)  # the parent asks where a process that hangs stands
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    requests = _requests()
    try:
        lab = _open(restore(RunConfig, requests.get()), line)
        line.send({"ready": plain(lab.device.describe())})
    except LabError as error:
        return line.send({"error": [error.cause, error.remedy]})
    while True:
        request = requests.get()
        with _alone(lab.config):
            found = _run(lab, restore(Stack, request["stack"]), request["seconds"])
        line.send({"spent" if found["status"] in SPENT else "done": plain(found)})


def _requests() -> "SimpleQueue[Any]":
    """What the parent asks, read by a thread; when the parent is gone this process and its compilers end at once."""
    requests: SimpleQueue[Any] = SimpleQueue()

    def read() -> None:
        for line in sys.stdin:
            requests.put(json.loads(line))
        os.killpg(os.getpid(), signal.SIGKILL)

    threading.Thread(target=read, daemon=True).start()
    return requests


def _open(config: RunConfig, line: _Line) -> Any:
    from experiments.run import Lab, open_device, weights_of

    return Lab(config, open_device(config), *weights_of(config), Store(config.results), line)


@contextlib.contextmanager
def _alone(config: RunConfig) -> Iterator[None]:
    """On a GPU, wait until no other run of the lab uses it: two timings on one GPU disturb each other."""
    if config.device.name == "host":
        yield
        return
    from cupy.cuda import Device

    path = config.cache / f"gpu-{Device().pci_bus_id.replace(':', '-')}.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _run(lab: Any, stack: Stack, seconds: float) -> dict[str, Any]:
    """Compile, inspect, validate and measure one stack; whatever goes wrong becomes its status.

    seconds: until the parent ends this process. A launch on the host device is given up before that, with a report.
    """
    from experiments.run import Case, compile_stack, failed, findings, inspect_stack, measure_stack, validate_stack

    deadline, case = time.monotonic() + seconds, Case(stack)
    try:
        for step in (compile_stack, inspect_stack, validate_stack, measure_stack):
            if lab.config.host:
                lab.device.timeout = max(0.1, min(lab.config.host.timeout_s, deadline - time.monotonic()))
            case = step(lab, case)
    except LabError as error:
        case = failed(case, error)
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        if any(word in text for word in FULL):
            case = failed(case, OutOfMemory(text, "free memory, or take a smaller model or fewer positions"))
        else:
            case = replace(
                failed(case, Crashed(text, "see the traceback in the record")), report=traceback.format_exc()
            )
    return findings(case)


if __name__ == "__main__":
    main()
