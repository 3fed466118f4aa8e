"""List or clear the cache folder: `python -m experiments.cache --help`."""

import json
import os
import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from omegaconf import DictConfig

from common.cache.folder import KINDS, UNFINISHED, CachedFile, files
from common.config.cli import run_task
from common.config.section import Section
from common.errors import LabError
from common.errors.suggest import unknown

ALL = (*dict.fromkeys(KINDS.values()), UNFINISHED)


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; `argv` without the program's name. Returns the exit code."""
    return run_task(run, "cache", sys.argv[1:] if argv is None else argv)


def run(cfg: DictConfig) -> int:
    """List the files of the cache by kind, or remove those that `clear` names. Raises LabError for a bad value."""
    asked = Section.from_config(cfg)
    asked.only({"cache", "cache_limit_gb", "clear", "json", "debug"})
    root, limit, as_json = asked.location("cache"), asked.number("cache_limit_gb"), asked.flag("json")
    chosen = _chosen(asked)
    _check(root)
    found = files(root)
    if chosen:
        return _clear(root, [file for file in found if file.kind in chosen])
    if as_json:
        for one in _by_kind(found):
            print(json.dumps(one._asdict()))
    else:
        _show(root, limit, found)
    return 0


def _check(root: Path) -> None:
    """Raise LabError where no cache can be listed; a folder that does not exist yet is an empty cache."""
    try:
        os.scandir(root).close()
    except FileNotFoundError:
        return
    except OSError as error:
        raise LabError(f"cache={root} cannot be listed: {error.strerror}", "give cache=DIR, a folder") from error


def _chosen(asked: Section) -> Sequence[str]:
    """The kinds to clear: none, one or all."""
    if isinstance(asked.values["clear"], bool):
        return ALL if asked.flag("clear") else ()
    if asked.text("clear") not in ALL:
        raise unknown("kind", asked.text("clear"), (*ALL, "true", "false"))
    return (asked.text("clear"),)


def _clear(root: Path, chosen: Sequence[CachedFile]) -> int:
    left = [file for file in chosen if not file.remove()]
    size = sum(file.size for file in chosen) - sum(file.size for file in left)
    print(f"removed {len(chosen) - len(left)} files, {size / 1e9:.3f} GB, from {root}")
    if left:
        raise LabError(f"{len(left)} files cannot be removed, the first {left[0].path}", "ask the folder's owner")
    return 0


class _Kind(NamedTuple):
    """All files of one kind: how many, their bytes, and when one of them was last used."""

    kind: str
    files: int
    bytes: int
    last_used: str


def _by_kind(found: Sequence[CachedFile]) -> list[_Kind]:
    table = []
    for kind in ALL:
        if own := [file for file in found if file.kind == kind]:
            last = datetime.fromtimestamp(max(file.used for file in own)).isoformat(" ", "seconds")
            table.append(_Kind(kind, len(own), sum(file.size for file in own), last))
    return table


def _show(root: Path, limit: float, found: Sequence[CachedFile]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("kind", header_style="bold", show_edge=False, pad_edge=False)
    for name in ("files", "MB"):
        table.add_column(name, justify="right")
    table.add_column("last used")
    for one in _by_kind(found):
        table.add_row(one.kind, f"{one.files:,}", f"{one.bytes / 1e6:,.1f}", one.last_used)
    print(f"{root}: {sum(file.size for file in found) / 1e9:.3f} of {limit:g} GB")
    if found:
        Console().print(table)


if __name__ == "__main__":
    raise SystemExit(main())
