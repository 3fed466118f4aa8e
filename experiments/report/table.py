"""Contents of a generated block: a table or a text, each with the records it was made from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from common.display import table


@dataclass(frozen=True)
class Table:
    """columns in order; lines: {column: value}; notes: paragraphs below; records: ids of what it was made from.

    keys: for each line the id of the record it was made from, where there is one.
    """

    columns: Sequence[str]
    lines: Sequence[Mapping[str, Any]]
    notes: Sequence[str] = ()
    records: Sequence[str] = ()
    keys: Sequence[str | None] = field(default_factory=tuple)

    def markdown(self) -> str:
        """The table, then its notes as paragraphs."""
        return table.markdown(table.Table.of(self.lines, self.columns, self.notes))


@dataclass(frozen=True)
class Text:
    """A paragraph or a fenced excerpt, as Markdown."""

    text: str

    def markdown(self) -> str:
        return self.text
