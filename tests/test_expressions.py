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
    ],
)
def test_expressions(expression, value):
    assert evaluate(expression, {"a": 2, "b": 3}) == value


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
        "1 if hidden else 0",
    ],
)
def test_what_is_refused(expression):
    with pytest.raises(LabError, match=r"^here: no value of .*; write whole numbers, .* and the names chunk, hidden$"):
        check(expression, ["chunk", "hidden"], "here")
