"""Generated blocks in Markdown files: what stands between `<!-- generated:NAME -->` and `<!-- /generated -->`."""

import re
from collections.abc import Callable

from common.errors import LabError
from experiments.report import markdown
from experiments.report.tables import Table

BEGIN = re.compile(r"^<!-- generated:([^\s>]+) -->$", re.MULTILINE)
END = "<!-- /generated -->"


def fill(text: str, file: str, make: Callable[[str], Table]) -> str:
    """`text` with every block made anew. Raises LabError for a block without an end, or of a name nobody makes."""
    out, at = [], 0
    for start in BEGIN.finditer(text):
        if start.start() < at:
            raise LabError(f"{file}: block {start[1]} begins inside another", f"write {END} on a line before it")
        stop = text.find(f"\n{END}", start.end())
        if stop < 0:
            raise LabError(f"{file}: block {start[1]} has no end", f"write {END} on a line below it")
        out += [text[at : start.end()], "\n", render(make(start[1]))]
        at = stop
    return "".join(out) + text[at:]


def names(text: str) -> list[str]:
    """The blocks of `text`, in order."""
    return [found[1] for found in BEGIN.finditer(text)]


def differing(text: str, file: str, make: Callable[[str], Table]) -> list[str]:
    """Names of the blocks that are not what the records give."""
    fresh = fill(text, file, make)
    return [name for name, old, new in zip(names(text), _bodies(text), _bodies(fresh), strict=True) if old != new]


def render(table: Table) -> str:
    """The table, then its notes as paragraphs."""
    return "\n\n".join([markdown.table(table.columns, table.lines), *table.notes]) + "\n"


def _bodies(text: str) -> list[str]:
    return [text[found.end() : text.find(f"\n{END}", found.end())] for found in BEGIN.finditer(text)]
