"""Worker process that compiles, validates and measures stacks: `python -m experiments.run.worker`.

Events to its parent, experiments/run/pool.py: `begin`, `detail`, `note`, and finally `done` with the findings, or
`spent` with the findings when this process must not be used again, or `machine` with cause and remedy of what is no
stack's fault. The first request is `first_request`; its answer is `ready` with the device's description, or `error`.
"""

import logging
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from common.cache.files import again
from common.cache.folder import keep_below
from common.cache.log import LOG
from common.config.run_config import RunConfig
from common.errors import CompileError, Crashed, LabError, OutOfMemory
from common.errors.machine import MachineError
from common.record.json_values import from_json, to_json
from common.stacks.stack import Stack
from common.validate.verdict import PASSED, Verdict
from experiments.processes.child import OUT_OF_MEMORY
from experiments.processes.parent import Parent
from experiments.run.setup import Setup
from experiments.tables.progress import Progress

if TYPE_CHECKING:
    from experiments.run.steps import LabStack

SPENT = ("HUNG", "CRASHED", "OOM")  # after these a thread, the CUDA context or the heap may be damaged


def first_request(config: RunConfig, weights: str) -> dict[str, Any]:
    """A worker's first request: the configuration, and the sha256 of the packed weights that the records will name."""
    return {"config": to_json(config), "weights": weights}


class _Events(Progress):
    """Progress as events to the parent."""

    def __init__(self, parent: Parent) -> None:
        self._parent = parent

    def begin(self, what: str) -> None:
        self._parent.send({"begin": what})

    def detail(self, text: str, of: str = "") -> None:
        self._parent.send({"detail": text})

    def note(self, text: str) -> None:
        self._parent.send({"note": text})


class _Notes(logging.Handler):
    """Warnings of the cache as `note` events."""

    def __init__(self, events: _Events) -> None:
        super().__init__()
        self._events = events

    def emit(self, record: logging.LogRecord) -> None:
        self._events.note(record.getMessage())


def main() -> None:
    """Serve requests until stdin ends."""
    requests: SimpleQueue[Any] = SimpleQueue()
    parent = Parent(requests.put)
    events = _Events(parent)
    LOG.addHandler(_Notes(events))
    try:
        first = requests.get()
        setup = _open(from_json(RunConfig, first["config"]), first["weights"], events)
        parent.send({"ready": to_json(setup.device.describe())})
        while True:
            found = again(partial(_answer, setup, requests.get()))
            parent.send({"spent" if found["status"] in SPENT else "done": to_json(found)})
    except MachineError as error:
        parent.send({"machine": [error.cause, error.remedy]})
    except LabError as error:
        parent.send({"error": [error.cause, error.remedy]})


def _answer(setup: Setup, request: Mapping[str, Any]) -> dict[str, Any]:
    with setup.exclusive_gpu():
        stack, more = from_json(Stack, request["stack"]), (request.get("proof"), request.get("beat"))
        return _run(setup, stack, request["seconds"], *more)


def _open(config: RunConfig, sha: str, events: _Events) -> Setup:
    """The setup of the stacks. Raises LabError when the weights are not those of the parent."""
    keep_below(config.cache, 1e9 * config.cache_limit_gb)
    setup = Setup(config, events)
    packed = setup.packed
    if packed.sha != sha:
        raise LabError(
            f"{packed.source} has changed since the run began: sha256 {packed.sha[:16]}, and it was {sha[:16]}",
            "keep the weights as they are during a run, and start it again",
        )
    packed.flat  # noqa: B018  a cache that cannot be written is no fault of a stack
    return setup


def _run(
    setup: Setup, stack: Stack, seconds: float, proof: Mapping[str, Any] | None = None, beat: float | None = None
) -> dict[str, Any]:
    """Compile, inspect, validate and measure one stack; every exception becomes its status, but MachineError.

    seconds: until the parent kills this process. A launch on a CPU times out before that, with a report.
    proof: of a stack that is known to pass, from the record of its validation. beat: see `LabStack.measure`.
    """
    from experiments.run.steps import LabStack

    deadline, job = time.monotonic() + seconds, LabStack(setup, stack)
    if proof:
        job.found.verdict, job.found.blocks = from_json(Verdict, proof["verdict"]), proof["blocks"]
        job.found.status, job.found.proof = PASSED, proof["id"]
    try:
        for step in _steps(job, beat):
            if own := setup.config.host or setup.config.ptx:
                left = deadline - time.monotonic()
                setup.device.timeout = max(0.1, min(own.timeout_s, left))  # type: ignore[attr-defined]
            step()
    except MachineError:
        raise
    except LabError as error:
        job.fail(error)
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        if any(part in text for part in OUT_OF_MEMORY):
            job.fail(OutOfMemory(text, "free memory, or take a smaller model or fewer positions"))
        else:
            job.fail(Crashed(text, "see the traceback in its record"))
            job.found.report = traceback.format_exc()
    return job.found.as_record()


def _steps(job: "LabStack", beat: float | None) -> "Iterator[Callable[[], object]]":
    """The steps, each after the previous one is done. Only a stack that passed is measured, and only on a GPU."""
    config = job.setup.config
    yield job.compile
    yield lambda: _inspect(job)
    yield job.validate
    if config.timing and config.device.name == "cuda" and job.found.status == PASSED:
        yield lambda: job.measure(beat)


def _inspect(job: "LabStack") -> None:
    try:
        job.resources()
    except (CompileError, MachineError):
        raise
    except LabError as error:  # a missing NVRTC or nvdisasm does not stop validation
        job.setup.show.note(f"no registers or spills: {error}")


if __name__ == "__main__":
    main()
