"""Jobs of a worker process: it runs the server's jobs on one engine, and answers with events.

messages  the first one is for the opener of the engine; then {"job": n, ...} of `schema.job_of`, and {"cancel": n}
events    {"ready": about}, or {"error": [cause, remedy]}; of each job {"prompt": ids}, then pieces {"ids", "text",
          "finish"}, and last {"done": stats}, {"refused": [message, field, code]}, or {"failed": [cause, remedy]}
          when this process must not be used again, and ends
"""

import traceback
from collections.abc import Callable, Container, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Protocol

from common.errors import Crashed, Hung, LabError, OutOfMemory
from experiments.generation.request import Request, Sampling
from experiments.processes import Parent

if TYPE_CHECKING:  # it imports torch
    from experiments.generation.engine import Engine

Event = Mapping[str, Any]
FULL = "context_length_exceeded"  # OpenAI's code


class _UnfitError(LabError):
    """A request that does not fit this model. param, code: of OpenAI's error."""

    def __init__(self, cause: str, remedy: str, param: str, code: str = "refused") -> None:
        super().__init__(cause, remedy)
        self.param, self.code = param, code


class Worker(Protocol):
    """An engine with one stack at a time. about: of the model and the device, for the page and the checks here."""

    engine: "Engine"
    about: dict[str, Any]

    def use(self, variant: str, knobs: Mapping[str, Any]) -> None: ...
    def trace(self, variant: str, knobs: Mapping[str, Any], position: int) -> Event: ...


def serve_jobs(open_worker: Callable[[Event], Worker]) -> None:
    """Open the engine and serve jobs until the server ends, or until one has damaged this process."""
    messages, cancelled = SimpleQueue[Event](), set[int]()

    def receive(message: Event) -> None:
        if "cancel" in message:
            cancelled.add(message["cancel"])
        else:
            messages.put(message)

    parent = Parent(receive)
    try:
        worker = open_worker(messages.get())
    except LabError as error:
        return parent.send({"error": [error.cause, error.remedy]})
    parent.send({"ready": worker.about})
    while True:
        job = messages.get()
        events = _trace(worker, job) if "trace" in job else _answer(worker, job, cancelled)
        try:
            for event in events:
                parent.send(event)
        except (Hung, Crashed, OutOfMemory) as error:
            return parent.send({"failed": [error.cause, error.remedy]})
        except _UnfitError as error:
            parent.send({"refused": [str(error), error.param, error.code]})
        except LabError as error:
            parent.send({"refused": [str(error), None, "refused"]})
        except Exception as error:
            traceback.print_exc()
            cause = f"{type(error).__name__} in the worker"
            return parent.send({"failed": [cause, "its log has the traceback; ask again"]})


@contextmanager
def _unfit(field: str) -> Iterator[None]:
    """Name the field that a refusal inside comes from."""
    try:
        yield
    except (Hung, Crashed, OutOfMemory):
        raise
    except LabError as error:
        raise _UnfitError(error.cause, error.remedy, field) from None


def _trace(worker: Worker, job: Event) -> Iterator[Event]:
    """Stages and blocks of one step. Raises LabError."""
    positions = worker.engine.positions
    if job["position"] >= positions:
        raise _UnfitError(f"position {job['position']} is not in 0..{positions - 1}", "give one of them", "position")
    with _unfit("knobs" if job["knobs"] else "model"):
        yield {"done": worker.trace(job["variant"], job["knobs"], job["position"])}


def _answer(worker: Worker, job: Event, cancelled: Container[int]) -> Iterator[Event]:
    """The answer to one request; its first event says that it is accepted. Raises LabError."""
    with _unfit("knobs" if job["knobs"] else "model"):
        worker.use(job["variant"], job["knobs"])
    engine = worker.engine
    if job["stop"] and engine.tokenizer is None:
        raise _UnfitError("there is no tokenizer for stop strings", "leave stop out", "stop")
    ids = _ids(worker, job)
    most = _room(engine.positions, len(ids), job)
    request = Request(ids, most, Sampling(**job["sampling"]), engine.stop_ids, tuple(job["stop"]))
    for number, piece in enumerate(engine.stream(request, lambda: job["job"] in cancelled)):
        if number == 0:  # until then the engine may refuse it
            yield {"prompt": ids}
        yield asdict(piece)
    yield {"done": asdict(engine.stats())}


def _ids(worker: Worker, job: Event) -> tuple[int, ...]:
    """The prompt of a job as token ids. Raises LabError."""
    engine, vocab = worker.engine, worker.about["vocab"]
    if "messages" in job:
        if not worker.about["chat"]:
            raise _UnfitError("this model has no chat template", "use /v1/completions", "messages")
        with _unfit("messages"):
            return engine.chat_ids(job["messages"], job["thinking"])
    prompt = job["prompt"]
    if isinstance(prompt, str):
        if engine.tokenizer is None:
            raise _UnfitError("there is no tokenizer for a text", "send the prompt as token ids: [1,2,3]", "prompt")
        prompt = engine.tokenizer.encode(prompt)
        if not prompt:
            raise _UnfitError("the prompt has no token", "give a longer one", "prompt")
    elif max(prompt) >= vocab:
        place = next(place for place, token in enumerate(prompt) if token >= vocab)
        cause = f"prompt[{place}]: token id {prompt[place]} is not in 0..{vocab - 1}"
        raise _UnfitError(cause, "give ids of this model", f"prompt[{place}]")
    return tuple(prompt)


def _room(positions: int, prompt: int, job: Event) -> int:
    """Tokens of the longest answer; its last one is chosen but not decoded, so it needs no room. Raises LabError."""
    limit, room = job["max_tokens"], positions - prompt + 1
    if room < max(1, limit or 1):
        what, field = ("the conversation", "messages") if "messages" in job else ("the prompt", "prompt")
        more = f", and {job['field']} asks for {limit} more" if limit else ""
        cause, remedy = f"the context holds {positions} tokens: {what} has {prompt}{more}", f"shorten {what}"
        if room > 0:
            field, remedy = job["field"], f"{remedy}, or ask for at most {room}"
        raise _UnfitError(cause, remedy, field, FULL)
    return limit or room
