"""One line for an interrupt while a command still imports its modules; from then on `run_task` says it."""

import os
import sys
from types import TracebackType

INTERRUPTED = 130
SAID = "error: interrupted; records already written are kept"


def while_importing() -> None:
    """Say an interrupt that nothing handles in one line; in `python -m MODULE`, not where a program imports the lab."""
    if sys.argv[:1] == ["-m"]:  # as long as Python looks for the module
        sys.excepthook = _say


def _say(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if not issubclass(kind, KeyboardInterrupt):
        return sys.__excepthook__(kind, error, trace)
    if sys.stderr:
        print(SAID, file=sys.stderr, flush=True)
    os._exit(INTERRUPTED)
