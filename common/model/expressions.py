"""Whole-number expressions of a variant's yaml over names, such as a model's sizes: `2 * (layers + 1)`.

An expression has whole numbers, names, and + - * //.
"""

import ast
import operator
from collections.abc import Collection, Mapping
from dataclasses import fields

from common.errors import LabError
from common.model.shapes import Model

Scratch = Mapping[str, tuple[str, ...]]  # shapes of regions of scratch by name, as expressions
SHAPES = tuple(field.name for field in fields(Model) if field.type is int)
_OPERATORS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv}


def check(expression: str, names: Collection[str], place: str) -> None:
    """Raise LabError, with `place` in front, for a malformed expression, or a name that is not in `names`."""
    try:
        evaluate(expression, dict.fromkeys(names, 1))
    except (ValueError, SyntaxError, ZeroDivisionError, KeyError):
        form = f"write whole numbers, + - * //, and the names {', '.join(names)}"
        raise LabError(f"{place}: no value of {expression!r}", form) from None


def evaluate(expression: str, values: Mapping[str, int | str]) -> int:
    """The value of an expression. Raises KeyError for a name that is not in `values`, ValueError or SyntaxError."""
    return _value(ast.parse(expression, mode="eval").body, values)


def _value(node: ast.expr, values: Mapping[str, int | str]) -> int:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.Name) and isinstance(value := values[node.id], int):
        return value
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        return _OPERATORS[type(node.op)](_value(node.left, values), _value(node.right, values))
    raise ValueError(ast.unparse(node))
