"""Sources shown in documents: the text of a document is always that of today."""

from pathlib import Path

from common.errors import LabError
from experiments.report.evidence import Evidence
from experiments.report.table import Text

LANGUAGE = {".cu": "cpp", ".cuh": "cpp", ".yaml": "yaml", ".py": "python"}
MOST = 25  # lines of a file that a document shows whole


def excerpt(file: str, evidence: Evidence) -> Text:
    """All of a short source as a fenced block. file: from the repository root. Raises LabError for another one."""
    path = evidence.catalog.root / file
    if not path.is_file() or path.suffix not in LANGUAGE:
        raise LabError(f"code:{file}: no source of this name", "name a file below the repository root")
    if len((text := path.read_text()).splitlines()) > MOST:
        raise LabError(f"code:{file} has more than {MOST} lines", "link to it")
    return Text(f"```{LANGUAGE[Path(file).suffix]}\n{text.rstrip()}\n```")
