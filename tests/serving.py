"""A server in a thread of the test, with the fake engine, and clients for it."""

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from operator import gt
from typing import Any

import httpx
from fake_engine import FakeDecoder
from openai import OpenAI

from common.stacks.stack import Stack
from experiments.serving.decoder import Decoder
from experiments.serving.server import Server, run
from experiments.serving.settings import Settings

BASELINE = Stack("baseline", (), (), {})
PATIENCE_S = 150.0  # a busy machine may stand still for a minute; nothing waits so long by itself
LIMITS = {"bind": "127.0.0.1", "port": 0, "api_key": None, "body_kb": 20}
LIMITS |= {"queue": 4, "deadline_s": PATIENCE_S}


class Running:
    """A running server: its address, its engine, and clients that never retry."""

    def __init__(self, server: Server, address: str, engine: Any, key: str | None) -> None:
        self.server, self.address, self.engine, self.key = server, address, engine, key
        self.connect()

    def end(self) -> None:
        """Effect of a signal."""
        self.server.should_exit = True

    def connect(self) -> None:
        """Make both clients."""
        headers = {"Authorization": f"Bearer {self.key}"} if self.key else {}
        self.http = httpx.Client(base_url=self.address, headers=headers, timeout=PATIENCE_S)
        key = self.key or "none"
        self.openai = OpenAI(base_url=f"{self.address}/v1", api_key=key, max_retries=0, timeout=PATIENCE_S)

    def disconnect(self) -> None:
        """Close both, with the connections that they keep."""
        self.http.close()
        self.openai.close()

    def ids(self, prompt: list[int], count: int, **more: object) -> list[int]:
        """The ids that follow `prompt`, by the official client."""
        extra = {"return_token_ids": True}
        found = self.openai.completions.create(
            **{"model": "fake", "prompt": prompt, "max_tokens": count, "extra_body": extra, **more}
        )
        return found.choices[0].token_ids  # type: ignore[attr-defined]

    def open(self) -> tuple[int, int]:
        """Tasks of the server, and open files of this process, in which it runs, without these clients'."""
        self.disconnect()
        time.sleep(0.3)  # until the server has noticed
        found = len(self.server.server_state.tasks), len(os.listdir("/proc/self/fd"))
        self.connect()
        return found

    def closed(self, most: tuple[int, int]) -> None:
        """Wait until no more is open."""
        end = time.monotonic() + PATIENCE_S
        while any(map(gt, now := self.open(), most)):
            assert time.monotonic() < end, f"tasks and files: {now}, not {most}"

    def waits(self, requests: int) -> None:
        """Return when so many requests wait for the device."""
        self._settled("waiting", lambda: self.server.line.waiting, requests)

    def cancelled(self, answers: int) -> None:
        """Return when the engine has stopped so many answers before their end."""
        self._settled("cancelled", lambda: self.engine.cancelled, answers)

    def _settled(self, what: str, now: Callable[[], int], value: int) -> None:
        end = time.monotonic() + PATIENCE_S
        while now() != value:
            assert time.monotonic() < end, f"{what}: {now()}, not {value}"
            time.sleep(0.02)


@contextmanager
def serving(decoder: Callable[[], Decoder] = FakeDecoder, **limits: object) -> Iterator[Running]:
    """A server with `limits` in place of LIMITS; it has ended when the block ends. Raises what `run` raises."""
    settings, told, ready = Settings(**{**LIMITS, **limits}), {}, threading.Event()

    def on_ready(server: object, address: str) -> None:
        told.update(server=server, address=address)
        ready.set()

    def serve() -> None:
        try:
            run(settings, lambda: told.setdefault("decoder", decoder()), BASELINE, on_ready)
        except BaseException as error:
            told["error"] = error
        ready.set()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        ready.wait(PATIENCE_S)
        if "error" in told:
            raise told["error"]
        running = Running(told["server"], told["address"], told["decoder"].engine, settings.api_key)
        try:
            yield running
        finally:
            running.disconnect()
            running.end()
    finally:
        thread.join(PATIENCE_S)
    assert not thread.is_alive(), "the server did not end"
    if "error" in told:
        raise told["error"]
