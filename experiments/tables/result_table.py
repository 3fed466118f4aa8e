"""Result of an experiment: one question, one table, and the part that needs a GPU; shown, and recorded."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from common.display.table import Table, terminal
from common.json_values import to_json
from common.record.provenance import provenance
from common.record.store import Store

if TYPE_CHECKING:
    from rich.console import Console

MEASURED, COUNTED, ESTIMATED = "measured", "counted", "estimated"


@dataclass(frozen=True)
class ResultTable:
    """The answer of one experiment."""

    name: str  # the experiment's; `kind` of its record
    question: str  # in one line
    rows: Sequence[Mapping[str, Any]]  # {column with its unit: value}; a missing figure is absent, None or NaN
    basis: str  # MEASURED on a GPU, COUNTED exactly on any machine, or ESTIMATED by hand from counts and costs
    notes: Sequence[str] = ()  # how to read the table, a paragraph each
    needs_gpu: str | None = None  # what a GPU would add; None when nothing is missing
    keys: int = 1  # first columns that name the row

    @property
    def lines(self) -> list[dict[str, Any]]:
        """The rows with all columns and Python's own numbers; None for a missing figure."""
        columns = dict.fromkeys(name for row in self.rows for name in row)
        return [{name: _plain(row.get(name)) for name in columns} for row in self.rows]


def record_result(result: ResultTable, store: Store, about: Mapping[str, Any], bus_id: str | None = None) -> str:
    """Append `result` as one record, with the fields `about` (model, device); returns its id. bus_id: of the GPU."""
    lines = result.lines
    return store.append(
        {
            **about,
            "kind": result.name,
            "question": result.question,
            "basis": result.basis,
            "columns": list(lines[0]) if lines else [],
            "table": lines,
            "notes": list(result.notes),
            "needs_gpu": result.needs_gpu,
            "keys": result.keys,
            "provenance": provenance(bus_id),
        }
    )


def recorded_result(row: Mapping[str, Any]) -> ResultTable:
    """The result that `record_result` made `row` of."""
    rows = [{name: line[name] for name in row["columns"]} for line in row["table"]]
    return ResultTable(
        row["kind"], row["question"], rows, row["basis"], row["notes"], row["needs_gpu"], row.get("keys", 1)
    )


def print_result(result: ResultTable, as_json: bool) -> None:
    """Print the rows as JSON lines, or all of it for people."""
    if as_json:
        for line in result.lines:
            print(json.dumps(to_json(line)))
    else:
        show_result(result)


def show_result(result: ResultTable, console: "Console | None" = None) -> None:
    """Print the question, the table, its notes, and the part that needs a GPU."""
    missing = [f"Needs a GPU: {result.needs_gpu}"] if result.needs_gpu else []
    table = Table.of(result.lines, notes=[*result.notes, *missing], names=result.keys)
    terminal(table, console, f"{result.name}: {result.question} ({result.basis})")


def _plain(value: Any) -> Any:
    """Python's own number for one of numpy; None for NaN."""
    value = value.item() if hasattr(value, "item") else value
    return None if value != value else value
