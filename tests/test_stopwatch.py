"""Seconds of a row's parts, by a clock that the test moves: each without the parts inside it."""

import pytest

from common import stopwatch
from common.stopwatch import part, spent


@pytest.fixture
def work(monkeypatch):
    """work(seconds): time passes."""
    now = [100.0]
    monkeypatch.setattr(stopwatch, "clock", lambda: now[0])

    def pass_(seconds: float) -> None:
        now[0] += seconds

    return pass_


def test_a_part_is_without_the_parts_inside_it(work):
    row: dict[str, float] = {}
    with spent(row), part("validate"):
        work(1)
        with part("reference"):
            work(10)
        with part("trials"):
            work(20)
            for _ in range(2):
                with part("reference"):
                    work(100)
        work(2)
    assert row == {"validate": 3, "reference": 210, "trials": 20}
    with spent(row), part("measure"):
        work(5)
        with part("reference"):
            work(1)
    assert row == {"validate": 3, "reference": 211, "trials": 20, "measure": 5}


def test_what_fails_has_taken_its_time(work):
    row: dict[str, float] = {}

    def fail() -> None:
        with spent(row), part("compile"):
            with part("reference"):
                work(7)
            work(2)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert row == {"reference": 7, "compile": 2}
    with spent(other := {}), part("compile"):
        work(4)
    assert other == {"compile": 4}
