"""Result that shows itself: one line in a terminal, a small table in a notebook."""

from collections.abc import Mapping
from typing import Any

from common.display.table import Table, cell, html


class Shown:
    """A result with `columns`; a dataclass that inherits from it says `repr=False`."""

    def columns(self) -> Mapping[str, Any]:
        """Figures by name and unit; None for a missing one."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}: {cell(value)}' for name, value in self.columns().items())})"

    def _repr_html_(self) -> str:
        return html(Table.of([self.columns()]))
