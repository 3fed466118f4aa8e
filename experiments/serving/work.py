"""Loop of a worker process: it reads jobs as lines of JSON, runs them on one engine, and writes events.

stdin   the first line is for the opener of the engine; then {"job": n, ...} of `schema.job_of`, and {"cancel": n}
stdout  {"ready": about}, or {"error": [cause, remedy]}; of each job {"prompt": ids}, then pieces {"ids", "text",
        "finish"}, and last {"done": stats}, {"refused": [cause, remedy, field, code]}, or {"failed": [cause, remedy]}
        when this process must not be used again, and ends
Everything else that is printed goes to stderr.
"""

import faulthandler
import json
import os
import resource
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from queue import SimpleQueue
from typing import Any, Protocol

from common.errors import Crashed, Hung, LabError, OutOfMemory
from experiments.generation.request import Piece, Request, Sampling, Stats

Event = Mapping[str, Any]
FULL = "context_length_exceeded"  # OpenAI's code
Send = Callable[[Event], None]


class _UnfitError(LabError):
    """A request that does not fit this model. param, code: of OpenAI's error."""

    def __init__(self, cause: str, remedy: str, param: str, code: str = "refused") -> None:
        super().__init__(cause, remedy)
        self.param, self.code = param, code


class Engine(Protocol):
    """The part of `experiments.generation.engine.Engine` that a worker needs."""

    tokenizer: Any
    stop_ids: frozenset[int]

    @property
    def positions(self) -> int: ...
    def stream(self, request: Request, cancelled: Callable[[], bool]) -> Iterator[Piece]: ...
    def stats(self) -> Stats: ...
    def chat_ids(self, messages: list[Mapping[str, str]], thinking: bool) -> tuple[int, ...]: ...


class Opened(Protocol):
    """An engine with one stack at a time. about: of the model and the device, for the page and the checks here."""

    @property
    def engine(self) -> Engine: ...
    @property
    def about(self) -> Event: ...
    def use(self, variant: str, knobs: Mapping[str, Any]) -> None: ...
    def strip(self, variant: str, knobs: Mapping[str, Any], position: int) -> Event: ...


class Jobs:
    """Jobs from stdin, read by a thread, and whether one was cancelled."""

    def __init__(self) -> None:
        self.lines: SimpleQueue[Any] = SimpleQueue()
        self._cancelled = 0  # number of the last cancelled job
        threading.Thread(target=self._read, daemon=True).start()

    def cancelled(self, number: int) -> bool:
        return self._cancelled == number

    def _read(self) -> None:
        """When the server ends, this process and its compilers end at once."""
        for line in sys.stdin:
            message = json.loads(line)
            if "cancel" in message:
                self._cancelled = message["cancel"]
            else:
                self.lines.put(message)
        os.killpg(os.getpid(), signal.SIGKILL)


def work(open_: Callable[[Event], Opened]) -> None:
    """Open the engine and serve jobs until stdin ends, or until one has damaged this process."""
    stream = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    faulthandler.enable()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the server handles Ctrl-C
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    def send(event: Event) -> None:
        print(json.dumps(event), file=stream, flush=True)

    jobs = Jobs()
    try:
        opened = open_(jobs.lines.get())
    except LabError as error:
        return send({"error": [error.cause, error.remedy]})
    send({"ready": opened.about})
    while True:
        job = jobs.lines.get()
        try:
            if "strip" in job:
                send({"done": _strip(opened, job)})
                continue
            with _unfit("knobs" if job["knobs"] else "model"):
                opened.use(job["variant"], job["knobs"])
            _answer(opened, job, partial(jobs.cancelled, job["job"]), send)
        except (Hung, Crashed, OutOfMemory) as error:
            return send({"failed": [error.cause, error.remedy]})
        except _UnfitError as error:
            send({"refused": [error.cause, error.remedy, error.param, error.code]})
        except LabError as error:
            send({"refused": [error.cause, error.remedy]})
        except Exception as error:
            traceback.print_exc()
            return send({"failed": [f"{type(error).__name__} in the worker", "its log has the traceback; ask again"]})


@contextmanager
def _unfit(field: str) -> Iterator[None]:
    """Say of what is refused inside which field it comes from."""
    try:
        yield
    except (Hung, Crashed, OutOfMemory):
        raise
    except LabError as error:
        raise _UnfitError(error.cause, error.remedy, field) from None


def _strip(opened: Opened, job: Event) -> Event:
    """Stages and blocks of one step. Raises LabError."""
    positions = opened.engine.positions
    if job["position"] >= positions:
        raise _UnfitError(f"position {job['position']} is not in 0..{positions - 1}", "give one of them", "position")
    with _unfit("knobs" if job["knobs"] else "model"):
        return opened.strip(job["variant"], job["knobs"], job["position"])


def _answer(opened: Opened, job: Event, cancelled: Callable[[], bool], send: Send) -> None:
    """Run one request and send its pieces. Raises LabError."""
    engine = opened.engine
    if job["stop"] and engine.tokenizer is None:
        raise _UnfitError("there is no tokenizer for stop strings", "leave stop out", "stop")
    ids = _ids(opened, job)
    most = _room(engine.positions, len(ids), job)
    sampling, stops = Sampling(**job["sampling"]), tuple(job["stop"])
    pieces = engine.stream(Request(ids, most, sampling, engine.stop_ids, stops), cancelled)
    for number, piece in enumerate(pieces):
        if number == 0:  # until then the request may be refused
            send({"prompt": ids})
        send(asdict(piece))
    send({"done": asdict(engine.stats())})


def _ids(opened: Opened, job: Event) -> tuple[int, ...]:
    """The prompt of a job as token ids. Raises LabError."""
    engine, vocab = opened.engine, opened.about["vocab"]
    if "messages" in job:
        if not opened.about["chat"]:
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
    asked, room = job["max_tokens"], positions - prompt + 1
    if room < max(1, asked or 1):
        what, field = ("the conversation", "messages") if "messages" in job else ("the prompt", "prompt")
        more = f", and {job['limit']} asks for {asked} more" if asked else ""
        cause, remedy = f"the context holds {positions} tokens: {what} has {prompt}{more}", f"shorten {what}"
        if room > 0:
            field, remedy = job["limit"], f"{remedy}, or ask for at most {room}"
        raise _UnfitError(cause, remedy, field, FULL)
    return asked or room
