"""A call in a process of its own: what it does to the GPU, to memory or to itself ends with it."""

import os
import signal
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
from threading import Thread
from typing import Any

from common.errors import Crashed, LabError


def apart(seconds: float, work: Callable[..., Any], *arguments: Any) -> Any:
    """`work(*arguments)` in a new process, which ends with all that it has started; arguments and answer are pickled.

    Raises LabError where it does not answer within `seconds`, Crashed where its process ends before.
    """
    context = get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_answer, args=(theirs, work, arguments))
    process.start()
    theirs.close()
    try:
        if not ours.poll(seconds):
            raise LabError(f"not finished after {seconds:g} s", "raise timeout_s")
        return ours.recv()
    except EOFError:
        process.join()
        code = process.exitcode or 0
        cause = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        raise Crashed(f"its process ended by {cause}", "see what it printed") from None
    finally:
        process.kill()
        with suppress(ProcessLookupError):
            os.killpg(process.ident or -1, signal.SIGKILL)
        process.join()
        ours.close()


def _answer(to: Connection, work: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    os.setsid()  # what it starts is killed with it
    Thread(target=_end_with_parent, daemon=True).start()
    to.send(work(*arguments))


def _end_with_parent() -> None:
    parent = parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os.killpg(0, signal.SIGKILL)
