"""A call in a process of its own: what it does to the GPU, to memory or to itself ends with it."""

import os
import signal
import traceback
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
from threading import Thread
from typing import Any

from common.errors import Crashed, Hung
from experiments.processes.child import cause_of

SPAWN = get_context("spawn")


def apart(seconds: float, work: Callable[..., Any], *arguments: Any, context: Any = SPAWN) -> Any:
    """`work(*arguments)` in a new process, which ends with all that it has started; arguments and answer are pickled.

    context: of multiprocessing. Raises Hung after `seconds`, Crashed where the process ends without an answer, and what
    `work` raises.
    """
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_answer, args=(theirs, work, arguments))
    process.start()
    theirs.close()
    try:
        if not ours.poll(seconds):
            raise Hung(f"not finished after {seconds:g} s", "raise timeout_s", "")
        found, error = ours.recv()
    except EOFError:
        process.join()
        raise Crashed(f"its process ended by {cause_of(process.exitcode or 0)}", "see what it printed") from None
    finally:
        process.kill()
        with suppress(ProcessLookupError):
            os.killpg(process.ident or -1, signal.SIGKILL)
        process.join()
        ours.close()
    if error:
        raise error
    return found


def _answer(to: Connection, work: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    os.setsid()  # what it starts is killed with it
    Thread(target=_end_with_parent, daemon=True).start()
    try:
        to.send((work(*arguments), None))
    except Exception as error:
        traceback.print_exc()
        to.send((None, error))


def _end_with_parent() -> None:
    parent = parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os.killpg(0, signal.SIGKILL)
