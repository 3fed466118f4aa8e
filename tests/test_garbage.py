"""Searches for garbage: seldom in a command of the lab, as before in a program that imports it."""

import atexit
import gc
import sys

import pytest

from common.garbage import BETWEEN, search_seldom


@pytest.fixture
def ends(monkeypatch) -> list:
    """Functions that the test registers for the end of this process. Thresholds are restored."""
    before, registered = gc.get_threshold(), []
    monkeypatch.setattr(atexit, "register", registered.append)
    yield registered
    gc.set_threshold(*before)


def test_a_command_searches_seldom_and_not_at_its_end(ends, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["-m", "model=tiny"])
    gc.set_threshold(700, 10, 10)
    search_seldom()
    assert gc.isenabled()
    assert gc.get_threshold() == (BETWEEN, 10, 10)
    assert ends == [gc.freeze]


@pytest.mark.parametrize("argv", [[], ["a.py"], ["-c"], ["a.py", "-m"]])
def test_a_program_that_imports_the_lab_searches_as_before(ends, monkeypatch, argv):
    monkeypatch.setattr(sys, "argv", argv)
    gc.set_threshold(600, 5, 5)
    search_seldom()
    assert gc.get_threshold() == (600, 5, 5)
    assert not ends
