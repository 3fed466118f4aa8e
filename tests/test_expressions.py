"""Expressions in a variant's yaml: whole numbers over names, and nothing else."""

import pytest

from common.errors import LabError
from common.model.expressions import check, evaluate


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("7", 7),
        ("a + 2 * b", 8),
        ("(a + 2) * b", 12),
        ("b - a * b // 4", 2),
        ("a if b - 3 else b", 3),
        ("a if b else 0", 2),
    ],
)
def test_expressions(expression, value):
    assert evaluate(expression, {"a": 2, "b": 3}) == value


def test_a_division_that_the_test_rules_out_is_none():
    expression = "7 // (hidden - 1) if hidden - 1 else 0"
    check(expression, ["hidden"], "here")
    assert [evaluate(expression, {"hidden": hidden}) for hidden in (1, 3)] == [0, 3]


@pytest.mark.parametrize(
    "expression",
    [
        "chunks",
        "16.0",
        "a b",
        "",
        "__import__('os').getpid()",
        "True",
        "hidden ** 9",
        "1 // 0",
        "1 if chunk else chunks",
        "chunks if 0 else 1",
        "1 if 1 else (2 if 1 else 1.5)",
    ],
)
def test_what_is_refused(expression):
    with pytest.raises(LabError, match=r"^here: no value of .*; write whole numbers, .* and the names chunk, hidden$"):
        check(expression, ["chunk", "hidden"], "here")
