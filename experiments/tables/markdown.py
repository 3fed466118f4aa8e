"""Tables as Markdown."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from common.display.shown import cell
from experiments.tables.result_table import table_rows

if TYPE_CHECKING:
    from pandas import DataFrame


def table(columns: Sequence[str], lines: Sequence[Mapping[str, Any]]) -> str:
    """A pipe table; columns whose values are all numbers or missing are set to the right."""
    numeric = {name: all(_number(line.get(name)) for line in lines) for name in columns}
    head = "| " + " | ".join(_escape(name) for name in columns) + " |"
    rule = "|" + "|".join("---:" if numeric[name] else "---" for name in columns) + "|"
    body = ["| " + " | ".join(_escape(cell(line.get(name))) for name in columns) + " |" for line in lines]
    return "\n".join([head, rule, *body])


def of_frame(frame: "DataFrame") -> str:
    return table([str(name) for name in frame.columns], table_rows(frame))


def _number(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _escape(text: str) -> str:
    return str(text).replace("|", "\\|").replace("\n", " ")
