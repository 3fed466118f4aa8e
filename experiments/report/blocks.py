"""Generated blocks in Markdown files: the text between `<!-- generated:NAME -->` and `<!-- /generated -->`."""

import re
from collections.abc import Callable

from common.display.table import Table, markdown
from common.errors import LabError
from experiments.report import gallery, measured
from experiments.report.evidence import Evidence

BEGIN = re.compile(r"^<!-- generated:([^\s>]+) -->$", re.MULTILINE)
END = "<!-- /generated -->"
LANGUAGES = {".cu": "cpp", ".cuh": "cpp", ".yaml": "yaml", ".py": "python"}
MOST = 25  # lines of a source that a document shows whole


def code(file: str, evidence: Evidence) -> str:
    """A short source as a fenced block; file: from the root. Raises LabError for another one."""
    path = evidence.catalog.root / file
    if not path.is_file() or path.suffix not in LANGUAGES:
        raise LabError(f"code:{file}: no source of this name", "name a file below the repository root")
    if len((text := path.read_text(encoding="utf-8")).splitlines()) > MOST:
        raise LabError(f"code:{file} has more than {MOST} lines", "link to it")
    return f"```{LANGUAGES[path.suffix]}\n{text.rstrip()}\n```"


TABLES: dict[str, Callable[[Evidence], Table]] = {
    "variants": gallery.gallery,
    "measured": measured.table,
}


def make(name: str, evidence: Evidence) -> str:
    """Markdown of the block `name`: one of TABLES, or `code:FILE`. Raises LabError for a name that is not known."""
    if name in TABLES:
        return markdown(TABLES[name](evidence))
    kind, _, file = name.partition(":")
    if kind != "code":
        raise LabError(f"no generated block {name}", f"known: {', '.join([*TABLES, 'code:FILE'])}")
    return code(file, evidence)


def fill(text: str, file: str, make: Callable[[str], str]) -> str:
    """`text` with every block made again. Raises LabError for a block without an end, or of an unknown name."""
    out, at = [], 0
    for start in BEGIN.finditer(text):
        if start.start() < at:
            raise LabError(f"{file}: block {start[1]} begins inside another", f"write {END} on a line before it")
        stop = text.find(f"\n{END}", start.end())
        if stop < 0:
            raise LabError(f"{file}: block {start[1]} has no end", f"write {END} on a line below it")
        out += [text[at : start.end()], "\n", make(start[1])]
        at = stop
    return "".join(out) + text[at:]


def differing(text: str, file: str, make: Callable[[str], str]) -> list[str]:
    """Names of the blocks that differ from the records."""
    old, new = (_bodies(each) for each in (text, fill(text, file, make)))
    return [name for (name, body), (_, made) in zip(old, new, strict=True) if body != made]


def _bodies(text: str) -> list[tuple[str, str]]:
    """(name, contents) of each block."""
    return [(found[1], text[found.end() : text.find(f"\n{END}", found.end())]) for found in BEGIN.finditer(text)]
