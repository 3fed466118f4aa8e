"""Expressions in a variant's yaml: whole numbers over names, and nothing else."""

from pathlib import Path

import pytest

from common.compile.target import settled
from common.errors import LabError
from common.model.expressions import check, evaluate
from common.stacks.knobs import AUTO, Knob
from common.stacks.variant import Variant


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


@pytest.mark.parametrize("index", ["arch", "0 - 1"])
def test_an_index_of_no_choice_is_refused(tiny, index):
    knob = Knob("way", "choice", AUTO, "", choices=("a", "b"), auto=index)
    with pytest.raises(LabError, match=rf"knob way: auto: {index}: (90|-1) is no index in its choices"):
        settled(Variant("mine", Path(), "", knobs=(knob,)), {"way": AUTO}, tiny, 90, 1)
