"""Tests in a child process: one that dies, hangs or fails costs itself, and no other."""

import ctypes
import os
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent / "cuda"))
from in_child import CHILD, in_child

from common.errors import Hung

FAILED = pytest.fail.Exception


@in_child()
def passes(at: int = 0) -> None:
    assert at < 5
    assert CHILD.pid is None  # this is the child, which has none


@in_child()
def fails() -> None:
    raise Hung("a grid barrier timed out", "see the report", "block 3")


@in_child()
def dies() -> None:
    os._exit(7)


@in_child(seconds=3)
def hangs() -> None:
    ctypes.PyDLL(None).sleep(1000)  # it holds Python's lock: no signal handler and no other thread runs


@in_child(spends=True)
def spends() -> None:
    pass


@in_child()
def skips() -> None:
    pytest.skip("too old a GPU")


@pytest.fixture(autouse=True)
def fresh():
    CHILD.stop()
    yield
    CHILD.stop()


def test_tests_that_pass_share_a_process():
    passes()
    first = CHILD.pid
    passes(at=4)
    assert CHILD.pid == first != os.getpid()


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (fails, "Hung: a grid barrier timed out"),
        (dies, "ended by exit code 7"),
        (hangs, "not finished after 3 s: its process was killed"),
    ],
    ids=["fails", "dies", "hangs"],
)
@pytest.mark.timeout(300)
def test_a_test_that_does_not_pass_costs_only_itself(body, message):
    passes()
    first = CHILD.pid
    with pytest.raises(FAILED, match=message):
        body()
    passes()
    assert CHILD.pid != first
    with pytest.raises(ProcessLookupError):
        os.kill(first, 0)


def test_a_process_that_is_spent_is_not_used_again():
    spends()
    assert CHILD.pid is None


def test_a_skip_is_a_skip():
    passes()
    first = CHILD.pid
    with pytest.raises(pytest.skip.Exception, match="too old a GPU"):
        skips()
    assert CHILD.pid == first


def test_fixtures_arrive_and_a_failed_assertion_shows_its_line():
    with pytest.raises(FAILED, match="assert at < 5"):
        passes(at=9)
