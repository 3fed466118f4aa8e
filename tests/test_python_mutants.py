"""Operators over the Python that judges kernels: hand-worked changes, and that all of them are Python."""

import pytest

from common import ROOT
from tests.strength.python import JUDGES, Mutant, failure, main, mutants, mutants_of

TEXT = """from min import x
def f(a: tuple[int, int], b=2):
    # 1 < 2
    if not a:
        raise ValueError(f"{b + 1}")
    yield from g(a, 3 < b)
    return {1.5, "x"} if a and b == 0 else (min(a, b), True)
"""


def test_changes_by_hand():
    changed = {(one.line, one.kind, " ".join(f"{one.old} -> {one.new}".split())) for one in mutants_of("a.py", TEXT)}
    assert changed == {
        (4, "not dropped", "not ->"),
        (5, "left out", 'raise ValueError(f"{b + 1}") -> pass'),
        (6, "left out", "yield from g(a, 3 < b) -> pass"),
        (6, "operator", "< -> <="),
        (6, "constant", "3 -> (2 * 3 or 1)"),
        (7, "constant", "1.5 -> (2 * 1.5 or 1)"),
        (7, "negated", "if -> if not"),
        (7, "operator", "and -> or"),
        (7, "operator", "== -> !="),
        (7, "constant", "0 -> (2 * 0 or 1)"),
        (7, "name", "min -> max"),
        (7, "name", "True -> False"),
        (7, "first left out", "{1.5, -> {"),
    }


@pytest.fixture(scope="module")
def every() -> list[Mutant]:
    """All mutants: they take seconds to make."""
    return mutants()


def test_every_change_has_tests(every):
    assert {mutant.file for mutant in every} == set(JUDGES)
    assert all(mutant.old != mutant.new for mutant in every)
    for names in JUDGES.values():
        assert all((ROOT / "tests" / f"{name}.py").exists() for name in names)


def test_a_change_is_judged_by_its_tests(tmp_path):
    nearest = next(mutant for mutant in mutants(["common/validate/rounding.py"]) if mutant.new == "minimum")
    assert failure(nearest, tmp_path).startswith("FAILED tests/test_rounding.py::")


def test_the_command_takes_nine_of_ten_for_enough(every, monkeypatch, capsys):
    monkeypatch.setattr("tests.strength.python.mutants", lambda: every)
    found = iter([""] + 9 * ["FAILED"] + 2 * [""] + 8 * ["FAILED"])
    monkeypatch.setattr("tests.strength.python.failure", lambda *_: next(found))
    assert [main(["sample=10", "processes=1"]) for _ in range(2)] == [0, 1]
    assert "8 of 10 are found" in capsys.readouterr().out
    assert main(["only=chek.py"]) == 2, "none of none is no success"
    assert capsys.readouterr().err == "error: no mutant has 'chek.py' in its title; leave out only=\n"
