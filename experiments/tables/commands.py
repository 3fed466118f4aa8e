"""Location of a command's records, and the commands that go on with them."""

import os
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from common import ROOT

DEFAULT = Path("experiments") / "runs" / "records.jsonl"  # below the root: `results` of conf/config.yaml
LISTED = 3  # ids; of more, the first and the last


def closing_lines(ids: Sequence[str], results: Path) -> str:
    """Location of the records `ids`, and the next commands: lines to print after the tables."""
    return "\n".join(_closing_lines(ids, results))


def _closing_lines(ids: Sequence[str], results: Path) -> Iterator[str]:
    listed = ", ".join(ids) if len(ids) <= LISTED else f"{len(ids)} records, {ids[0]} to {ids[-1]}"
    yield f"Kept in {relative(results)}: {listed}"
    yield f"  look at one    {show_command(ids[-1], results)}"
    if len(ids) > 1:
        yield f"  compare two    {show_command(f'compare={ids[0]},{ids[-1]}', results)}"


def show_command(what: str, results: Path) -> str:
    """The command that shows `what`, such as an id or `last`, from the store `results`."""
    words = [what] if results.absolute() == ROOT / DEFAULT else [what, f"results={relative(results)}"]
    return f"python -m experiments.show {shlex.join(words)}"


def relative(path: Path) -> str:
    """`path` from the working folder, if it is below it; else absolute."""
    path = Path(os.path.abspath(path))
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)
