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


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("chunks", "names chunks; known: chunk, hidden"),
        ("16.0", "whole numbers"),
        ("a b", "whole numbers"),
        ("", "whole numbers"),
        ("__import__('os').getpid()", "whole numbers"),
        ("True", "whole numbers"),
        ("hidden ** 9", "whole numbers"),
        ("1 // 0", "divides by 0"),
    ],
)
def test_what_is_refused(expression, said):
    with pytest.raises(LabError, match=r"^here") as error:
        check(expression, ["chunk", "hidden"], "here")
    assert said in str(error.value)
