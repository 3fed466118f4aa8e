"""Reasons why something is never executed: reasons.yaml, by file and by the text of the line."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

import yaml

from common.errors import LabError
from experiments.coverage.items import Item

FILE = Path(__file__).with_name("reasons.yaml")


@dataclass(frozen=True)
class Reason:
    """Why the items `never` of every line with this text are not executed. () stands for all items of the line."""

    file: str
    line: str
    never: tuple[str, ...]
    reason: str

    def explains(self, item: Item) -> bool:
        return item.file == self.file and item.text == self.line and (not self.never or item.what in self.never)


def read_reasons(file: Path = FILE) -> tuple[Reason, ...]:
    """All reasons of `file`. Raises LabError for an entry that is not complete."""
    found = []
    for name, entries in (yaml.safe_load(file.read_text()) or {}).items():
        for entry in entries:
            lines = [entry["line"]] if "line" in entry else entry.get("lines", [])
            if not lines or not entry.get("reason") or entry.keys() - {"line", "lines", "never", "reason"}:
                raise LabError(f"{file.name}: {name}: {entry}", "give line or lines, never and reason")
            found += [Reason(name, line, tuple(entry.get("never", ())), entry["reason"]) for line in lines]
    return tuple(found)


def unexplained(holes: Iterable[Item], reasons: Collection[Reason]) -> list[Item]:
    """The holes that no reason explains."""
    return [hole for hole in holes if not any(reason.explains(hole) for reason in reasons)]
