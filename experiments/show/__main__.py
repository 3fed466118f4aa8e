"""Show records: `python -m experiments.show --help`."""

import json
import re
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from omegaconf import DictConfig

from common.config.cli import run_task
from common.config.section import Section
from common.config.texts import quoted
from common.display.table import aligned
from experiments.show.record import Record, find, listed, newest, show_record

LISTED = 20  # records


@dataclass(frozen=True)
class Settings:
    """The keys of conf/show.yaml, which explains them."""

    id: tuple[str, ...]
    results: Path
    json: bool
    debug: bool


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; `argv` without the program's name. Returns the exit code."""
    return run_task(show, "show", words(sys.argv[1:] if argv is None else argv))


def words(argv: Sequence[str]) -> list[str]:
    """The command line as Hydra reads it: ids, which stand alone, become a list of quoted texts."""
    others, ids = list[str](), list[str]()
    for before, word in zip(["", *argv], argv, strict=False):
        named = "=" in word or word.startswith("-") or before.startswith("-")  # a key, a flag, the value of a flag
        (others if named else ids).append(word)
    return [*others, *([f"id=[{','.join(map(quoted, ids))}]"] if ids else [])]


def show(cfg: DictConfig) -> int:
    """Print some records, or a list. Raises LabError."""
    settings = Section.from_config(cfg).read(Settings)
    if settings.id:
        for row in [find(name, settings.results) for name in settings.id]:
            if settings.json:
                print(json.dumps({**row, "command": _command(row)}))
            else:
                show_record(row, _command(row))
        return 0
    rows = newest(settings.results)[:LISTED][::-1]
    if settings.json:
        print("\n".join(json.dumps(listed(row)) for row in rows))
    else:
        print(aligned([("id", "time (UTC)", "kind", "status", "what"), *(list(listed(row).values()) for row in rows)]))
    return 0


def _command(row: Record) -> str:
    """The recorded command with its seed, without places that it wrote to; and what it leaves for a reader."""
    recorded = (row.get("provenance") or {}).get("command") or "unknown"
    asked = row.get("asked")
    seed = row.get("seed", asked.get("seed") if isinstance(asked, dict) else None)
    if not re.match(r"python -m (experiments|profiles|tests\.strength)\b", recorded):
        return recorded if seed is None else f"{recorded}  (seed {seed})"
    words = [word for word in shlex.split(recorded) if not word.startswith(("results=", "cache="))]
    if seed is not None and not any(word.startswith("seed=") for word in words):
        words.append(f"seed={seed}")
    cut = [word.partition("=")[0] for word in words if re.search(r"""[=,["']\.\.\./""", word)]
    missing = f"  (the record has no folders: complete {', '.join(cut)})" if cut else ""
    return shlex.join(words) + missing


if __name__ == "__main__":
    raise SystemExit(main())
