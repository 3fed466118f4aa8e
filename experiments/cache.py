"""List or clear the cache folder: `python -m experiments.cache --help`."""

import json
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
from common.errors import LabError, known
from common.errors.machine import of_system

ALL: Sequence[str] = (*dict.fromkeys(KINDS.values()), UNFINISHED)


def run(cfg: DictConfig) -> int:
    """List the files of the cache by kind, or remove all or one kind (`clear`). Raises LabError for a bad value."""
    keys = Section.from_config(cfg)
    keys.only({"cache", "cache_limit_gb", "clear", "json", "debug"})
    root, limit, as_json, clear = keys.location("cache"), keys.number("cache_limit_gb"), keys.flag("json"), "clear"
    try:
        found = files(root) if any(root.iterdir()) else []
    except FileNotFoundError:
        found = []
    except OSError as error:
        raise LabError(f"cache={root} cannot be listed: {error.strerror}", "give cache=DIR, a folder") from error
    if keys.values[clear] is not False:
        chosen = ALL if keys.values[clear] is True else (known("kind", keys.text(clear), (*ALL, "true", "false")),)
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
    try:
        for file in chosen:
            file.path.unlink(missing_ok=True)
    except OSError as error:
        raise of_system(error, f"the cache {root} cannot be cleared") from error
    print(f"removed {len(chosen)} files, {sum(file.size for file in chosen) / 1e9:.3f} GB, from {root}")
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
