"""Table of rows and columns, written to a terminal, as Markdown or as HTML."""

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby
from textwrap import wrap
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from rich.console import Console

NAME, TEXT, NUMBER = "name", "text", "number"  # kinds of columns
PLAIN_WIDTH = 100  # columns if the output is no terminal
GAP = 3  # columns of a terminal between two cells
WORD = (8, 24)  # columns of a name or a text before it is broken: at least, and at most
HEAD = 13  # columns above which a head over narrow cells is broken into lines


class Cell(NamedTuple):
    """A text with a style of rich, for terminals, or with an address, for Markdown."""

    text: str
    style: str = ""
    link: str = ""


@dataclass(frozen=True)
class Column:
    """A column by its head, which names the unit; line breaks in the head are kept in a terminal.

    kind   NAME: names the row, first of all columns; TEXT: words; NUMBER: set to the right, never broken into lines
    group  columns of one group stay side by side where a table is split; without one each is alone
    """

    head: str
    kind: str = NUMBER
    group: str = ""


@dataclass(frozen=True)
class Table:
    """Rows with a value for each column (of any type, None for a missing one), and paragraphs below them."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[Any]]
    notes: Sequence[str] = ()

    @classmethod
    def of(
        cls,
        lines: Sequence[Mapping[str, Any]],
        heads: Iterable[str] | None = None,
        notes: Sequence[str] = (),
        names: int = 0,
    ) -> "Table":
        """Table of lines {head: value}; absent values are missing.

        heads: default: all heads of `lines`, in order of appearance. names: number of first columns that name the row.
        A column has kind NUMBER if all its values are numbers or missing.
        """
        heads = list(dict.fromkeys(head for line in lines for head in line) if heads is None else heads)
        numeric = {head: all(_is_number(line.get(head)) for line in lines) for head in heads}
        kinds = [NAME if at < names else NUMBER if numeric[head] else TEXT for at, head in enumerate(heads)]
        rows = [[line.get(head) for head in heads] for line in lines]
        return cls([Column(head, kind) for head, kind in zip(heads, kinds, strict=True)], rows, notes)


def cell(value: Any) -> str:
    """A value in tables: `-` for None, a float with four significant digits, an integer with thousands separators."""
    if isinstance(value, Cell):
        return value.text
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "-"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def markdown(table: Table) -> str:
    """A pipe table, then its notes as paragraphs."""

    def line(texts: Iterable[str]) -> str:
        return "| " + " | ".join(text.replace("|", "\\|").replace("\n", " ") for text in texts) + " |"

    def linked(value: Any) -> str:
        return f"[{value.text}]({value.link})" if isinstance(value, Cell) and value.link else cell(value)

    rule = "|" + "|".join("---:" if column.kind == NUMBER else "---" for column in table.columns) + "|"
    lines = [line(column.head for column in table.columns), rule, *(line(map(linked, row)) for row in table.rows)]
    return "\n\n".join(["\n".join(lines), *table.notes])


def html(table: Table) -> str:
    """A table (none without rows), then its notes as paragraphs; all texts are escaped."""

    def line(tag: str, texts: Iterable[str]) -> str:
        return "<tr>" + "".join(f"<{tag}>{escape(text)}</{tag}>" for text in texts) + "</tr>\n"

    head = line("th", (column.head.replace("\n", " ") for column in table.columns))
    rows = "".join(line("td", map(cell, row)) for row in table.rows)
    return (rows and f"<table>{head}{rows}</table>") + "".join(f"<p>{escape(note)}</p>" for note in table.notes)


def terminal(table: Table, console: "Console | None" = None, heading: str = "") -> None:
    """Print the heading, the table (none without rows) and its notes.

    Columns that do not fit side by side go to further parts, each of which begins with the columns of kind NAME. Names
    and texts may be broken into lines; numbers are neither broken nor cut off.
    """
    from rich.table import Table as Grid
    from rich.text import Text

    console = console or _console()
    if heading:
        console.print(Text(heading, style="bold"), soft_wrap=True)
    width = console.width
    heads, widths = _laid_out(table, width) if table.rows else ([], [])
    for part in _parts(table.columns, widths, width) if table.rows else ():
        least = (widths[at] if table.columns[at].kind != TEXT else min(widths[at], WORD[0]) for at in part)
        console.width = max(width, sum(least) + GAP * (len(part) - 1))  # else rich cuts a cell off
        grid = Grid(header_style="bold", show_edge=False, pad_edge=False)
        for at in part:
            kind = table.columns[at].kind
            grid.add_column(
                Text(heads[at]),
                justify="right" if kind == NUMBER else "left",
                no_wrap=kind == NUMBER,
                width=None if kind == TEXT else widths[at],
                overflow="fold",
            )
        for row in table.rows:
            grid.add_row(*(Text(cell(row[at]), row[at].style if isinstance(row[at], Cell) else "") for at in part))
        console.print(grid)
        console.print()
    console.width = width
    for note in table.notes:
        console.print(Text(note), soft_wrap=True)


class Shown:
    """A result with `columns`; a dataclass that inherits from it needs `repr=False`."""

    def columns(self) -> Mapping[str, Any]:
        """Figures by name and unit; None for a missing one."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}: {cell(value)}' for name, value in self.columns().items())})"

    def _repr_html_(self) -> str:
        return html(Table.of([self.columns()]))


def aligned(rows: Sequence[Sequence[str]], indent: str = "") -> str:
    """Texts in columns without heads: a line for each row, of any width."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(indent + "  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


def _is_number(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _console() -> "Console":
    from rich.console import Console

    class Piped(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError  # for the command line; rich would end the process with 1

    plain = Piped()
    return plain if plain.is_terminal or "COLUMNS" in os.environ else Piped(width=PLAIN_WIDTH)


def _laid_out(table: Table, width: int) -> tuple[list[str], list[int]]:
    """Head of each column, broken into lines, and its least width: numbers are not broken, names and texts may be."""
    cells = [[cell(row[at]) for row in table.rows] for at in range(len(table.columns))]
    needed = [max(len(line) for text in column for line in text.split("\n")) for column in cells]
    widest = max((wide for column, wide in zip(table.columns, needed, strict=True) if column.kind == NUMBER), default=0)
    names = max(1, sum(column.kind == NAME for column in table.columns))
    least, most = WORD
    room = max(least, min(most, (width - widest) // names - GAP))
    heads, widths = [], []
    for column, wide in zip(table.columns, needed, strict=True):
        wide = wide if column.kind == NUMBER else min(wide, room)
        lines = [part for line in column.head.split("\n") for part in wrap(line, max(wide, HEAD)) or [""]]
        heads.append("\n".join(lines))
        widths.append(max(wide, *map(len, lines)))
    return heads, widths


def _parts(columns: Sequence[Column], widths: Sequence[int], width: int) -> list[list[int]]:
    """The columns in the fewest parts that fit `width`, by their places."""

    def needs(places: Sequence[int]) -> int:
        return sum(widths[at] + GAP for at in places)

    names = [at for at, column in enumerate(columns) if column.kind == NAME]
    others = [at for at, column in enumerate(columns) if column.kind != NAME]
    room, parts = width + GAP - needs(names), list[list[int]]()
    for _, members in groupby(others, key=lambda at: columns[at].group or columns[at].head):
        group = list(members)
        for piece in [group] if needs(group) <= room else [[at] for at in group]:
            if parts and needs(parts[-1]) + needs(piece) <= room:
                parts[-1] += piece
            else:
                parts.append(piece)
    return [[*names, *part] for part in parts] or [names]
