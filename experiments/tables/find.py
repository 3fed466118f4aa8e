"""Records by their id, in the store of a run and in the committed evidence."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from common import ROOT
from common.errors import LabError
from common.record.provenance import EVIDENCE
from common.record.store import Store

Record = Mapping[str, Any]
LAST = "last"
LISTED = 5  # ids that an error names


def newest(results: Path) -> Sequence[Record]:
    """All records of the store `results`, the newest first. Raises LabError when there is none."""
    if rows := Store(results).records():
        return rows[::-1]
    raise LabError(f"{results} has no records", "run something, or give another file: results=FILE")


def find(name: str, results: Path) -> Record:
    """The record with the id `name`, or with this unique prefix of one; `last` is the newest one of `results`.

    The committed evidence is searched after `results`. Raises LabError when there is none, or more than one.
    """
    if name == LAST:
        return newest(results)[0]
    for path in (results, *sorted((ROOT / EVIDENCE).glob("*.jsonl"))):
        matches = {row["id"]: row for row in Store(path).records() if row["id"].startswith(name)}
        if name in matches:
            return matches[name]
        if len(matches) > 1:
            some = ", ".join(list(matches)[-LISTED:])
            raise LabError(f"{len(matches)} records of {path} begin with {name}", f"give more of the id: {some}")
        if matches:
            return next(iter(matches.values()))
    raise LabError(
        f"{results} has no record with the id {name}", "python -m experiments.show lists them; or give results=FILE"
    )
