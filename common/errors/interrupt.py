"""One line for an interrupt while a command still imports its modules; later `run_task` prints it."""

import os
import sys
from types import TracebackType

INTERRUPTED = 130
SAID = "error: interrupted; records already written are kept"


def while_importing() -> None:
    """Print an unhandled interrupt as one line; only in `python -m MODULE`, not in a program that imports the lab."""
    if sys.argv[:1] == ["-m"]:  # argv while Python looks for the module
        sys.excepthook = _say


def _say(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if not issubclass(kind, KeyboardInterrupt):
        return sys.__excepthook__(kind, error, trace)
    if sys.stderr:
        print(SAID, file=sys.stderr, flush=True)
    os._exit(INTERRUPTED)
