"""Result that shows itself: one line in a terminal, a small table in a notebook."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any


class Shown:
    """A result with `columns`; a dataclass that inherits from it says `repr=False`."""

    def columns(self) -> Mapping[str, Any]:
        """Figures by name and unit; None for a missing one."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}: {cell(value)}' for name, value in self.columns().items())})"

    def _repr_html_(self) -> str:
        columns = self.columns()
        return html_table(list(columns), [list(map(cell, columns.values()))])


def html_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """An HTML table of texts, which are escaped."""

    def line(tag: str, texts: Sequence[str]) -> str:
        return "<tr>" + "".join(f"<{tag}>{escape(text)}</{tag}>" for text in texts) + "</tr>"

    return f"<table>{line('th', heads)}{''.join(line('td', row) for row in rows)}</table>"


def cell(value: Any) -> str:
    """A value as tables show it: `-` for a missing one, four significant digits of a float, thousands of an integer."""
    if value is None:
        return "-"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
