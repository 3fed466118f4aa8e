"""Operators over the Python that judges kernels: hand-worked changes, and that all of them are Python."""

import ast

from sampled import sampled

from common import ROOT
from tests.strength.python import JUDGES, Operators, failure, mutants

TEXT = """
def f(a: tuple[int, int], b=2):
    \"\"\"Not 1.\"\"\"
    if not a:
        raise ValueError(f"{b + 1}")
    yield from g(a, 3 < b)
    return {1.5, "x"} if a and (b) == 0 else (min(a, b), True)
"""


def test_changes_by_hand():
    changed = {(mutant.kind, mutant.old, mutant.new) for mutant in Operators("a.py", TEXT).mutants()}
    assert changed == {
        ("constant", "2", "4"),
        ("not", "not a", "a"),
        ("left out", 'raise ValueError(f"{b + 1}")', "pass"),
        ("left out", "yield from g(a, 3 < b)", "pass"),
        ("compared", " < ", " <= "),
        ("constant", "3", "6"),
        ("not", "a and (b) == 0", "(not (a and (b) == 0))"),
        ("operand", "a and (b) == 0", "(a)"),
        ("operand", "a and (b) == 0", "((b) == 0)"),
        ("compared", ") == ", ") != "),
        ("constant", "0", "1"),
        ("constant", "1.5", "3.0"),
        ("smaller", '1.5, "x"', '"x",'),
        ("smaller", '1.5, "x"', "1.5,"),
        ("smaller", "min(a, b), True", "True,"),
        ("smaller", "min(a, b), True", "min(a, b),"),
        ("smaller", "min(a, b)", "(a)"),
        ("smaller", "min(a, b)", "(b)"),
        ("name", "min", "max"),
        ("constant", "True", "False"),
    }


def test_every_change_is_python_and_has_tests():
    every = mutants()
    assert {mutant.file for mutant in every} == set(JUDGES)
    assert all(mutant.old != mutant.new for mutant in every)
    for mutant in sampled(every, 100):
        ast.parse(mutant.applied())
    for names in JUDGES.values():
        assert all((ROOT / "tests" / f"{name}.py").exists() for name in names)


def test_a_change_is_judged_by_its_tests(tmp_path):
    nearest = next(mutant for mutant in mutants(["common/validate/rounding.py"]) if mutant.new == "minimum")
    assert failure(nearest, tmp_path).startswith("FAILED tests/test_rounding.py::")
