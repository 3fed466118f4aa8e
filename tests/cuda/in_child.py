"""Tests that run in a child process, which pytest's own process watches by the clock: a CUDA error is final for the
process that it happens in, and no signal interrupts a call into the driver.

One child serves test after test, so that the GPU and the weights are opened once. After a test that did not pass it
ends without another call into CUDA, and the next test gets a new one.
"""

import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, wraps
from importlib import import_module
from multiprocessing.connection import Connection
from typing import Any

import pytest

from experiments.processes import Child, cause_of

LIMIT = 240.0  # seconds; the slowest tests compute a float64 reference at full size


def in_child(spends: bool = False, seconds: float = LIMIT) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A decorator: the test's body runs in the child, with the fixtures' values; these must pickle.

    spends: the body leaves a process behind that cannot use the GPU again. seconds: after which the child is killed.
    """

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @wraps(test)
        def outside(**fixtures: Any) -> None:
            __tracebackhide__ = True
            CHILD.run(test.__module__, test.__qualname__, fixtures, spends, seconds)

        return outside

    return decorate


class Current:
    """The process of the moment, if any."""

    def __init__(self) -> None:
        self._child: Child | None = None

    @property
    def pid(self) -> int | None:
        return self._child and self._child.pid

    def run(self, module: str, name: str, fixtures: dict[str, Any], spends: bool, seconds: float) -> None:
        """Run one test there. Fails it when the child says so, ends, or does not answer in time."""
        __tracebackhide__ = True
        child = self._child = self._child or Child(_serve)
        try:
            child.send((module, name, fixtures, spends))
            if not child.connection.poll(seconds):
                pytest.fail(f"not finished after {seconds:g} s: its process was killed")
            kind, text = child.connection.recv()
        except (EOFError, OSError):
            cause = cause_of(child.code())
            self.stop()
            pytest.fail(f"the process of the test ended by {cause}; its stderr is above")
        except BaseException:  # also what pytest-timeout and Ctrl-C raise
            self.stop()
            raise
        if spends or kind == "failed":
            self.stop()
        if kind == "skipped":
            pytest.skip(text)
        if kind == "failed":
            pytest.fail(text, pytrace=False)

    def stop(self) -> None:
        """Kill the process, which may hang in the driver."""
        if self._child:
            self._child.close()
            self._child = None


CHILD = Current()


def _serve(requests: Connection) -> None:
    """In the child: run requested tests until one fails."""
    while True:
        module, name, fixtures, spends = requests.recv()
        kind, text = _outcome(getattr(import_module(module), name).__wrapped__, fixtures)
        requests.send((kind, text))
        if spends or kind == "failed":
            sys.stderr.flush()
            os._exit(0)  # leaving in the usual way would call into CUDA


def _outcome(body: Callable[..., None], fixtures: dict[str, Any]) -> tuple[str, str]:
    try:
        body(**fixtures)
    except pytest.skip.Exception as skipped:
        return "skipped", str(skipped)
    except BaseException:  # pytest.fail's too
        return "failed", traceback.format_exc()
    return "passed", ""


@cache
def device() -> Any:
    """In the child: the GPU, opened once."""
    from common.devices.cuda import CudaDevice

    return CudaDevice()


@contextmanager
def opened(source: Any, weights: Any, blocks: int | None = None) -> Iterator[Any]:
    """In the child: a session, closed afterwards. Skips where the GPU is too old for the source."""

    if source.min_arch > device().arch:
        pytest.skip(f"{source.name} needs sm_{source.min_arch}")
    session = device().session(device().compile(source), weights, blocks)
    yield session
    session.close()
