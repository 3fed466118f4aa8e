"""Result of an experiment: one question, one table, and what it could not answer here; shown, and recorded."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from common.display.shown import cell
from common.record.provenance import provenance
from common.record.store import Store
from experiments.tables.name import in_lines

if TYPE_CHECKING:
    from pandas import DataFrame, Series
    from rich.console import Console
    from rich.table import Table

PLAIN_WIDTH = 100  # columns where the output is no terminal
LEAST = 8  # columns of a name
WRAP = 24  # columns from which a cell of several words is broken into lines
MEASURED, COUNTED, PREDICTED = "measured", "counted", "predicted"


@dataclass(frozen=True)
class ResultTable:
    """The answer of one experiment.

    name       of the experiment; the `kind` of its record
    question   what it asks, in one line
    table      a row for each thing compared; columns name their units; a missing figure is NaN or None
    basis      "measured" on a GPU, "counted" exactly on any machine, or "predicted" from counts: what the figures are
    notes      how to read the table, a paragraph each
    needs_gpu  what a GPU would add; None when nothing is missing
    keys       how many of the first columns name the row
    """

    name: str
    question: str
    table: "DataFrame"
    basis: str
    notes: Sequence[str] = field(default_factory=tuple)
    needs_gpu: str | None = None
    keys: int = 1


def record_result(result: ResultTable, store: Store, about: Mapping[str, Any]) -> str:
    """Append `result` as one record and return its id.

    Fields: kind (the experiment's name), question, basis, columns (their order), table (a list of {column: value}, None
    where a figure is missing), notes, needs_gpu, keys, provenance, and `about`: model, weights, device, seed and so on.
    """
    return store.append(
        {
            **about,
            "kind": result.name,
            "question": result.question,
            "basis": result.basis,
            "columns": [str(column) for column in result.table.columns],
            "table": table_rows(result.table),
            "notes": list(result.notes),
            "needs_gpu": result.needs_gpu,
            "keys": result.keys,
            "provenance": provenance(),
        }
    )


def table_rows(table: "DataFrame") -> list[dict[str, Any]]:
    """The table as a list of {column: value}, with None for a missing figure and Python's own numbers."""
    return [{str(name): _plain(value) for name, value in row.items()} for row in table.to_dict("records")]


def print_result(result: ResultTable, as_json: bool) -> None:
    """Print the rows of the table as JSON lines, or all of it for people."""
    if as_json:
        for row in table_rows(result.table):
            print(json.dumps(row))
    else:
        show_result(result)


def show_result(result: ResultTable, console: "Console | None" = None) -> None:
    """Print the question, the table, how to read it, and what needs a GPU."""
    from rich.text import Text

    console = console or _console()
    console.print(Text(f"{result.name}: {result.question} ({result.basis})", style="bold"), soft_wrap=True)
    for table in _tables(result, console.width):
        console.print(table)
        console.print()
    for note in result.notes:
        console.print(Text(note), soft_wrap=True)
    if result.needs_gpu:
        console.print(Text(f"Needs a GPU: {result.needs_gpu}", style="italic"), soft_wrap=True)


def _tables(result: ResultTable, width: int) -> "Iterator[Table]":
    """As few tables as `width` allows; each begins with the columns that name the row."""
    from rich.table import Table
    from rich.text import Text

    shown = {str(name): [cell(_plain(value)) for value in values] for name, values in result.table.items()}
    names, wordy = list(shown), [str(name) for name in result.table if _wordy(result.table[name])]
    figures = max((_width(name, shown[name]) + 3 for name in names if name not in wordy), default=0)
    room = max(LEAST, (width - figures) // max(1, result.keys) - 3)
    for name in wordy:  # a word that leaves no room for a figure, such as a stack of many variants
        shown[name] = [" ".join(in_lines(word, room) for word in text.split(" ")) for text in shown[name]]
    widths = {name: _width(name, values) + 3 for name, values in shown.items()}
    keys, rest = names[: result.keys], names[result.keys :]
    while rest:
        room, chosen = width - sum(widths[name] for name in keys), 0
        while chosen < len(rest) and (not chosen or widths[rest[chosen]] <= room):
            room, chosen = room - widths[rest[chosen]], chosen + 1
        part, rest = keys + rest[:chosen], rest[chosen:]
        table = Table(header_style="bold", show_edge=False, pad_edge=False)
        for name in part:
            table.add_column(name, justify="left" if name in wordy else "right")
        for row in zip(*(shown[name] for name in part), strict=True):
            table.add_row(*map(Text, row))
        yield table


def _width(name: str, values: Sequence[str]) -> int:
    """Columns of the terminal that a column of the table needs; names and texts may be broken between words."""
    words = [word for text in (name, *values) for word in text.split()]
    longest = max((len(text) for text in (name, *values)), default=0)
    return max([min(longest, WRAP), *map(len, words)])


def _wordy(values: "Series") -> bool:
    return values.map(lambda value: isinstance(value, str)).any()


def _plain(value: Any) -> Any:
    value = value.item() if hasattr(value, "item") else value
    return None if isinstance(value, float) and math.isnan(value) else value


def _console() -> "Console":
    import os

    from rich.console import Console

    plain = Console()
    return plain if plain.is_terminal or "COLUMNS" in os.environ else Console(width=PLAIN_WIDTH)
