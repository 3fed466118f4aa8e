"""Output folder of a profile: next to the records of runs, or with keep=true in profiles/."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING

from common import ROOT
from common.config.run_config import RunConfig
from common.errors import LabError
from profiles.target import Request
from profiles.tool import FULL_NAMES

if TYPE_CHECKING:
    from pandas import DataFrame

REMEDY = "choose a writable folder: results=FOLDER/records.jsonl, without keep=true"


def make(config: RunConfig, wanted: Request) -> Path:
    """Make the folder and check that it is writable, before minutes of work. Raises LabError."""
    model = config.model.name if config.model else Path(config.weights).name
    parent = ROOT / "profiles" if wanted.keep else config.results.parent / "profiles"
    folder = parent / f"{wanted.tool}-{config.stacks[0].name}-{model}-{config.device.name}"
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        TemporaryFile(dir=folder).close()
    return folder


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Turn an OSError inside the block into a LabError."""
    try:
        yield
    except OSError as error:
        raise LabError(f"{folder} cannot be written: {error.strerror}", REMEDY) from error


def describe(config: RunConfig, wanted: Request, folder: Path, table: "DataFrame", reading: str) -> Path:
    """Write README.md of the profile: command, device, commit, table, interpretation. Returns its path."""
    from common.display.table import Table, markdown
    from common.record.provenance import provenance

    origin = provenance()
    commit = (origin["git"] or {}).get("commit") or "unknown"
    gpu = origin["gpu"] or {}
    device = gpu.get("name") or f"device {config.device.name}, {origin['cpu']}"
    source = FULL_NAMES.get(wanted.tool, "timestamps in the kernel")
    path = folder / "README.md"
    path.write_text(
        f"# {config.stacks[0].title}: {wanted.tool}\n\n"
        f"`{origin['command']}`, seed {config.seed}\n\n"
        f"By {source}, on {device}; commit {commit[:12]}{'+' if (origin['git'] or {}).get('dirty') else ''}, "
        f"{origin['time']}.\n\n{markdown(Table.of(table.to_dict('records'), table.columns))}\n"
        + ("\n![timeline](timeline.svg)\n" if wanted.tool == "timeline" else "")
        + (f"\n{reading}\n" if reading else "")
    )
    return path
