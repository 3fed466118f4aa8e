"""What an experiment found: one question, one table, and what it could not answer here; shown, and kept as a record."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from common.provenance import provenance
from common.records import Store

if TYPE_CHECKING:
    from pandas import DataFrame, Series
    from rich.console import Console
    from rich.table import Table

PLAIN_WIDTH = 100  # columns where the output is no terminal
WRAP = 24  # columns from which a cell of several words is broken into lines
MEASURED, COUNTED, PREDICTED = "measured", "counted", "predicted"


@dataclass(frozen=True)
class Outcome:
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


def keep(outcome: Outcome, store: Store, about: Mapping[str, Any]) -> str:
    """Append `outcome` as one record and return its id.

    Fields: kind (the experiment's name), question, basis, columns (their order), table (a list of {column: value}, None
    where a figure is missing), notes, needs_gpu, keys, provenance, and `about`: model, weights, device, seed and so on.
    """
    return store.append(
        {
            **about,
            "kind": outcome.name,
            "question": outcome.question,
            "basis": outcome.basis,
            "columns": [str(column) for column in outcome.table.columns],
            "table": rows(outcome.table),
            "notes": list(outcome.notes),
            "needs_gpu": outcome.needs_gpu,
            "keys": outcome.keys,
            "provenance": provenance(),
        }
    )


def rows(table: "DataFrame") -> list[dict[str, Any]]:
    """The table as a list of {column: value}, with None for a missing figure and Python's own numbers."""
    return [{str(name): _plain(value) for name, value in row.items()} for row in table.to_dict("records")]


def tell(outcome: Outcome, as_json: bool) -> None:
    """Print the rows of the table as JSON lines, or all of it for people."""
    if as_json:
        for row in rows(outcome.table):
            print(json.dumps(row))
    else:
        show(outcome)


def show(outcome: Outcome, console: "Console | None" = None) -> None:
    """Print the question, the table, how to read it, and what needs a GPU."""
    from rich.text import Text

    console = console or _console()
    console.print(Text(f"{outcome.name}: {outcome.question} ({outcome.basis})", style="bold"), soft_wrap=True)
    for table in _tables(outcome, console.width):
        console.print(table)
        console.print()
    for note in outcome.notes:
        console.print(Text(note), soft_wrap=True)
    if outcome.needs_gpu:
        console.print(Text(f"Needs a GPU: {outcome.needs_gpu}", style="italic"), soft_wrap=True)


def _tables(outcome: Outcome, width: int) -> "Iterator[Table]":
    """As few tables as `width` allows; each begins with the columns that name the row."""
    from rich.table import Table

    shown = {str(name): [cell(_plain(value)) for value in values] for name, values in outcome.table.items()}
    widths = {name: _width(name, values) + 3 for name, values in shown.items()}
    names = list(shown)
    keys, rest = names[: outcome.keys], names[outcome.keys :]
    while rest:
        room, chosen = width - sum(widths[name] for name in keys), 0
        while chosen < len(rest) and (not chosen or widths[rest[chosen]] <= room):
            room, chosen = room - widths[rest[chosen]], chosen + 1
        part, rest = keys + rest[:chosen], rest[chosen:]
        table = Table(header_style="bold", show_edge=False, pad_edge=False)
        for name in part:
            table.add_column(name, justify="left" if _wordy(outcome.table[name]) else "right")
        for row in zip(*(shown[name] for name in part), strict=True):
            table.add_row(*row)
        yield table


def _width(name: str, values: Sequence[str]) -> int:
    """Columns of the terminal that a column of the table needs; names and texts may be broken between words."""
    words = [word for text in (name, *values) for word in text.split()]
    longest = max((len(text) for text in (name, *values)), default=0)
    return max([min(longest, WRAP), *map(len, words)])


def _wordy(values: "Series") -> bool:
    return values.map(lambda value: isinstance(value, str)).any()


def cell(value: Any) -> str:
    """A value as tables show it: `-` for a missing one, four significant digits of a float, thousands of an integer."""
    if value is None:
        return "-"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _plain(value: Any) -> Any:
    value = value.item() if hasattr(value, "item") else value
    return None if isinstance(value, float) and math.isnan(value) else value


def _console() -> "Console":
    import os

    from rich.console import Console

    plain = Console()
    return plain if plain.is_terminal or "COLUMNS" in os.environ else Console(width=PLAIN_WIDTH)
