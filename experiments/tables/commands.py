"""Location of a command's records, and the command that shows them."""

import os
import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from common import ROOT
from common.config.texts import quoted

DEFAULT = Path("experiments") / "runs" / "records.jsonl"  # below the root: `results` of conf/config.yaml
LISTED = 3  # ids; of more, the first and the last


def closing_lines(ids: Sequence[str], results: Path) -> str:
    """Location of the records `ids`, and the command that shows one: lines to print after the tables."""
    listed = ", ".join(ids) if len(ids) <= LISTED else f"{len(ids)} records, {ids[0]} to {ids[-1]}"
    return f"Kept in {relative(results)}: {listed}\n  look at one    {show_command(ids[-1], results)}"


def show_command(what: str, results: Path) -> str:
    """The command that shows `what`, such as an id or `last`, from the store `results`."""
    path = relative(results)
    plain = re.fullmatch(r"[\w./ ~-]+", path, re.ASCII)  # as Hydra takes it
    words = [what] if results.absolute() == ROOT / DEFAULT else [what, f"results={path if plain else quoted(path)}"]
    return f"python -m experiments.show {shlex.join(words)}"


def relative(path: Path) -> str:
    """`path` from the working folder, if it is below it; else absolute."""
    path = Path(os.path.abspath(path))
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)
