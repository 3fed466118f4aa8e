"""The parent of this process, as a module sees it that `experiments.processes.child.Child` has started."""

import faulthandler
import json
import os
import resource
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any


class Parent:
    """Messages of the parent on stdin and events to it on stdout: lines of JSON. What else is printed goes to stderr.

    receive: called by a thread with each message. SIGUSR1 writes the stack of each thread to stderr. When the parent
    ends, so does this process, with its compilers.
    """

    def __init__(self, receive: Callable[[Any], None]) -> None:
        self._stdout = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)  # output of a library or a kernel is not parsed as an event
        faulthandler.enable()
        faulthandler.register(signal.SIGUSR1)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        threading.Thread(target=self._listen, args=(receive,), daemon=True).start()

    def send(self, event: Mapping[str, Any]) -> None:
        """Write one event. Raises ValueError for a NaN, which JSON does not have."""
        print(json.dumps(event, allow_nan=False), file=self._stdout, flush=True)

    def _listen(self, receive: Callable[[Any], None]) -> None:
        for line in sys.stdin:
            receive(json.loads(line))
        os.killpg(os.getpid(), signal.SIGKILL)
