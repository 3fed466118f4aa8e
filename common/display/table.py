"""Table of rows and columns, written to a terminal, as Markdown or as HTML."""

import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass
from html import escape
from itertools import groupby
from textwrap import wrap
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from rich.console import Console

NAME, TEXT, NUMBER = "name", "text", "number"  # kinds of columns
PLAIN_WIDTH = 100  # columns if the output is no terminal
GAP = 3  # columns of a terminal between two cells
WORD = (8, 24)  # limits of a word of a name or a text, in columns: in a narrow terminal, and in any
HEAD = 13  # columns above which a head over narrow numbers is broken into lines
LONG = 40  # characters above which a page gives a text more room
BREAK = "\v"  # white space that occurs in no name


class Cell(NamedTuple):
    """A text with a style of rich, for terminals, or with an address, for Markdown and HTML."""

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
    """A table (none without rows), then its notes as paragraphs; all texts are escaped.

    The class of a cell is the kind of its column, `text long` for long ones; `data-value` has all digits of a number.
    """
    kinds = []
    for at, column in enumerate(table.columns):
        is_long = column.kind == TEXT and any(len(cell(row[at])) > LONG for row in table.rows)
        kinds.append(f"{column.kind} long" if is_long else column.kind)

    def filled(value: Any, kind: str) -> str:
        text = escape(cell(value))
        if isinstance(value, Cell) and value.link:
            text = f'<a href="{escape(value.link)}">{text}</a>'
        digits = f' data-value="{value}"' if text != "-" and _is_number(value) else ""
        return f'<td class="{kind}"{digits}>{text}</td>'

    heads = (escape(column.head.replace("\n", " ")) for column in table.columns)
    head = "".join(f'<th class="{kind}">{text}</th>' for text, kind in zip(heads, kinds, strict=True))
    rows = ("".join(map(filled, row, kinds)) for row in table.rows)
    body = "\n".join(f"<tr>{row}</tr>" for row in rows)
    written = f"<table><thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody></table>" if table.rows else ""
    return written + "".join(f"<p>{escape(note)}</p>" for note in table.notes)


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
    for part in _parts(_laid_out(table, console.width), console.width) if table.rows else ():
        grid = Grid(header_style="bold", show_edge=False, pad_edge=False)
        for column in part:
            number = column.kind == NUMBER
            justify = "right" if number else "left"
            grid.add_column(Text(column.head), justify=justify, no_wrap=number, min_width=column.width)  # type: ignore[arg-type]
        for cells in zip(*(column.cells for column in part), strict=True):
            grid.add_row(*(Text(each.text, each.style) for each in cells))
        console.print(grid)
        console.print()
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

    plain = Console()
    return plain if plain.is_terminal or "COLUMNS" in os.environ else Console(width=PLAIN_WIDTH)


class _Laid(NamedTuple):
    """A column laid out for a terminal: `width` is enough for every line of a number, and every word of a text."""

    head: str
    kind: str
    group: str
    cells: Sequence[Cell]
    width: int


def _laid_out(table: Table, width: int) -> list[_Laid]:
    """The columns; a word of a name is broken where it would leave no room for the widest number."""
    numbers = [at for at, column in enumerate(table.columns) if column.kind == NUMBER]
    widest = max((len(cell(row[at])) for row in table.rows for at in numbers), default=0)
    names = max(1, sum(column.kind == NAME for column in table.columns))
    least, most = WORD
    room = max(least, min(most, (width - widest) // names - GAP))
    laid = []
    for at, (head, kind, group) in enumerate(map(astuple, table.columns)):
        cells = [row[at] if isinstance(row[at], Cell) else Cell(cell(row[at])) for row in table.rows]
        if kind == NUMBER:
            wide = max(len(each.text) for each in cells)
            heads = [part for line in head.split("\n") for part in _wrapped(line, max(wide, HEAD))]
            needed = max(wide, *map(len, heads))
            head = "\n".join(heads)
        else:
            cells = [each._replace(text=_broken(each.text, room)) for each in cells]
            lines = [line for text in (head, *(each.text for each in cells)) for line in text.split("\n")]
            needed = max(min(room, max(map(len, lines))), *(len(word) for line in lines for word in line.split()))
        laid.append(_Laid(head, kind, group or head, cells, needed))
    return laid


def _parts(columns: Sequence[_Laid], width: int) -> list[list[_Laid]]:
    """The columns in the fewest parts that fit `width`."""

    def needs(some: Sequence[_Laid]) -> int:
        return sum(column.width + GAP for column in some)

    names = [column for column in columns if column.kind == NAME]
    others = [column for column in columns if column.kind != NAME]
    room, parts = width + GAP - needs(names), list[list[_Laid]]()
    for _, members in groupby(others, key=lambda column: column.group):
        group = list(members)
        for piece in [group] if needs(group) <= room else [[column] for column in group]:
            if parts and needs(parts[-1]) + needs(piece) <= room:
                parts[-1] += piece
            else:
                parts.append(piece)
    return [[*names, *part] for part in parts] or [names]


def _wrapped(text: str, width: int) -> list[str]:
    return wrap(text, width, break_long_words=False, break_on_hyphens=False) or [""]


def _broken(text: str, width: int) -> str:
    """`text` with line breaks in each word of more than `width` columns, after a `+` if possible."""

    def lines(word: str) -> str:
        parts = wrap(re.sub(r"\+(?=\S)", f"+{BREAK}", word), width, break_on_hyphens=False, replace_whitespace=False)
        return "\n".join(part.replace(BREAK, "") for part in parts)

    return " ".join(map(lines, text.split(" ")))
