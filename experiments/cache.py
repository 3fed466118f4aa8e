"""List or clear the cache folder: `python -m experiments.cache --help`."""

import json
import os
from collections.abc import Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from common.cache.folder import KINDS, UNFINISHED, CachedFile, files
from common.config.cli import run_task
from common.config.section import Section
from common.display.table import Table, terminal
from common.errors import LabError, unknown

ALL: Sequence[str] = (*dict.fromkeys(KINDS.values()), UNFINISHED)


def run(cfg: DictConfig) -> int:
    """List the files of the cache by kind, or remove all or one kind (`clear`). Raises LabError for a bad value."""
    keys = Section.from_config(cfg)
    keys.only({"cache", "cache_limit_gb", "clear", "json", "debug"})
    root, limit, as_json = keys.location("cache"), keys.number("cache_limit_gb"), keys.flag("json")
    if isinstance(keys.values["clear"], bool):
        chosen = ALL if keys.flag("clear") else ()
    elif (kind := keys.text("clear")) in ALL:
        chosen = (kind,)
    else:
        raise unknown("kind", kind, (*ALL, "true", "false"))
    try:
        os.scandir(root).close()
    except FileNotFoundError:  # an empty cache
        pass
    except OSError as error:
        raise LabError(f"cache={root} cannot be listed: {error.strerror}", "give cache=DIR, a folder") from error
    found = files(root)
    if chosen:
        return _clear(root, [file for file in found if file.kind in chosen])
    kinds = _by_kind(found)
    if as_json:
        for one in kinds:
            print(json.dumps(one))
        return 0
    print(f"{root}: {sum(file.size for file in found) / 1e9:.3f} of {limit:g} GB")
    if kinds:
        lines = [{**one, "MB": f"{one['bytes'] / 1e6:,.1f}", "last used": one["last_used"]} for one in kinds]
        terminal(Table.of(lines, ("kind", "files", "MB", "last used"), names=1))
    return 0


def _clear(root: Path, chosen: Sequence[CachedFile]) -> int:
    left = [file for file in chosen if not file.remove()]
    size = sum(file.size for file in chosen) - sum(file.size for file in left)
    print(f"removed {len(chosen) - len(left)} files, {size / 1e9:.3f} GB, from {root}")
    if left:
        raise LabError(f"{len(left)} files cannot be removed, the first {left[0].path}", "ask the folder's owner")
    return 0


def _by_kind(found: Sequence[CachedFile]) -> list[dict[str, Any]]:
    """Number of files of each kind, their bytes, and when one of them was last used."""
    table = []
    for kind in ALL:
        if own := [file for file in found if file.kind == kind]:
            last = datetime.fromtimestamp(max(file.used for file in own)).isoformat(" ", "seconds")
            size = sum(file.size for file in own)
            table.append({"kind": kind, "files": len(own), "bytes": size, "last_used": last})
    return table


main = partial(run_task, run, "cache")

if __name__ == "__main__":
    raise SystemExit(main())
