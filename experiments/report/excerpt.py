"""Lines of a source file, found by their text: what a document shows of the code is always the code of today."""

import re
from pathlib import Path
from textwrap import dedent

from common.errors import LabError
from experiments.report.evidence import Evidence
from experiments.report.table import Text

LANGUAGE = {".cu": ("cpp", "//"), ".cuh": ("cpp", "//"), ".yaml": ("yaml", "#"), ".py": ("python", "#")}
MOST = 12  # lines of an excerpt


def excerpt(where: str, evidence: Evidence) -> Text:
    """`FILE:REGEX+LINES|...`: of each file so many lines from the first that the expression is found in, one fence.

    A file's path starts at the repository root. Raises LabError for a file or an expression that is not there.
    """
    parts = where.split("|")
    shown = "\n\n".join(_lines(part, evidence.catalog.root) for part in parts)
    return Text(f"```{LANGUAGE[Path(parts[0].partition(':')[0]).suffix][0]}\n{shown}\n```")


def _lines(where: str, root: Path) -> str:
    """The file's name as a comment, then the lines."""
    found = re.fullmatch(r"([^:]+):(.+)\+(\d+)", where)
    if not found or not 1 <= int(found[3]) <= MOST:
        raise LabError(f"code:{where} names no lines", f"write code:FILE:REGEX+LINES, 1 to {MOST} lines")
    path = root / found[1]
    if not path.is_file() or path.suffix not in LANGUAGE:
        raise LabError(f"code:{where}: no source {found[1]}", "name a file below the repository root")
    lines = path.read_text().splitlines()
    first = next((at for at, line in enumerate(lines) if re.search(found[2], line)), None)
    if first is None:
        raise LabError(f"code:{where}: no line of {found[1]} has {found[2]}", "name a text that the file has")
    mark = LANGUAGE[path.suffix][1]
    shown = dedent("\n".join(lines[first : first + int(found[3])]))
    if all(line.lstrip().startswith(mark) for line in shown.splitlines()):
        raise LabError(f"code:{where}: {found[2]} finds a comment", "write an expression that only the code has")
    return f"{mark} {found[1]}\n{shown}"
