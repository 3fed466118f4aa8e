"""Worker process that compiles, validates and measures stacks.

Events to its parent, experiments/run/pool.py: `ready` with the device's description; `begin`, `detail`, `wait`, `note`,
and `done` with the findings of each job; `error`, a LabError that is no stack's fault.
"""

import logging
import time
import traceback
from collections.abc import Mapping
from contextlib import ExitStack
from multiprocessing.connection import Connection
from typing import Any

from common.cache.folder import keep_below
from common.cache.log import LOG
from common.config.run_config import RunConfig
from common.errors import CompileError, Crashed, LabError, OutOfMemory
from common.errors.machine import MachineError
from common.json_values import from_json, to_json
from common.stopwatch import part, spent
from common.validate.verdict import PASSED, Verdict
from experiments.processes import OUT_OF_MEMORY
from experiments.run.setup import Setup
from experiments.run.steps import LabStack
from experiments.tables.progress import Progress


class Events(Progress, logging.Handler):
    """Progress, and warnings of the cache, as events to the parent."""

    def __init__(self, parent: Connection) -> None:
        logging.Handler.__init__(self)
        self._parent = parent

    def begin(self, what: str) -> None:
        self._parent.send(("begin", what))

    def detail(self, text: str, of: str = "") -> None:
        self._parent.send(("detail", text))

    def wait(self, what: str) -> None:
        self._parent.send(("wait", f"waits for {what}"))

    def note(self, text: str) -> None:
        self._parent.send(("note", text))

    def emit(self, record: logging.LogRecord) -> None:
        self.note(record.getMessage())


def serve(parent: Connection, config: RunConfig, weights: str) -> None:
    """Serve requests until the parent ends. weights: their sha256 by the parent, which must be the same here."""
    events = Events(parent)
    LOG.addHandler(events)
    try:
        keep_below(config.cache, 1e9 * config.cache_limit_gb)
        setup = Setup(config, events)
        packed = setup.packed
        if packed.sha != weights:
            raise LabError(
                f"{packed.source} has changed since the run began: sha256 {packed.sha[:16]}, it was {weights[:16]}",
                "keep the weights as they are during a run, and start it again",
            )
        packed.flat  # noqa: B018  a cache that cannot be written is no fault of a stack
        parent.send(("ready", to_json(setup.device.describe())))
        while True:
            parent.send(("done", to_json(answer(setup, parent.recv()))))
    except LabError as error:
        parent.send(("error", error))


def answer(setup: Setup, request: Mapping[str, Any]) -> dict[str, Any]:
    """Compile, inspect, validate and measure one stack; every exception becomes its status, but MachineError.

    Of several workers on a GPU one validates and measures; the others compile meanwhile, or wait for their turn.
    request: `stack`; `seconds` until the parent kills this process, before which a launch on a CPU times out
    with a report; `proof` of a stack that is known to pass, from the record of its validation; `beat` of `measure`.
    """
    deadline, job = time.monotonic() + request["seconds"], LabStack(setup, request["stack"])
    config, found = setup.config, job.found
    if proof := request.get("proof"):
        found.verdict, found.blocks = from_json(Verdict, proof["verdict"]), proof["blocks"]
        found.status, found.proof = PASSED, proof["id"]

    on_gpu = config.device.name == "cuda"
    with ExitStack() as held:
        try:
            (job.compile_ahead if on_gpu else job.compile)()
            try:
                job.resources()
            except (CompileError, MachineError):
                raise
            except LabError as error:  # a missing NVRTC or nvdisasm does not stop validation
                setup.show.note(f"no registers or spills: {error}")
            with spent(found.seconds), part("wait"):
                held.enter_context(setup.exclusive_gpu())
            if own := config.ptx:
                left = deadline - time.monotonic()
                setup.device.timeout = max(0.1, min(own.timeout_s, left))  # type: ignore[attr-defined]
            job.validate()
            if config.timing and on_gpu and found.status == PASSED:
                job.measure(request.get("beat"))
        except MachineError:
            raise
        except LabError as error:
            job.fail(error)
        except Exception as error:
            text = f"{type(error).__name__}: {error}"
            if any(word in text for word in OUT_OF_MEMORY):
                job.fail(OutOfMemory(text, "free memory, or take a smaller model or fewer positions"))
            else:
                job.fail(Crashed(text, "see the traceback in its record"))
                found.report = traceback.format_exc()
    return found.as_record()
