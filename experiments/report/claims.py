"""Claims: what a document's sentences rest on, as comments before them, evaluated over the records.

    <!-- claim: registers("cp_async", "sm_90") < 0.7 * registers("baseline", "sm_90") -->
    **Reading.** The registers fall by a third.

A claim is an expression of numbers, strings, + - * / ** and comparisons, `and`, `or`, `not`, and the functions of
`Facts`. It must hold, and each figure of the paragraph that follows must be a constant of its claims, so that neither
the text nor the records can change alone. Every Reading has a claim.
"""

import ast
import operator
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from common.errors import LabError
from experiments.report.evidence import Evidence, totals

PARTS = "Reading|Verdict|Worked|Did not work|Surprising|Open"
PARAGRAPH = re.compile(rf"((?:<!-- claim: .*? -->\n)*)\*\*({PARTS})\.\*\*(.*?)(?=\n\n|\n<!--|\Z)", re.DOTALL)
CLAIM = re.compile(r"<!-- claim: (.*?) -->", re.DOTALL)
# No part of a name (sm_90, bf16, `0:8`, RTX 3090), no width (128-bit), no number of an entry.
FIGURE = re.compile(r"`[^`]*`|entr(?:y|ies) \d+|\d+-bit|RTX \d+|(?<![\w.])(\d+(?:,\d{3})*(?:\.\d+)?)(?![\w-])")
OPERATORS: dict[type, Callable[..., Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.Pow: operator.pow, ast.USub: operator.neg, ast.Not: operator.not_,
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge,
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.In: lambda part, whole: part in whole,
}  # fmt: skip


@dataclass(frozen=True)
class Facts:
    """The functions of a claim. Each raises LabError where no record has the figure."""

    evidence: Evidence

    def registers(self, name: str, arch: str) -> int:
        """Of a thread, for the shape that is counted."""
        return _found(self.evidence.built(name)[0], f"resources of {name}")["resources"][arch]["registers"]

    def count(self, name: str, field: str) -> int:
        """One field of the counts of a token, or a sum of `totals`."""
        return totals(_found(self.evidence.counted(name)[0], f"counts of {name}")["counts"]).get(field, 0)

    def shape(self, field: str) -> int:
        """One field of the model that is counted, such as `layers`."""
        return _found(self.evidence.counted("baseline")[0], "counts of baseline")["model"][field]

    def cell(self, experiment: str, column: str, *keys: Any) -> Any:
        """The cell of an experiment's newest table in the only row that has all `keys` among its values.

        The name of a variant stands for it with the defaults of its knobs.
        """
        (value,) = self.cells(experiment, column, *keys) or [None]
        return _found(value, f"{experiment}: {column} of {keys}")

    def cells(self, experiment: str, column: str, *keys: Any) -> list[Any]:
        """The cells of a column, of rows that have all `keys`; without missing ones."""
        rows = _found(self.evidence.result(experiment), f"table of {experiment}")["table"]
        plain = self.evidence.plain
        return [row[column] for row in rows if {*keys} <= {*map(plain, row.values())} and row.get(column) is not None]


def _found(value: Any, what: str) -> Any:
    if value is None:
        raise LabError(f"no record has the {what}", "make one, or change the claim")
    return value


def evaluate(text: str, evidence: Evidence) -> Any:
    """The value of a claim. Raises LabError for what is no claim, and for a figure that no record has."""
    functions = {name: getattr(Facts(evidence), name) for name in vars(Facts) if not name.startswith("_")}
    functions |= {"round": round, "abs": abs, "min": min, "max": max, "sum": sum, "len": len}

    def value(node: ast.AST) -> Any:
        match node:
            case ast.Constant(value=int() | float() | str()):
                return node.value
            case ast.UnaryOp() if type(node.op) in OPERATORS:
                return OPERATORS[type(node.op)](value(node.operand))
            case ast.BinOp() if type(node.op) in OPERATORS:
                return OPERATORS[type(node.op)](value(node.left), value(node.right))
            case ast.BoolOp():
                return (all if isinstance(node.op, ast.And) else any)(value(each) for each in node.values)
            case ast.Compare() if all(type(each) in OPERATORS for each in node.ops):
                sides = [value(each) for each in (node.left, *node.comparators)]
                pairs = zip(node.ops, sides, sides[1:], strict=False)
                return all(OPERATORS[type(each)](left, right) for each, left, right in pairs)
            case ast.Call(func=ast.Name(id=name), keywords=[]) if name in functions:
                return functions[name](*map(value, node.args))
        raise LabError(f"{ast.unparse(node)} may not stand in a claim", f"known: {', '.join(functions)}")

    try:
        return value(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, KeyError, TypeError, ValueError, ZeroDivisionError) as error:
        raise LabError(f"{' '.join(text.split())}: {type(error).__name__} {error}", "change the claim") from error


def wrong(text: str, evidence: Evidence) -> Iterator[str]:
    """A line for each claim that does not hold, each Reading without one, and each figure that none of them names."""
    for claims, part, prose in PARAGRAPH.findall(text):
        start, expressions = " ".join(prose.split())[:60], CLAIM.findall(claims)
        if part == "Reading" and not expressions:
            yield f"'{start}' has no claim"
        named = {float(each) for each in re.findall(r"(?<![\w.\"])\d+(?:\.\d+)?", " ".join(expressions))}
        for figure in filter(None, FIGURE.findall(prose)):
            if float(figure.replace(",", "")) not in named:
                yield f"'{start}': no claim names {figure}"
        for expression in expressions:
            try:
                if evaluate(expression, evidence) is not True:
                    yield f"'{start}': {' '.join(expression.split())} does not hold"
            except LabError as error:
                yield f"'{start}': {error}"
